"""How a latency is distributed, as far as a report stores it: for plots and for charts. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.gates import stats

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.lane_result import LaneSample
    from engine_pipeline.gates.paired_result import PairedRound, Side
    from engine_pipeline.gates.report import Sample

# What is stored request by request; the gaps between tokens are stored as percentiles alone.
STORED = ("ttft", "tpot", "e2e")
# Of a comparison in turn.
STORED_IN_TURN = ("ttft", "tpot")


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """One kind of time of one engine under one load.

    Attributes:
        values: in milliseconds, ascending, of the requests that did not fail.
        requests: how many there were, failed ones too, each of them slower than any other.
    """

    values: tuple[float, ...]
    requests: int

    @property
    def failed(self) -> int:
        """Requests that lasted beyond measure."""
        return self.requests - len(self.values)

    def percentile(self, q: float) -> float:
        """The ceil(q·n)-th smallest; infinite where so many failed. Needs a request."""
        return stats.percentile([*self.values, *[math.inf] * self.failed], q)

    def by_percentile(self) -> dict[int, float]:
        """The first to the 99th percentile, those beyond measure left out."""
        if not self.requests:
            return {}
        times = [*self.values, *[math.inf] * self.failed]
        found = {step: stats.percentile(times, step / 100) for step in range(1, 100)}
        return {step: value for step, value in found.items() if math.isfinite(value)}


def of_samples(samples: Sequence[Sample] | Sequence[LaneSample], series: str) -> Latencies:
    """One of STORED, of the requests of one load.

    An answer of one token has no time per further token, and does not count there; where the server
    counts no tokens, no answer does.
    """
    good = [one for one in samples if one.error is None]
    if series == "ttft":
        times = [one.ttft_ms for one in good]
    elif series == "e2e":
        times = [one.e2e_ms for one in good]
    else:
        is_counted = all(one.completion_tokens is not None for one in good)
        times = [one.tpot_ms for one in good if is_counted]
    values = sorted(time for time in times if time is not None)
    return Latencies(values=tuple(values), requests=len(values) + len(samples) - len(good))


def of_rounds(rounds: Sequence[PairedRound], side: Side, series: str) -> Latencies:
    """One of STORED_IN_TURN, of all requests to one engine in these rounds."""
    runs = [made.run(side) for made in rounds]
    values = sorted(
        value for run in runs for value in (run.ttft_ms if series == "ttft" else run.tpot_ms)
    )
    failed = sum(sum(run.failed.values()) for run in runs)
    return Latencies(values=tuple(values), requests=len(values) + failed)
