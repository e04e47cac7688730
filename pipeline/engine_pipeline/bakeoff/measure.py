"""Measures one contestant: suites first, then the load step by step, then structured answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.bakeoff.measured import StructuredResult, SuiteScore
from engine_pipeline.bakeoff.structured import ask_structured
from engine_pipeline.gates.client import ChatClient
from engine_pipeline.gates.foreign import foreign_share, processor_time
from engine_pipeline.gates.golden import ask_suite
from engine_pipeline.gates.overhead import client_overhead
from engine_pipeline.gates.performance import measure
from engine_pipeline.gates.scratch import scratch
from engine_registry.errors import CouldNotJudge, JudgedAndRefused, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from engine_pipeline.bakeoff.file import BakeoffFile
    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.ending import Ending
    from engine_pipeline.gates.paired_result import ClientOverhead
    from engine_pipeline.gates.report import CaseResult, PerformanceResult
    from engine_pipeline.gates.suite import Suite
    from engine_pipeline.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """Somebody who answers now.

    Attributes:
        ended: how its server ended; None while there is no reason to think so.
        is_ours: its server is a descendant of this process, so what others use can be told.
        load_s: how long loading took; None if somebody else did it.
    """

    endpoint: Endpoint
    ended: Callable[[], Ending | None]
    is_ours: bool
    load_s: float | None = None

    def gone(self) -> str | None:
        """Why nobody answers any more, in words."""
        ended = self.ended()
        return None if ended is None else f"the server {ended.words}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that was measured of one contestant."""

    suites: tuple[SuiteScore, ...]
    steps: tuple[PerformanceResult, ...]
    structured: StructuredResult | None
    foreign_cpu: float | None


def measure_contestant(
    served: Served, file: BakeoffFile, suites: Sequence[Suite], progress: Progress
) -> Parts:
    """Ask everything that the file asks for.

    Raises:
        JudgedAndRefused: the server crashed or gave up before it had been asked everything.
        CouldNotJudge: it was killed before that.
        Unavailable: nothing at all of a part could be asked.
    """
    return asyncio.run(_measure(served, file, suites, progress))


def self_test(file: BakeoffFile, workdir: Path, progress: Progress) -> ClientOverhead:
    """What the client adds under the heaviest step of the load; raises CouldNotJudge."""
    progress.phase("self-test", "the client's own overhead")
    with scratch(workdir) as directory:
        heaviest = file.load.step(file.load.concurrency[-1])
        return client_overhead(heaviest, progress=progress, directory=directory)


async def _measure(
    served: Served, file: BakeoffFile, suites: Sequence[Suite], progress: Progress
) -> Parts:
    scores: list[SuiteScore] = []
    steps: list[PerformanceResult] = []
    structured = None
    async with ChatClient(served.endpoint, timeout_s=file.timeout_s) as client:
        for suite in suites:
            progress.phase("golden", f"suite {suite.name}, {len(suite.cases)} cases")
            cases = await ask_suite(
                client, suite, concurrency=1, progress=progress, gone=served.gone
            )
            _still_there(served, f"suite {suite.name}")
            _was_asked(cases, suite)
            scores.append(SuiteScore(name=suite.name, digest=suite.digest, cases=cases))
        before = processor_time()
        for concurrency in file.load.concurrency:
            progress.phase("speed", f"{file.load.requests} requests, {concurrency} in flight")
            load = file.load.step(concurrency)
            made = await measure(client, load, progress=progress, gone=served.gone)
            _still_there(served, f"load with {concurrency} in flight")
            _was_reached(made, f"load with {concurrency} in flight")
            steps.append(made)
        if file.structured is not None:
            progress.phase("structured", f"{file.structured.requests} requests")
            structured = await ask_structured(
                client, file.structured, progress=progress, gone=served.gone
            )
            _still_there(served, "structured answers")
            _was_reached(structured.speed, "structured answers")
        foreign = foreign_share(before, processor_time()) if served.is_ours else None
    return Parts(
        suites=tuple(scores), steps=tuple(steps), structured=structured, foreign_cpu=foreign
    )


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


def _was_reached(speed: PerformanceResult, part: str) -> None:
    if speed.unreached == speed.requests:
        kinds = ", ".join(f"{count} {kind}" for kind, count in speed.failed.items())
        raise _not_reached(part, kinds)


def _not_reached(part: str, why: str) -> Unavailable:
    return Unavailable(
        f"not one request of {part} was taken: {why}",
        hint="check address, key and quota, then run the command again",
        reference="contestant-not-reached",
    )
