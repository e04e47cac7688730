"""Runs candidate and live engine in turn, each time on a fresh server, until the verdict is clear.

    round 1: candidate, live    round 2: live, candidate    round 3: candidate, live    …

Two servers are never up at once. A verdict is tried after as many counted rounds as the policy
says, and again after twice as many while it is open. Nothing is written: killed anywhere, a
comparison has not happened.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine_pipeline.gates.client import ChatClient
from engine_pipeline.gates.ending import CouldNotServe, DidNotLoad
from engine_pipeline.gates.foreign import foreign_share, processor_time
from engine_pipeline.gates.outcome import Outcome, combine
from engine_pipeline.gates.overhead import client_overhead
from engine_pipeline.gates.paired import compare, rule, throughput_ratio, why_dropped
from engine_pipeline.gates.paired_result import (
    Baseline,
    Comparison,
    PairedResult,
    PairedRound,
    PairedRun,
    Side,
)
from engine_pipeline.gates.performance import measure
from engine_pipeline.nvml.use import slowed
from engine_pipeline.nvml.watch import GpuWatch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path
    from typing import Protocol

    from engine_pipeline.gates.paired_bars import PairedBars
    from engine_pipeline.gates.server import Server
    from engine_pipeline.progress import Progress

    class Starts(Protocol):
        """An engine of which fresh servers can be had, such as `starter.Starter`."""

        @property
        def is_ours(self) -> bool:
            """Whether its servers are descendants of this process."""
            ...

        def serve(self) -> AbstractContextManager[Server]:
            """A fresh server, ready, ended with the block."""
            ...


_REASON_CHARS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trouble:
    """What ends a comparison before its time."""

    outcome: Outcome
    reason: str


@dataclass(slots=True, kw_only=True)
class _Log:
    """What has been made so far."""

    rounds: list[PairedRound] = field(default_factory=list)
    trouble: _Trouble | None = None

    @property
    def counted(self) -> list[PairedRound]:
        """The rounds that count."""
        return [made for made in self.rounds if made.dropped is None]


def no_comparison(baseline: Baseline, why: str) -> PairedResult:
    """A comparison that was not made: its own state, neither a pass nor a failure."""
    return PairedResult(baseline=baseline, outcome=Outcome.SKIPPED, reason=why[:_REASON_CHARS])


def compare_engines(
    *,
    candidate: Starts,
    live: Starts,
    baseline: Baseline,
    bars: PairedBars,
    timeout_s: float,
    progress: Progress,
    directory: Path,
) -> PairedResult:
    """Measure both engines in turn and judge.

    Args:
        candidate: who is judged.
        live: who it is compared with.
        baseline: who that is, for the report.
        bars: the load and what is asked.
        timeout_s: longest wait for one answer.
        progress: told of each run.
        directory: for the log of the client's self-test.
    """
    sides: list[tuple[Side, Starts]] = [(Side.CANDIDATE, candidate), (Side.LIVE, live)]
    progress.phase("paired", "the client's own overhead")
    try:
        client = client_overhead(bars, progress=progress, directory=directory)
    except CouldNotServe as error:
        return PairedResult(
            baseline=baseline, outcome=Outcome.ERRORED, reason=error.message[:_REASON_CHARS]
        )
    log = _Log()
    looks = list(bars.looks)
    comparisons: tuple[Comparison, ...] = ()
    with GpuWatch() as gpus:
        while looks and log.trouble is None and not _is_too_disturbed(log, bars):
            _make_round(log, sides, bars, looks[0], timeout_s, progress, gpus)
            sides.reverse()
            if log.trouble is None and len(log.counted) == looks[0]:
                looks.pop(0)
                comparisons = compare(log.counted, bars)
                if _verdict(comparisons) is not Outcome.INCONCLUSIVE:
                    looks = []
    if log.trouble is None and looks:
        # What is left is told, and settles nothing.
        comparisons = compare(log.counted, bars)
    outcome, reason = _sum_up(log, comparisons, gave_up=bool(looks))
    return PairedResult(
        baseline=baseline,
        outcome=outcome,
        reason=reason[:_REASON_CHARS],
        rule=rule(bars),
        rounds=tuple(log.rounds),
        comparisons=comparisons,
        throughput_ratio=throughput_ratio(log.counted),
        trouble=None if log.trouble is None else log.trouble.reason,
        client=client,
    )


def _is_too_disturbed(log: _Log, bars: PairedBars) -> bool:
    """Whether more rounds were dropped than count, and than a first verdict takes."""
    counted = len(log.counted)
    return len(log.rounds) - counted > max(counted, bars.rounds)


def _verdict(comparisons: Sequence[Comparison]) -> Outcome:
    return combine(comparison.outcome for comparison in comparisons)


def _sum_up(log: _Log, comparisons: Sequence[Comparison], *, gave_up: bool) -> tuple[Outcome, str]:
    counted, dropped = len(log.counted), len(log.rounds) - len(log.counted)
    said = f"{counted} rounds count" + (f", {dropped} were dropped" if dropped else "")
    if log.trouble is not None:
        return log.trouble.outcome, f"{log.trouble.reason}; {said}"
    if gave_up:
        why = f"{said}: the machine is too disturbed for a verdict"
        return Outcome.INCONCLUSIVE, f"{why}; run the gate again when it is quiet"
    outcome = _verdict(comparisons)
    deciding = [one for one in comparisons if one.outcome is outcome]
    if outcome is Outcome.PASSED:
        worst = max(deciding, key=lambda one: (one.high or 0) / (1 + one.smallest_change))
        return outcome, f"no metric is slower by what is worth catching; {said}; {_say(worst)}"
    return outcome, "; ".join(_say(one) for one in deciding)


def _say(comparison: Comparison) -> str:
    return f"{comparison.metric} {comparison.reason}"


def _make_round(
    log: _Log,
    sides: Sequence[tuple[Side, Starts]],
    bars: PairedBars,
    wanted: int,
    timeout_s: float,
    progress: Progress,
    gpus: GpuWatch,
) -> None:
    number = len(log.rounds) + 1
    made: list[PairedRun] = []
    for side, engine in sides:
        counted = len(log.counted)
        progress.phase("paired", f"round {number} ({counted} of {wanted} count): {side} engine")
        run = _make_run(side, engine, bars, timeout_s, progress, gpus)
        if isinstance(run, _Trouble):
            log.trouble = run
            return
        made.append(run)
    runs = (made[0], made[1])
    dropped = why_dropped(runs, bars)
    if dropped is not None:
        progress.note(f"round {number} does not count: {dropped}")
    log.rounds.append(PairedRound(number=number, runs=runs, dropped=dropped))


def _make_run(
    side: Side,
    engine: Starts,
    bars: PairedBars,
    timeout_s: float,
    progress: Progress,
    gpus: GpuWatch,
) -> PairedRun | _Trouble:
    try:
        with engine.serve() as server:

            def gone() -> str | None:
                ended = server.ended()
                return None if ended is None else f"the server {ended.words}"

            async def load() -> tuple[PairedRun, str | None]:
                before = processor_time() if engine.is_ours else None
                async with ChatClient(
                    server.endpoint.as_in_production, timeout_s=timeout_s
                ) as client:
                    began = time.perf_counter()
                    result = await measure(client, bars, progress=progress, gone=gone)
                    boards = gpus.use(began, time.perf_counter())
                after = processor_time() if engine.is_ours else None
                good = [sample for sample in result.samples if sample.error is None]
                rate = result.metrics.get("output_tokens_per_s")
                return PairedRun(
                    side=side,
                    load_s=round(server.load_s, 3),
                    foreign_cpu=foreign_share(before, after),
                    failed=result.failed,
                    unreached=result.unreached,
                    ttft_ms=tuple(one.ttft_ms for one in good if one.ttft_ms is not None),
                    tpot_ms=tuple(one.tpot_ms for one in good if one.tpot_ms is not None),
                    output_tokens_per_s=None if rate is None else rate.value,
                    slowed=slowed(boards),
                ), gone()

            run, how = asyncio.run(load())
            ended = server.ended()
    except (DidNotLoad, CouldNotServe) as error:
        failed = isinstance(error, DidNotLoad) and side is Side.CANDIDATE
        return _Trouble(
            outcome=Outcome.FAILED if failed else Outcome.ERRORED,
            reason=f"the {side} engine: {error.message}",
        )
    if ended is None:
        return run
    failed = ended.by_itself and side is Side.CANDIDATE
    return _Trouble(
        outcome=Outcome.FAILED if failed else Outcome.ERRORED,
        reason=f"the {side} engine: {how or f'the server {ended.words}'} under the load",
    )
