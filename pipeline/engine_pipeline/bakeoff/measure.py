"""Measures one contestant: suites, then the load step by step, lanes, structured answers."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.bakeoff.measured import StructuredResult, SuiteScore
from engine_pipeline.bakeoff.structured import ask_structured
from engine_pipeline.gates.advising import advisers_of
from engine_pipeline.gates.client import ChatClient
from engine_pipeline.gates.foreign import foreign_share, processor_time
from engine_pipeline.gates.golden import ask_suite
from engine_pipeline.gates.lane_run import run_lane
from engine_pipeline.gates.overhead import client_overhead
from engine_pipeline.gates.performance import measure
from engine_pipeline.gates.scratch import scratch
from engine_pipeline.gates.served_by import drawn_by_default
from engine_pipeline.gates.speed_gate import is_near
from engine_pipeline.nvml.watch import GpuWatch
from engine_pipeline.workload.arrival import Concurrency
from engine_registry.errors import CouldNotJudge, JudgedAndRefused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from engine_pipeline.bakeoff.trial import Trial
    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.consult import Advisers
    from engine_pipeline.gates.ending import Ending
    from engine_pipeline.gates.lane_result import LaneResult, LaneStep
    from engine_pipeline.gates.paired_result import ClientOverhead
    from engine_pipeline.gates.report import CaseResult, PerformanceResult
    from engine_pipeline.gates.served_by import ServedBy
    from engine_pipeline.gates.suite import Suite
    from engine_pipeline.progress import Progress

# What the self-test keeps in flight at most: it is about the client, not about the machine.
_MOST_IN_FLIGHT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Somebody who answers now.

    Attributes:
        ended: how its server ended; None while there is no reason to think so.
        is_ours: its server is a descendant of this process, so what others use can be told.
        load_s: how long loading took; None if somebody else did it.
        by: how an endpoint takes requests; None for an engine, whose server is known.
    """

    endpoint: Endpoint
    ended: Callable[[], Ending | None]
    is_ours: bool
    load_s: float | None = None
    by: ServedBy | None = None

    def gone(self) -> str | None:
        """Why nobody answers any more, in words."""
        ended = self.ended()
        return None if ended is None else f"the server {ended.words}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that was measured of one contestant."""

    suites: tuple[SuiteScore, ...]
    advisers: Advisers
    steps: tuple[PerformanceResult, ...]
    lanes: tuple[LaneResult, ...]
    structured: StructuredResult | None
    foreign_cpu: float | None


def measure_contestant(served: Served, trial: Trial, progress: Progress) -> Parts:
    """Ask everything that the file asks for.

    Raises:
        JudgedAndRefused: the server crashed or gave up before it had been asked everything.
        CouldNotJudge: it was killed before that.
        Unavailable: nothing at all of a part could be asked.
    """
    return asyncio.run(_measure(served, trial, progress))


def self_test(trial: Trial, workdir: Path, progress: Progress) -> ClientOverhead:
    """What the client adds with as many in flight as any load keeps there; raises CouldNotJudge."""
    progress.phase("self-test", "the client's own overhead")
    arrivals = [workload.arrival for workload in trial.workloads.values()]
    most = [one.steps[-1] for one in arrivals if isinstance(one, Concurrency)]
    load = trial.file.load
    with scratch(workdir) as directory:
        in_flight = min(max([load.concurrency[-1], *most]), _MOST_IN_FLIGHT)
        heaviest = load.step(in_flight)
        return client_overhead(heaviest, progress=progress, directory=directory)


async def _measure(served: Served, trial: Trial, progress: Progress) -> Parts:
    timeout_s = trial.file.timeout_s
    async with ChatClient(served.endpoint, timeout_s=timeout_s) as client:
        scores, advisers = await _ask_suites(client, served, trial, progress)
    async with ChatClient(served.endpoint.as_in_production, timeout_s=timeout_s) as client:
        before = processor_time()
        with GpuWatch() if is_near(served.endpoint) else nullcontext() as gpus:
            steps = await _load(client, served, trial, progress, gpus)
            lanes = await _lanes(client, served, trial, progress, gpus)
        structured = await _structured(client, served, trial, progress)
        foreign = foreign_share(before, processor_time()) if served.is_ours else None
    return Parts(
        suites=scores,
        advisers=advisers,
        steps=steps,
        lanes=lanes,
        structured=structured,
        foreign_cpu=foreign,
    )


async def _ask_suites(
    client: ChatClient, served: Served, trial: Trial, progress: Progress
) -> tuple[tuple[SuiteScore, ...], Advisers]:
    scores: list[SuiteScore] = []
    async with advisers_of(trial.advice, trial.file.judge, trial.file.embeddings) as advisers:
        for suite in trial.suites:
            progress.phase("golden", f"suite {suite.name}, {len(suite.cases)} cases")
            cases = await ask_suite(
                client,
                suite,
                concurrency=1,
                progress=progress,
                gone=served.gone,
                advisers=advisers,
                today=trial.advice.today,
            )
            _still_there(served, f"suite {suite.name}")
            _was_asked(cases, suite)
            drawn = drawn_by_default(served.by, suite) if served.by else ()
            scores.append(
                SuiteScore(
                    name=suite.name, digest=suite.digest, cases=cases, drawn_by_default=drawn
                )
            )
    return tuple(scores), advisers


async def _load(
    client: ChatClient, served: Served, trial: Trial, progress: Progress, gpus: GpuWatch | None
) -> tuple[PerformanceResult, ...]:
    load = trial.file.load
    steps: list[PerformanceResult] = []
    for concurrency in load.concurrency:
        part = f"load with {concurrency} in flight"
        progress.phase("speed", f"{load.requests} requests, {concurrency} in flight")
        made = await measure(
            client,
            load.step(concurrency),
            progress=progress,
            gone=served.gone,
            gpus=gpus,
            first=len(steps) * load.requests,
        )
        _still_there(served, part)
        _was_reached(made, part)
        steps.append(made)
    return tuple(steps)


async def _lanes(
    client: ChatClient, served: Served, trial: Trial, progress: Progress, gpus: GpuWatch | None
) -> tuple[LaneResult, ...]:
    lanes = []
    for name, bars in (trial.file.lanes or {}).items():
        workload = trial.workloads[name]
        made = await run_lane(
            client, name, workload, bars, progress=progress, gone=served.gone, gpus=gpus
        )
        _still_there(served, f"lane {name}")
        for step in made.steps:
            _was_reached(step, f"lane {name}")
        lanes.append(made)
    return tuple(lanes)


async def _structured(
    client: ChatClient, served: Served, trial: Trial, progress: Progress
) -> StructuredResult | None:
    wanted = trial.file.structured
    if wanted is None:
        return None
    progress.phase("structured", f"{wanted.requests} requests")
    made = await ask_structured(client, wanted, progress=progress, gone=served.gone)
    _still_there(served, "structured answers")
    _was_reached(made.speed, "structured answers")
    return made


def _still_there(served: Served, part: str) -> None:
    ended = served.ended()
    if ended is None:
        return
    # What was killed from outside says nothing of itself.
    kind = JudgedAndRefused if ended.by_itself else CouldNotJudge
    raise kind(
        f"the server {ended.words} during {part}",
        hint="look at its memory and its log, then run the command again",
        reference="contestant-gone",
    )


def _was_asked(cases: Sequence[CaseResult], suite: Suite) -> None:
    attempts = [attempt for case in cases for attempt in case.attempts]
    if sum(case.errored for case in cases) == len(attempts):
        raise _not_reached(f"suite {suite.name}", attempts[0].error or "no answer")


def _was_reached(speed: PerformanceResult | LaneStep, part: str) -> None:
    if speed.unreached == speed.requests:
        kinds = ", ".join(f"{count} {kind}" for kind, count in speed.failed.items())
        raise _not_reached(part, kinds)


def _not_reached(part: str, why: str) -> Unavailable:
    return Unavailable(
        f"not one request of {part} was taken: {why}",
        hint="check address, key and quota, then run the command again",
        reference="contestant-not-reached",
    )
