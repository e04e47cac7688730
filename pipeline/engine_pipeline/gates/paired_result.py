"""What a comparison with the live engine found, as a report stores it. Pure values."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from engine_pipeline.gates.outcome import Outcome
from engine_registry.digest import Digest
from engine_registry.documents import Value
from engine_registry.record import Text

Reason = Annotated[str, Field(min_length=1, max_length=2000)]


class Side(StrEnum):
    """Which of the two engines."""

    CANDIDATE = "candidate"
    LIVE = "live"


class Baseline(Value):
    """Who the candidate is compared with.

    Attributes:
        named: the channel or engine as it was asked for.
        engine: None: there is no baseline, and `why` says so.
        release: what is live on the channel; None if an engine was named.
    """

    named: Text
    engine: Digest | None
    release: Text | None = None
    why: Reason | None = None


class PairedRun(Value):
    """One engine under the load once, on a fresh server.

    Attributes:
        load_s: from the start of the server until it was ready.
        slowed: how the boards were slowed down by what is not their own; None: they were not.
        foreign_cpu: share of the machine's processor time that others used; None: not known.
        failed: failed requests by kind.
        unreached: how many of them say nothing about the engine.
        ttft_ms, tpot_ms: of the requests that did not fail; none of `tpot_ms` if the server's usage
            does not tell how many tokens there were.
    """

    side: Side
    load_s: float
    foreign_cpu: float | None
    failed: dict[str, int] = {}
    unreached: Annotated[int, Field(ge=0)] = 0
    ttft_ms: tuple[float, ...]
    tpot_ms: tuple[float, ...]
    output_tokens_per_s: float | None = None
    slowed: Reason | None = None


class PairedRound(Value):
    """A run of either engine, one right after the other.

    Attributes:
        runs: in the order in which they were made.
        dropped: why the round does not count; None if it does.
    """

    number: Annotated[int, Field(ge=1)]
    runs: Annotated[tuple[PairedRun, PairedRun], Field()]
    dropped: Reason | None = None

    def run(self, side: Side) -> PairedRun:
        """The run of one engine."""
        return next(run for run in self.runs if run.side is side)


class Comparison(Value):
    """One metric of the candidate against the live engine.

    Attributes:
        rounds: how many count.
        ratio: candidate over live; 1.1 is ten per cent slower. None if there are too few rounds.
        low, high: its bounds; a failure rests on `low`, a pass on `high`.
        deviation: of the rounds' log ratios.
        smallest_change: the smallest slowdown worth catching, as a share.
        more_rounds: how many more would settle it, if the noise stays what it is; None if it is
            settled, or if no sensible number would.
        log_ratios: one for each round that counts, in order.
    """

    metric: Text
    rounds: Annotated[int, Field(ge=0)]
    ratio: float | None
    low: float | None
    high: float | None
    deviation: float | None
    smallest_change: float
    outcome: Outcome
    reason: Reason
    more_rounds: int | None = None
    log_ratios: tuple[float, ...] = ()


class ClientOverhead(Value):
    """What the client shows of a server that answers at once: more than it adds to any time.

    Attributes:
        in_flight: answers that were followed at once, as under the load.
    """

    in_flight: int
    requests: int
    ttft_p50_ms: float
    ttft_p95_ms: float
    tpot_p50_ms: float


class PairedResult(Value):
    """The whole comparison.

    Attributes:
        rule: which rounds do not count, in words.
        rounds: all that were made, in order.
        throughput_ratio: candidate's tokens per second over live's, median over the rounds that
            count; reported, and never decides.
        trouble: what ended it before its time.
        client: None if the comparison did not begin.
    """

    baseline: Baseline
    outcome: Outcome
    reason: Reason
    rule: Text = "-"
    rounds: tuple[PairedRound, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    throughput_ratio: float | None = None
    trouble: Reason | None = None
    client: ClientOverhead | None = None

    @property
    def counted(self) -> tuple[PairedRound, ...]:
        """The rounds that count."""
        return tuple(made for made in self.rounds if made.dropped is None)
