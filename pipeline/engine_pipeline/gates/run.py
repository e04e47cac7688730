"""The whole gate: bytes from the registry, a live server, a verdict, an attached report.

    1 check     every byte of the engine is there and right, or nothing is judged
    2 load      gate zero: a server gets ready with it, and its log probabilities are numbers
    3 golden    what chat template and tokenizer make of chats, if the suite says; then the suite's
                prompts, answers held to their checks; once more under load, if the policy says so
    4 speed     load at the policy's concurrency and in its lanes, if it asks for any
    5 parity    its greedy answers against those of its parents, if the policy names any
    6 paired    the same load on this engine and on the live one in turn, if the policy asks for it
    7 report    the one write; before it, a crash leaves a directory that a later run sweeps

Trouble that is not the engine's still ends in a report, with outcome errored, so that the history
shows the attempt. An interrupted run attaches nothing.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.advising import Advice
from engine_pipeline.gates.examine import Examined, examine_engine
from engine_pipeline.gates.judge import tag_scores
from engine_pipeline.gates.judged_on import check_machine
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.outcome import Outcome, combine
from engine_pipeline.gates.paired_gate import compare_with_live, finding_of
from engine_pipeline.gates.paired_result import Baseline
from engine_pipeline.gates.parity_gate import compare_with_parents, parity_findings
from engine_pipeline.gates.policy import check_fits
from engine_pipeline.gates.prefix import measure_prefixes
from engine_pipeline.gates.python_check import resolve_checks
from engine_pipeline.gates.reply import DEFINITIONS
from engine_pipeline.gates.report import Report, listing, runtime_digest
from engine_pipeline.gates.scratch import scratch
from engine_pipeline.gates.starter import Starter
from engine_pipeline.gates.versions import client_versions
from engine_registry.documents import canonical_json
from engine_registry.manifest import REPORT_ARTIFACT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager
    from datetime import date, datetime
    from pathlib import Path

    from engine_pipeline.backends.port import Backend, ServeCommand
    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.embedder import EmbeddingPlace
    from engine_pipeline.gates.paired_gate import Opponent
    from engine_pipeline.gates.parity_parent import NoParent, ParentEngine
    from engine_pipeline.gates.policy import GatePolicy
    from engine_pipeline.gates.report import Device
    from engine_pipeline.gates.suite import Suite
    from engine_pipeline.progress import Progress
    from engine_pipeline.workload.model import Workload
    from engine_registry.digest import Digest
    from engine_registry.registry import Registry

    Place = Callable[[ServeCommand], AbstractContextManager[ServeCommand]]

REPORT_JSON = "report.json"
REPORT_MARKDOWN = "report.md"


def run_gate(
    *,
    registry: Registry,
    engine: Digest,
    gate: str,
    policy: GatePolicy,
    suite: Suite,
    backend: Backend,
    runtime_config: dict[str, Any],
    device: Device,
    progress: Progress,
    clock: Callable[[], datetime],
    workdir: Path,
    place: Place = nullcontext,
    opponent: Opponent | Baseline | None = None,
    parents: Sequence[ParentEngine | NoParent] = (),
    workloads: Mapping[str, Workload] = MappingProxyType({}),
    judge: Endpoint | None = None,
    embeddings: EmbeddingPlace | None = None,
) -> tuple[Report, Digest]:
    """Judge an engine and attach the report to it; the report and its referrer's digest.

    Returned whatever the outcome is; `outcome.exit_code` says what it means for a process.

    Args:
        registry: where the engine is, and where the report goes.
        engine: its manifest digest.
        gate: the gate's name in `channels.yaml`.
        policy: the gate's bars.
        suite: the suite that the policy names.
        backend: of the engine's kind.
        runtime_config: what the server is started with; see `Backend.serve`.
        device: what it runs on, for the report.
        progress: told of each phase.
        clock: aware UTC time.
        workdir: where the engine's files are laid out; on the registry's file system they are
            linked, not copied.
        place: turns the backend's command into the one that is started on this machine, for as
            long as its block lasts; a server in a container is a command that holds it.
        opponent: the live engine, or a baseline that says why there is none; looked at only if the
            policy has `paired`.
        parents: whose answers it is compared with; looked at only if the policy has `parity`.
        workloads: of the lanes whose workload is in a file, by lane.
        judge: where the policy's judge is; without it what it should decide is errored.
        embeddings: where the policy's come from; the same.

    Raises:
        InvalidInput: the policy does not fit the suite, or the runtime configuration is wrong.
        Incompatible: the policy is judged on other machines than `device`.
        NotFound, IntegrityError: no such engine, or some of its bytes are missing or wrong.
        Unavailable: the registry cannot be read or written.
    """
    check_fits(policy, suite)
    check_machine(policy.judged_on, device)
    started_at = clock()
    code = resolve_checks(suite)
    advice = Advice(today=started_at.date(), judge=judge, embeddings=embeddings, code=code)
    with scratch(workdir) as directory:
        progress.phase("check", f"engine {engine.short}")
        registry.engines.materialise(engine, directory / "engine")
        candidate = Starter(
            backend=backend,
            engine_dir=directory / "engine",
            runtime_config=runtime_config,
            runtime=device.runtime,
            log_path=directory / "server.log",
            progress=progress,
            timeout_s=policy.load_timeout_s,
            place=place,
        )
        examined = examine_engine(candidate, policy, suite, advice, workloads, progress)
        examined = _compared(
            examined, candidate, parents, opponent, registry, policy, suite, device, advice.today
        )
    progress.phase("report")
    examined = replace(examined, check_code=tuple(code.values()))
    report = _report(
        examined, engine, gate, policy, suite, device, started_at, clock(), runtime_config
    )
    return report, attach(registry, report)


def _compared(
    examined: Examined,
    candidate: Starter,
    parents: Sequence[ParentEngine | NoParent],
    opponent: Opponent | Baseline | None,
    registry: Registry,
    policy: GatePolicy,
    suite: Suite,
    device: Device,
    today: date,
) -> Examined:
    """What was examined, and what comparing with parents and with the live engine added to it."""
    directory = candidate.log_path.parent
    parity = compare_with_parents(
        registry=registry,
        candidate=candidate,
        parents=parents,
        policy=policy,
        suite=suite,
        device=device,
        today=today,
        loads=examined.load.outcome is Outcome.PASSED,
        progress=candidate.progress,
        directory=directory,
    )
    findings = (*examined.findings, *parity_findings(parity))
    paired = compare_with_live(
        registry=registry,
        candidate=candidate,
        opponent=opponent or Baseline(named="nobody", engine=None),
        policy=policy,
        so_far=findings,
        progress=candidate.progress,
        directory=directory,
    )
    return replace(
        examined, findings=(*findings, *finding_of(paired)), parity=parity, paired=paired
    )


def _report(
    examined: Examined,
    engine: Digest,
    gate: str,
    policy: GatePolicy,
    suite: Suite,
    device: Device,
    started_at: datetime,
    finished_at: datetime,
    runtime_config: dict[str, Any],
) -> Report:
    return Report(
        engine=engine,
        gate=gate,
        suite_name=suite.name,
        suite=suite.digest,
        policy=policy,
        policy_digest=policy.digest,
        device=device,
        started_at=started_at,
        finished_at=finished_at,
        outcome=combine(finding.outcome for finding in examined.findings),
        load=examined.load,
        findings=examined.findings,
        cases=examined.cases,
        tags=tag_scores(examined.cases, policy.quality),
        under_load=examined.under_load,
        performance=examined.performance,
        lanes=examined.lanes,
        template=examined.template,
        parity=examined.parity,
        paired=examined.paired,
        prefixes=measure_prefixes(suite.prefixes, suite.cases),
        judge=examined.judge,
        embeddings=examined.embeddings,
        check_code=examined.check_code,
        definitions=DEFINITIONS,
        client=client_versions(),
        runtime_config=runtime_digest(runtime_config),
    )


def attach(registry: Registry, report: Report) -> Digest:
    """Attach a report to its engine, as JSON and as Markdown; the referrer's digest."""
    return registry.engines.attach(
        report.judged_engine,
        REPORT_ARTIFACT,
        [
            (REPORT_JSON, canonical_json(report), "application/json"),
            (REPORT_MARKDOWN, to_markdown(report).encode(), "text/markdown"),
        ],
        listing(report),
    )
