"""Makes the runs of a workload: candidate and live engine in turn, each time on a fresh server.

    round 1: candidate, live    round 2: live, candidate    round 3: candidate, live    …

Before each run the client measures itself; during it the machine is watched. A verdict is tried
after as many rounds as the policy says, and again after as many more while it is open.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine_pipeline.gates.client import ChatClient
from engine_pipeline.gates.device_state import RULE, disturbance
from engine_pipeline.gates.device_state_host import watching
from engine_pipeline.gates.ending import CouldNotServe, DidNotLoad
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired import Levels, compare, log_ratio
from engine_pipeline.gates.performance import run_workload
from engine_pipeline.gates.schedule import levels
from engine_pipeline.gates.speed import samples_of, summarise
from engine_pipeline.gates.speed_runs import (
    RunResult,
    Side,
    StepResult,
    StepSamples,
    Trouble,
    WorkloadResult,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager

    from engine_pipeline.gates.device_state import GpuMonitor
    from engine_pipeline.gates.paired import Comparison
    from engine_pipeline.gates.selftest import SelfTest
    from engine_pipeline.gates.server import Server
    from engine_pipeline.gates.speed_report import PerformanceResult
    from engine_pipeline.gates.speed_runs import Baseline
    from engine_pipeline.gates.speed_sample import LevelRun
    from engine_pipeline.gates.workload_bars import WorkloadBars
    from engine_pipeline.progress import Progress

# Tries at one quiet run where nothing is compared.
_TRIES = 3
# Answers that an open load may have in flight: so many seconds' worth of requests.
_OPEN_S = 4.0
_MOST_IN_FLIGHT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One of the two engines.

    Attributes:
        serve: starts a fresh server and gives it, ready.
        gpus: how many the engine uses.
        is_ours: its server is a descendant of this process; not so in a container.
    """

    side: Side
    serve: Callable[[], AbstractContextManager[Server]]
    gpus: int = 0
    is_ours: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """What runs are made with.

    Attributes:
        timeout_s: longest wait for one answer.
    """

    self_test: SelfTest
    monitor: GpuMonitor
    progress: Progress
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A run with all that was measured."""

    result: RunResult
    steps: tuple[LevelRun, ...]
    trouble: Trouble | None = None


@dataclass(slots=True, kw_only=True)
class _Log:
    """All runs so far; a pair for each round."""

    runs: list[_Run] = field(default_factory=list)
    counted: list[dict[Side, _Run]] = field(default_factory=list)
    rounds: int = 0
    trouble: Trouble | None = None


def measure_workload(
    bars: WorkloadBars, candidate: Contender, live: Contender | None, baseline: Baseline, lab: Lab
) -> WorkloadResult:
    """Every run of the workload, and what came of them.

    Args:
        bars: the workload and what is asked under it.
        candidate: who is judged.
        live: who it is compared with; None, and `baseline` says why with nobody.
        baseline: for the report.
        lab: what runs are made with.

    Raises:
        CouldNotServe: the self-test's server cannot be reached.
    """
    against = bars.against_live if live is not None else None
    sides = [candidate] if live is None else [candidate, live]
    wanted = against.rounds if against else 1
    most = against.max_rounds if against else _TRIES
    log = _Log()
    while log.rounds < most and log.trouble is None:
        before = len(log.counted)
        _make_round(log, sides, bars, lab)
        sides.reverse()
        if len(log.counted) > before and len(log.counted) % wanted == 0:
            steps = _sum_up(bars, log, candidate, live)
            found = [one.outcome for step in steps for one in step.comparisons]
            if Outcome.FAILED in found or Outcome.INCONCLUSIVE not in found:
                break
    else:
        # The last look, short of rounds for those that were dropped.
        steps = _sum_up(bars, log, candidate, live)
    return WorkloadResult(
        name=bars.name,
        lane=bars.workload.lane,
        workload=bars.workload.digest,
        baseline=baseline,
        rounds_made=log.rounds,
        rounds_counted=len(log.counted),
        rule=RULE.format(**bars.disturbed.model_dump()),
        runs=tuple(run.result for run in log.runs),
        steps=steps,
        trouble=log.trouble,
    )


def _make_round(log: _Log, sides: Sequence[Contender], bars: WorkloadBars, lab: Lab) -> None:
    log.rounds += 1
    made: dict[Side, _Run] = {}
    for contender in sides:
        number = len(log.runs) + 1
        lab.progress.phase("speed", f"{bars.name}, run {number}: {contender.side}")
        try:
            run = _make_run(contender, bars, lab, number=number, round_number=log.rounds)
        except (DidNotLoad, CouldNotServe) as error:
            failed = isinstance(error, DidNotLoad)
            log.trouble = Trouble(
                side=contender.side,
                outcome=Outcome.FAILED if failed else Outcome.ERRORED,
                reason=error.message[:2000],
            )
            return
        log.runs.append(run)
        made[contender.side] = run
        if run.trouble is not None:
            log.trouble = run.trouble
            return
        if run.result.spoilt is not None:
            lab.progress.note(f"run {number} does not count: {run.result.spoilt}")
            if len(sides) > 1:
                # The other half of the round would be for nothing.
                return
    if all(run.result.spoilt is None for run in made.values()):
        log.counted.append(made)


def _make_run(
    contender: Contender, bars: WorkloadBars, lab: Lab, *, number: int, round_number: int
) -> _Run:
    client_error = lab.self_test.measure(_in_flight(bars))
    with contender.serve() as server, watching(lab.monitor, is_ours=contender.is_ours) as watch:

        def gone() -> str | None:
            ended = server.ended()
            return None if ended is None else f"the server {ended.words}"

        async def load() -> tuple[LevelRun, ...]:
            async with ChatClient(server.endpoint, timeout_s=lab.timeout_s) as client:
                return await run_workload(client, bars.workload, progress=lab.progress, gone=gone)

        steps = asyncio.run(load())
        ended = server.ended()
    trouble = None
    if ended is not None:
        trouble = Trouble(
            side=contender.side,
            outcome=Outcome.FAILED if ended.by_itself else Outcome.ERRORED,
            reason=f"the server {ended.words} under load",
        )
    result = RunResult(
        number=number,
        round=round_number,
        side=contender.side,
        load_s=round(server.load_s, 3),
        spoilt=disturbance(watch.use, bars.disturbed),
        client=client_error,
        device=watch.use,
        steps=tuple(
            StepSamples(level=run.level.name, ignores_eos=run.ignores_eos, samples=samples_of(run))
            for run in steps
        ),
    )
    return _Run(result=result, steps=steps, trouble=trouble)


def _in_flight(bars: WorkloadBars) -> int:
    """How many answers the client will have to follow at once, as far as can be known before."""
    most = bars.workload.most_in_flight
    if most is None:
        rate = getattr(bars.workload.arrival, "rate_per_s", 1.0)
        most = min(round(rate * _OPEN_S), bars.workload.requests)
    return max(1, min(most, _MOST_IN_FLIGHT))


def _sum_up(
    bars: WorkloadBars, log: _Log, candidate: Contender, live: Contender | None
) -> tuple[StepResult, ...]:
    results = []
    for number, step in enumerate(levels(bars.workload)):
        runs = {
            side: [made[side].steps[number] for made in log.counted if side in made]
            for side in Side
        }
        results.append(
            StepResult(
                level=step.name,
                candidate=_pooled(runs[Side.CANDIDATE], bars, candidate.gpus),
                live=_pooled(runs[Side.LIVE], bars, live.gpus if live else 0),
                comparisons=_compared(bars, log, number, step.name) if live else (),
            )
        )
    return tuple(results)


def _pooled(runs: list[LevelRun], bars: WorkloadBars, gpus: int) -> PerformanceResult | None:
    if not runs:
        return None
    warmup_requests = bars.workload.warmup_requests
    return summarise(runs, warmup_requests=warmup_requests, slo=bars.slo, gpus=gpus)


def _compared(bars: WorkloadBars, log: _Log, number: int, level: str) -> tuple[Comparison, ...]:
    against = bars.against_live
    if against is None:
        return ()
    comparisons = len(against.smallest_change) * len(levels(bars.workload))
    found = []
    for metric, smallest in against.smallest_change.items():
        ratios = [
            log_ratio(
                metric,
                made[Side.CANDIDATE].result.steps[number].samples,
                made[Side.LIVE].result.steps[number].samples,
            )
            for made in log.counted
        ]
        found.append(
            compare(
                metric,
                level,
                [ratio for ratio in ratios if ratio is not None],
                smallest_change=smallest,
                sure=Levels.of(against, comparisons),
            )
        )
    return tuple(found)
