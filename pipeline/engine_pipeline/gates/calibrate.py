"""Measures one engine against itself: all that the gate asks again and again, a fresh server each.

Answers do not hang on who else uses the machine, times do: a run that was disturbed counts for the
former and not for the latter.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from engine_pipeline.gates.calibration import (
    LEAST_RUNS,
    CasesEvidence,
    ErrorRates,
    GateCalibration,
    Unsteady,
    WorthCatching,
    evidence,
)
from engine_pipeline.gates.calibration_bars import (
    bars_of,
    basis_of,
    unsteady,
    values_of_answers,
    values_of_parity,
    values_of_speed,
)
from engine_pipeline.gates.client import ChatClient
from engine_pipeline.gates.examine import ask_endpoint
from engine_pipeline.gates.foreign import foreign_share, processor_time
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.speed_gate import Speed, measure_speed
from engine_registry.errors import CouldNotJudge

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from engine_pipeline.gates.advising import Advice
    from engine_pipeline.gates.paired_run import Starts
    from engine_pipeline.gates.parity_result import ParityResult
    from engine_pipeline.gates.policy import GatePolicy
    from engine_pipeline.gates.report import CaseResult
    from engine_pipeline.gates.server import Server
    from engine_pipeline.gates.suite import Suite
    from engine_pipeline.progress import Progress
    from engine_pipeline.workload.model import Workload
    from engine_registry.digest import Digest


class Part(StrEnum):
    """What can be measured by itself."""

    QUALITY = "quality"
    SPEED = "speed"
    PARITY = "parity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrating:
    """What is measured and what for.

    Attributes:
        engine: what is measured.
        starter: how it is started.
        policy: the gate's.
        suite: the one that it names.
        advice: who else is asked.
        workloads: of the lanes whose workload is in a file, by lane.
        compare: compares the engine once with each parent of the policy.
        parts: what is measured, as far as the policy has bars for it.
        max_foreign_cpu: a run's speed is disturbed if others used more of the processor time.
    """

    engine: Digest
    starter: Starts
    policy: GatePolicy
    suite: Suite
    advice: Advice
    workloads: Mapping[str, Workload]
    compare: Callable[[], Sequence[ParityResult]]
    parts: frozenset[Part]
    rates: ErrorRates
    worth: WorthCatching
    max_foreign_cpu: float

    @property
    def measures_speed(self) -> bool:
        """Whether any load is made."""
        made = self.policy.performance is not None or bool(self.policy.lanes)
        return Part.SPEED in self.parts and made


@dataclass(slots=True)
class _Found:
    values: dict[str, list[float]] = field(default_factory=dict)
    cases: list[tuple[CaseResult, ...]] = field(default_factory=list)
    dropped: int = 0

    def keep(self, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.values.setdefault(name, []).append(value)


def calibrate(
    what: Calibrating, *, runs: int, progress: Progress, clock: Callable[[], datetime]
) -> GateCalibration:
    """Make `runs` runs and say where the bars stand.

    Args:
        what: is measured.
        runs: how many to make; disturbed ones are dropped and not made again.
        progress: told of each run.
        clock: aware UTC time.

    Raises:
        DidNotLoad, CouldNotServe: there is no server to measure.
        CouldNotJudge: too few runs count, or something was not answered.
    """
    found = _Found()
    for number in range(1, runs + 1):
        progress.phase("calibrate", f"run {number} of {runs}")
        _run(what, number, found, progress)
    bars = bars_of(what.policy, what.suite, what.workloads)
    known = evidence(found.values, bars, what.rates, what.worth)
    if not known:
        raise CouldNotJudge(
            f"{runs - found.dropped} of {runs} runs count, {LEAST_RUNS} are needed: others used "
            f"more than {what.max_foreign_cpu:.0%} of the processor time during the rest",
            hint="calibrate again when the machine is quiet, or with more --runs",
            reference="calibration-too-few-runs",
        )
    measured = {one.part for one in known.values()}
    basis = basis_of(what.policy, what.suite, what.workloads)
    return GateCalibration(
        engine=what.engine,
        at=clock(),
        rates=what.rates,
        worth=what.worth,
        runs=runs,
        dropped=found.dropped,
        basis={part: digest for part, digest in basis.items() if part in measured},
        bars=known,
        cases=_cases(found.cases) if found.cases else None,
    )


def _run(what: Calibrating, number: int, found: _Found, progress: Progress) -> None:
    if Part.QUALITY in what.parts or what.measures_speed:
        with what.starter.serve() as server:
            if Part.QUALITY in what.parts:
                _answers(what, number, server, found, progress)
            if what.measures_speed:
                _speed(what, number, server, found, progress)
    parity = what.policy.parity
    if Part.PARITY in what.parts and parity is not None:
        results = what.compare()
        for one in results:
            if one.outcome is Outcome.ERRORED and one.measures is None:
                raise _not_answered(what, number, f"parity with {one.parent.named}: {one.reason}")
        found.keep(values_of_parity(results, parity))


def _answers(
    what: Calibrating, number: int, server: Server, found: _Found, progress: Progress
) -> None:
    gone = _gone(server)
    silent = what.policy.model_copy(update={"performance": None, "lanes": None})
    asked = asyncio.run(
        ask_endpoint(
            server.endpoint, silent, what.suite, what.advice, {}, progress=progress, gone=gone
        )
    )
    again = asked.under_load.cases if asked.under_load is not None else ()
    for case in (*asked.cases, *again):
        if case.counts and case.outcome is Outcome.ERRORED:
            why = next((one.error for one in case.attempts if one.error), "not judged")
            raise _not_answered(what, number, f"case {case.id}: {why}")
    found.cases += [cases for cases in (asked.cases, again) if cases]
    found.keep(values_of_answers(asked, what.policy))


def _speed(
    what: Calibrating, number: int, server: Server, found: _Found, progress: Progress
) -> None:
    gone = _gone(server)

    async def load() -> Speed:
        endpoint = server.endpoint.as_in_production
        async with ChatClient(endpoint, timeout_s=what.policy.timeout_s) as client:
            return await measure_speed(
                client, what.policy, what.workloads, progress=progress, gone=gone
            )

    before = processor_time() if what.starter.is_ours else None
    speed = asyncio.run(load())
    foreign = foreign_share(before, processor_time()) if what.starter.is_ours else None
    if speed.why is not None:
        raise _not_answered(what, number, speed.why)
    _refuse_failures(what, number, speed)
    if foreign is not None and foreign > what.max_foreign_cpu:
        progress.note(f"run {number}: speed does not count: others used {foreign:.0%} of the time")
        found.dropped += 1
        return
    if (late := _late(what.policy, speed)) is not None:
        progress.note(f"run {number}: speed does not count: {late}")
        found.dropped += 1
        return
    found.keep(values_of_speed(speed))


def _gone(server: Server) -> Callable[[], str | None]:
    def gone() -> str | None:
        ended = server.ended()
        return None if ended is None else f"the server {ended.words}"

    return gone


def _refuse_failures(what: Calibrating, number: int, speed: Speed) -> None:
    failed: dict[str, int] = dict(speed.performance.failed) if speed.performance else {}
    for lane in speed.lanes:
        for step in lane.steps:
            failed |= {f"{kind} in lane {lane.name}": n for kind, n in step.failed.items()}
    if failed:
        kinds = ", ".join(f"{count} {kind}" for kind, count in failed.items())
        raise CouldNotJudge(
            f"run {number} of engine {what.engine.short}: requests failed: {kinds}",
            hint="calibrate with an engine that bears the load: `enginectl gate` says why not",
            reference="calibration-requests-failed",
        )


def _late(policy: GatePolicy, speed: Speed) -> str | None:
    lanes = policy.lanes or {}
    for lane in speed.lanes:
        for step in lane.steps:
            if (step.late_share or 0.0) > lanes[lane.name].max_late_share:
                return f"the client could not keep up with lane {lane.name}"
    return None


def _not_answered(what: Calibrating, number: int, why: str) -> CouldNotJudge:
    return CouldNotJudge(
        f"run {number} of engine {what.engine.short}: {why}",
        hint="`enginectl gate` says more of it; calibrate when the gate can judge",
        reference="calibration-not-answered",
    )


def _cases(runs: Sequence[Sequence[CaseResult]]) -> CasesEvidence:
    must = {case.id for cases in runs for case in cases if case.must and case.counts}
    wavering = {
        name: Unsteady(must=name in must, passed=passed, asked=asked)
        for name, (passed, asked) in unsteady(runs).items()
        if passed or name in must
    }
    ever_failed = any(
        case.id in must and case.outcome is Outcome.FAILED for cases in runs for case in cases
    )
    return CasesEvidence(
        cases=len({case.id for cases in runs for case in cases}),
        runs=len(runs),
        must=len(must),
        must_fail_at_most=None if ever_failed else round(1 - 0.05 ** (1 / len(runs)), 4),
        unsteady=wavering,
    )
