"""What is asked of any endpoint: golden chats, golden prompts, load; and of an engine's server.

The endpoint may be a server that a gate started, or one that somebody else runs.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine_pipeline.gates.advising import advisers_of
from engine_pipeline.gates.client import ChatClient
from engine_pipeline.gates.ending import CouldNotServe, DidNotLoad
from engine_pipeline.gates.first_words import look_at_first_words
from engine_pipeline.gates.gate_zero import judge_degenerate, loaded, not_ready
from engine_pipeline.gates.golden import ask_suite
from engine_pipeline.gates.judge import judge_quality, judge_under_load
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import Finding
from engine_pipeline.gates.server import log_lines
from engine_pipeline.gates.speed_gate import measure_speed, with_overhead
from engine_pipeline.gates.template_ask import guard_template, template_findings
from engine_pipeline.gates.under_load import ask_under_load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine_pipeline.backends.port import Words
    from engine_pipeline.gates.advising import Advice
    from engine_pipeline.gates.check_code import CheckCode
    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.consult import Advisers
    from engine_pipeline.gates.embedding_model import EmbeddingsUsed
    from engine_pipeline.gates.judge_model import JudgeUsed
    from engine_pipeline.gates.lane_result import LaneResult
    from engine_pipeline.gates.paired_result import PairedResult
    from engine_pipeline.gates.parity_result import ParityResult
    from engine_pipeline.gates.policy import GatePolicy
    from engine_pipeline.gates.report import CaseResult, LoadResult, PerformanceResult
    from engine_pipeline.gates.server import Server
    from engine_pipeline.gates.speed_gate import Speed
    from engine_pipeline.gates.starter import Starter
    from engine_pipeline.gates.suite import Suite
    from engine_pipeline.gates.template import TemplateResult
    from engine_pipeline.gates.under_load_result import UnderLoadResult
    from engine_pipeline.progress import Progress
    from engine_pipeline.workload.model import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What an endpoint answered, and how it bore the load; `logprobs` is of its first words."""

    logprobs: Finding
    template: TemplateResult | None
    cases: tuple[CaseResult, ...]
    under_load: UnderLoadResult | None
    speed: Speed
    judge: JudgeUsed | None
    embeddings: EmbeddingsUsed | None

    def findings(self, policy: GatePolicy) -> tuple[Finding, ...]:
        """Of chats and prompts; those of speed wait for the client's own overhead.

        What is no answer at all comes first: no score makes up for it.
        """
        again = self.under_load
        return (
            self.logprobs,
            *judge_degenerate(self.cases, again.cases if again else ()),
            *template_findings(self.template),
            *judge_quality(self.cases, policy.quality),
            *(judge_under_load(again, self.cases, policy) if again else ()),
        )


@dataclass(frozen=True, slots=True)
class _Golden:
    """What was answered to a suite, and who helped to judge it."""

    cases: tuple[CaseResult, ...]
    under_load: UnderLoadResult | None
    advisers: Advisers


async def ask_endpoint(
    endpoint: Endpoint,
    policy: GatePolicy,
    suite: Suite,
    advice: Advice,
    workloads: Mapping[str, Workload],
    *,
    progress: Progress,
    gone: Callable[[], str | None],
) -> Asked:
    """Ask and measure everything that the policy wants of one endpoint.

    Args:
        endpoint: of a server that is ready.
        policy: the gate's.
        suite: the one that the policy names.
        advice: who else is asked.
        workloads: of the lanes whose workload is in a file, by lane.
        progress: told of each phase.
        gone: says why there is no server any more.
    """
    timeout_s = policy.timeout_s
    logprobs = await look_at_first_words(endpoint, suite, timeout_s=timeout_s)
    template = await guard_template(endpoint, suite.template, timeout_s=timeout_s)
    golden = await _ask_golden(endpoint, policy, suite, advice, progress, gone)
    async with ChatClient(endpoint.as_in_production, timeout_s=timeout_s) as client:
        speed = await measure_speed(client, policy, workloads, progress=progress, gone=gone)
    return Asked(
        logprobs=logprobs,
        template=template,
        cases=golden.cases,
        under_load=golden.under_load,
        speed=speed,
        judge=golden.advisers.judge_used(),
        embeddings=golden.advisers.embeddings_used(),
    )


async def _ask_golden(
    endpoint: Endpoint,
    policy: GatePolicy,
    suite: Suite,
    advice: Advice,
    progress: Progress,
    gone: Callable[[], str | None],
) -> _Golden:
    # Advisers are gone again before speed is measured: an embedding model may run on this machine.
    async with (
        ChatClient(endpoint, timeout_s=policy.timeout_s) as client,
        advisers_of(advice, policy.judge, policy.embeddings) as advisers,
    ):
        progress.phase("golden", f"suite {suite.name}, {len(suite.cases)} cases")
        cases = await ask_suite(
            client,
            suite,
            concurrency=policy.concurrency,
            progress=progress,
            gone=gone,
            advisers=advisers,
            today=advice.today,
        )
        if (bars := policy.under_load) is None:
            return _Golden(cases, None, advisers)
        progress.phase("golden", f"the same with {bars.concurrency} in flight")
        under_load = await ask_under_load(
            client,
            suite,
            bars,
            cases,
            concurrency_before=policy.concurrency,
            progress=progress,
            gone=gone,
            advisers=advisers,
            today=advice.today,
        )
    return _Golden(cases, under_load, advisers)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """What the examination of an engine found; no cases if there was nothing to ask."""

    load: LoadResult
    findings: tuple[Finding, ...]
    cases: tuple[CaseResult, ...] = ()
    under_load: UnderLoadResult | None = None
    performance: PerformanceResult | None = None
    lanes: tuple[LaneResult, ...] = ()
    template: TemplateResult | None = None
    parity: tuple[ParityResult, ...] = ()
    paired: PairedResult | None = None
    judge: JudgeUsed | None = None
    embeddings: EmbeddingsUsed | None = None
    check_code: tuple[CheckCode, ...] = ()


def examine_engine(
    candidate: Starter,
    policy: GatePolicy,
    suite: Suite,
    advice: Advice,
    workloads: Mapping[str, Workload],
    progress: Progress,
) -> Examined:
    """Serve an engine and ask its server everything that the policy wants of one server.

    Args:
        candidate: how it is started.
        policy: the gate's.
        suite: the one that the policy names.
        advice: who else is asked.
        workloads: of the lanes whose workload is in a file, by lane.
        progress: told of each phase.
    """
    progress.phase("load")
    words = candidate.backend.words
    try:
        with candidate.serve() as server:
            examined, speed = asyncio.run(
                _ask(server, policy, suite, advice, workloads, progress, words)
            )
    except (DidNotLoad, CouldNotServe) as error:
        return _not_loaded(not_ready(error, words, log_lines(candidate.log_path)))
    speed = with_overhead(speed, progress, candidate.log_path.parent)
    findings = (*examined.findings, *speed.findings(policy))
    return replace(examined, findings=findings, performance=speed.performance, lanes=speed.lanes)


def _not_loaded(load: LoadResult) -> Examined:
    skipped = "not examined: the engine is not loaded"
    return Examined(
        load=load,
        findings=(
            Finding(name="load", outcome=load.outcome, reason=load.reason),
            Finding(name="quality", outcome=Outcome.SKIPPED, reason=skipped),
            Finding(name="performance", outcome=Outcome.SKIPPED, reason=skipped),
        ),
    )


async def _ask(
    server: Server,
    policy: GatePolicy,
    suite: Suite,
    advice: Advice,
    workloads: Mapping[str, Workload],
    progress: Progress,
    words: Words,
) -> tuple[Examined, Speed]:
    # Before it is asked: what it says of requests is not about loading.
    warnings = words.load_warnings(server.said())

    def gone() -> str | None:
        ended = server.ended()
        return None if ended is None else f"the server {ended.words}"

    asked = await ask_endpoint(
        server.endpoint, policy, suite, advice, workloads, progress=progress, gone=gone
    )
    load = loaded(server, warnings)
    examined = Examined(
        load=load,
        findings=(
            Finding(name="load", outcome=load.outcome, reason=load.reason),
            *asked.findings(policy),
        ),
        cases=asked.cases,
        under_load=asked.under_load,
        template=asked.template,
        judge=asked.judge,
        embeddings=asked.embeddings,
    )
    return examined, asked.speed
