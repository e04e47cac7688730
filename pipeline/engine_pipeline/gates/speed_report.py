"""Measured speed as it is stored in a report: estimates, samples, runs. Pure."""

from __future__ import annotations

import math
from typing import Annotated, Self

from pydantic import Field

from engine_pipeline.gates.stats import Estimate
from engine_registry.documents import Value

Count = Annotated[int, Field(ge=0)]
# Microseconds for times in milliseconds; a hundred-thousandth for shares.
_DIGITS = {"ms": 3, "share": 5}


class Measured(Value):
    """A `stats.Estimate` of something that is never negative, as it is stored.

    None stands for +inf, "beyond measure": too many requests failed, or, for `high`, there are too
    few samples for an upper bound. Where there is no lower bound, `low` is 0.
    """

    unit: str
    n: Count
    needed: Count
    value: float | None
    low: float | None
    high: float | None
    largest: float | None

    @classmethod
    def of(cls, estimate: Estimate, unit: str) -> Self:
        """To be stored, rounded to what its unit deserves."""
        digits = _DIGITS.get(unit, 3)
        return cls(
            unit=unit,
            n=estimate.n,
            needed=estimate.needed,
            value=_finite(estimate.value, digits),
            low=_finite(max(estimate.low, 0.0), digits),
            high=_finite(estimate.high, digits),
            largest=_finite(estimate.largest, digits),
        )

    @property
    def estimate(self) -> Estimate:
        """To be judged."""
        return Estimate(
            n=self.n,
            needed=self.needed,
            value=_number(self.value),
            low=_number(self.low),
            high=_number(self.high),
            largest=_number(self.largest),
        )


def _finite(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.inf if value is None else value


class Sample(Value):
    """One measured request; `error` names what made it count as failed.

    What is below `error` is None in reports from before there were workloads.

    Attributes:
        index: tells the requests of a run apart; the same one is the same request in every run.
        sent_s: seconds after the first request of its run.
        ttft_open_ms: from when it was due, waiting for a connection included.
        longest_gap_ms: the longest wait between two of its token events.
    """

    ttft_ms: float | None
    tpot_ms: float | None
    e2e_ms: float
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    error: str | None = None
    index: int | None = None
    sent_s: float | None = None
    ttft_open_ms: float | None = None
    longest_gap_ms: float | None = None


class PerformanceResult(Value):
    """The load that was made and how the engine bore it.

    Attributes:
        concurrency: requests in flight all along; 0 where they came when they were due.
        output_tokens: of each request; their mean where lengths differ.
        ignores_eos: every answer ran to its full length because the server was told to ignore the
            end of sequence; otherwise lengths differ and throughput is not comparable.
        failed: failed requests by kind; a request is sent once and never again.
        unreached: how many of them say nothing about the engine.
        metrics: by name, e.g. `ttft_p95_ms`; percentiles count failures as beyond measure.
        cached_share: of the prompt tokens, as the usage of each answer says.
        tokens_per_event: above 1, gaps between events are not gaps between tokens.
        window_s: length of the steady part, all requests in flight, that throughput is taken over.
        samples: of one run; empty where several runs are summed up, which have them.
        runs: how many runs are summed up.
        queue_ms_mean: time in the server's queue as the server says; None: it does not.
        server_cached_share: of the prompt tokens, as the server's own counters say.
    """

    requests: Count
    concurrency: Count
    warmup_requests: Count
    output_tokens: Count
    ignores_eos: bool
    failed: dict[str, int]
    unreached: Count
    metrics: dict[str, Measured]
    prompt_tokens_mean: float | None
    cached_share: float | None
    tokens_per_event: float | None
    window_s: float
    samples: tuple[Sample, ...]
    runs: Count = 1
    queue_ms_mean: float | None = None
    server_cached_share: float | None = None


class ClientError(Value):
    """How far off the client is: what it measured less what was so, in milliseconds.

    Attributes:
        in_flight: how many answers it followed at once.
        lost: requests that got no whole answer; there should be none.
    """

    in_flight: Annotated[int, Field(ge=1)]
    requests: Annotated[int, Field(ge=1)]
    lost: Annotated[int, Field(ge=0)]
    ttft_p50_ms: float
    ttft_p95_ms: float
    ttft_p99_ms: float
    tpot_p50_ms: float
    tpot_p95_ms: float
