"""The bars of one lane of a gate: a workload, and how fast the engine must be under it. Pure.

Written in `channels.yaml` under a gate as `lanes:`, by name; part of the gate's policy and its
digest. Whoever waits for words and whoever waits for a job's end are two lanes.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, field_validator, model_validator

from engine_pipeline.gates.paired_bars import Share
from engine_pipeline.workload.model import Workload
from engine_registry.digest import Digest
from engine_registry.documents import Value

SERIES = ("ttft", "tpot", "itl", "e2e")
QUANTILES = (0.5, 0.9, 0.95, 0.99)
METRICS = tuple(f"{name}_p{q * 100:.0f}_ms" for name in SERIES for q in QUANTILES)
Bar = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class PinnedWorkload(Value):
    """A workload in a file of its own.

    Attributes:
        file: below the folder of `channels.yaml`.
        digest: what `enginectl workload show FILE` says; another one is refused, so changing the
            file is a change of the policy too.
    """

    file: Annotated[str, Field(min_length=1, max_length=300)]
    digest: Digest

    @field_validator("file")
    @classmethod
    def _stays_below(cls, file: str) -> str:
        parts = file.split("/")
        if file.startswith("/") or "\\" in file or {"", ".", ".."} & set(parts):
            msg = f"{file!r} is no plain path below the folder of channels.yaml"
            raise ValueError(msg)
        return file


class Slo(Value):
    """What makes a request a good one; what is not named is not asked of it."""

    max_ttft_ms: Bar | None = None
    max_tpot_ms: Bar | None = None
    max_e2e_ms: Bar | None = None

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if (self.max_ttft_ms, self.max_tpot_ms, self.max_e2e_ms) == (None, None, None):
            msg = "asks nothing: give max_ttft_ms, max_tpot_ms or max_e2e_ms"
            raise ValueError(msg)
        return self

    def words(self) -> str:
        """As a report says it."""
        named = (("TTFT", self.max_ttft_ms), ("TPOT", self.max_tpot_ms), ("E2E", self.max_e2e_ms))
        return ", ".join(f"{name} ≤ {bar:g} ms" for name, bar in named if bar is not None)


class LaneBars(Value):
    """One lane.

    Attributes:
        workload: the load, written here.
        workload_file: or written in a file, as `workload capture` makes it.
        ceilings: milliseconds by metric, e.g. `ttft_p95_ms`; of a time, at most.
        slo: what makes a request a good one.
        min_good_share: least share of good ones among all requests.
        min_good_per_s: least number of good ones per second.
        min_output_tokens_per_s: reported beside the others, and no bar to have alone.
        max_client_lag_ms: a request sent later than this after its time was late.
        max_late_share: with more late ones than this, the client could not keep up, and nothing
            is decided.
    """

    workload: Workload | None = None
    workload_file: PinnedWorkload | None = None
    ceilings: dict[str, Bar] = {}
    slo: Slo | None = None
    min_good_share: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    min_good_per_s: Bar | None = None
    min_output_tokens_per_s: Bar | None = None
    max_client_lag_ms: Bar = 20.0
    max_late_share: Share = 0.01

    @field_validator("ceilings")
    @classmethod
    def _is_measured(cls, ceilings: dict[str, float]) -> dict[str, float]:
        if unknown := sorted(set(ceilings) - set(METRICS)):
            msg = f"no metric {', '.join(unknown)}; there are {', '.join(METRICS)}"
            raise ValueError(msg)
        return ceilings

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if (self.workload is None) == (self.workload_file is None):
            msg = "give either workload or workload_file"
            raise ValueError(msg)
        goodput = self.min_good_share is not None or self.min_good_per_s is not None
        if goodput != (self.slo is not None):
            msg = (
                "slo, and min_good_share or min_good_per_s, go together: neither says enough alone"
            )
            raise ValueError(msg)
        if not goodput and not self.ceilings:
            msg = (
                "no bar on a time: give ceilings, or slo and min_good_share; throughput alone "
                "decides nothing"
            )
            raise ValueError(msg)
        return self


Lanes = Annotated[dict[str, LaneBars], Field(min_length=1, max_length=8)]
