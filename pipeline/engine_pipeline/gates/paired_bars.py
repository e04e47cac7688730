"""What a candidate must show against the engine that is live, measured in turn with it. Pure.

Written in `channels.yaml` under a gate as `paired:`; part of the gate's policy and its digest.
"""

from __future__ import annotations

import json
import re
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, model_validator

from engine_pipeline.gates.load import Concurrency, Load

_PER_CENT = re.compile(r"(\d+(?:\.\d+)?) ?%")
# Where more is worse; throughput is reported and decides nothing.
MEDIANS = ("ttft_p50_ms", "tpot_p50_ms")
TAILS = ("ttft_p95_ms", "tpot_p95_ms")
MOST_ROUNDS = 400


def _read_share(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    match = _PER_CENT.fullmatch(value)
    if match is None:
        msg = f"found {json.dumps(value, ensure_ascii=False)}, want a share such as 10% or 0.1"
        raise ValueError(msg)
    return round(float(match.group(1)) / 100, 9)


# As people write it, `10%`, or as a number, 0.1. Below one per cent no machine is quiet enough.
Share = Annotated[float, Field(ge=0.01, le=1.0), BeforeValidator(_read_share)]
Rate = Annotated[float, Field(ge=0.0001, le=0.2), BeforeValidator(_read_share)]


class PairedBars(Load):
    """How candidate and live engine are measured in turn, and which difference matters.

    Attributes:
        against: a channel of the same product, such as `prod`; or any channel or engine.
        smallest_change: the smallest slowdown of a median worth catching.
        smallest_change_p95: the same of a p95, which is known less well from as many requests.
        rounds: how many have to count before the first verdict is tried; a round is one run of
            either engine on a fresh server.
        max_rounds: while the verdict is open, rounds are doubled up to so many.
        max_foreign_cpu: a round does not count if others used more of the machine's processor time
            than this share during either of its runs.
        false_alarm: how often an engine as fast as the live one may fail.
        miss: how often one that is slower by the smallest change may pass.
    """

    against: Annotated[str, Field(min_length=1, max_length=300)]
    requests: Annotated[int, Field(ge=8, le=10_000)] = 20
    concurrency: Concurrency = 1
    output_tokens: Annotated[int, Field(ge=2, le=8192)] = 16
    smallest_change: Share = 0.1
    smallest_change_p95: Share = 0.25
    rounds: Annotated[int, Field(ge=6, le=200)] = 6
    max_rounds: Annotated[int, Field(ge=6, le=MOST_ROUNDS)] = 96
    max_foreign_cpu: Share = 0.25
    false_alarm: Rate = 0.01
    miss: Rate = 0.03

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.max_rounds < self.rounds:
            msg = f"max_rounds {self.max_rounds} is less than rounds {self.rounds}"
            raise ValueError(msg)
        if self.requests < self.concurrency:
            msg = f"requests {self.requests} cannot keep {self.concurrency} in flight"
            raise ValueError(msg)
        return self

    @property
    def looks(self) -> tuple[int, ...]:
        """After how many counted rounds a verdict is tried."""
        looks = [self.rounds]
        while looks[-1] < self.max_rounds:
            looks.append(min(looks[-1] * 2, self.max_rounds))
        return tuple(looks)

    @property
    def changes(self) -> dict[str, float]:
        """The smallest change worth catching, by metric."""
        medians = dict.fromkeys(MEDIANS, self.smallest_change)
        return medians | dict.fromkeys(TAILS, self.smallest_change_p95)
