"""The whole gate: bytes from the registry, a live server, a verdict, an attached report.

    1 check     every byte of the engine is there and right, or nothing is judged
    2 load      gate zero: a server gets ready with it
    3 golden    the suite's prompts, answers held to their checks
    4 speed     load at the policy's concurrency, if it asks for any
    5 report    the one write; before it, a crash leaves a directory that a later run sweeps

Trouble that is not the engine's still ends in a report, with outcome errored, so that the history
shows the attempt. An interrupted run attaches nothing.
"""

from __future__ import annotations

import asyncio
import platform
from contextlib import nullcontext
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.client import ChatClient
from engine_pipeline.gates.ending import CouldNotServe, DidNotLoad
from engine_pipeline.gates.golden import ask_suite
from engine_pipeline.gates.judge import judge_performance, judge_quality, tag_scores
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.outcome import Outcome, combine
from engine_pipeline.gates.performance import measure
from engine_pipeline.gates.policy import check_fits
from engine_pipeline.gates.reply import DEFINITIONS
from engine_pipeline.gates.report import Finding, LoadResult, Report, listing
from engine_pipeline.gates.scratch import scratch
from engine_pipeline.gates.server import serving
from engine_registry.documents import canonical_json
from engine_registry.errors import InvalidInput, NotFound
from engine_registry.manifest import REPORT_ARTIFACT

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from datetime import datetime
    from pathlib import Path

    from engine_pipeline.backends.port import Backend, ServeCommand
    from engine_pipeline.gates.policy import GatePolicy
    from engine_pipeline.gates.report import CaseResult, Device, PerformanceResult
    from engine_pipeline.gates.server import Server
    from engine_pipeline.gates.suite import Suite
    from engine_pipeline.progress import Progress
    from engine_registry.digest import Digest
    from engine_registry.registry import Registry

    Place = Callable[[ServeCommand], AbstractContextManager[ServeCommand]]

REPORT_JSON = "report.json"
REPORT_MARKDOWN = "report.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Examined:
    """What one examination found; no cases if there was nothing to ask."""

    load: LoadResult
    findings: tuple[Finding, ...]
    cases: tuple[CaseResult, ...] = ()
    performance: PerformanceResult | None = None


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
) -> tuple[Report, Digest]:
    """Judge an engine and attach the report to it; the report and its referrer's digest.

    Whatever the outcome, the report is returned: `outcome.exit_code` says what it means for a
    process.

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

    Raises:
        InvalidInput: the policy does not fit the suite, or the runtime configuration is wrong.
        NotFound: no such engine, or some of its bytes are missing.
        IntegrityError: some of its bytes are wrong.
        Unavailable: the registry cannot be read or written.
    """
    check_fits(policy, suite)
    started_at = clock()
    with scratch(workdir) as directory:
        progress.phase("check", f"engine {engine.short}")
        engine_dir = directory / "engine"
        registry.engines.materialise(engine, engine_dir)
        examined = _examine(
            backend,
            engine_dir,
            runtime_config,
            device.runtime,
            directory / "server.log",
            policy,
            suite,
            progress,
            place,
        )
    progress.phase("report")
    report = Report(
        engine=engine,
        gate=gate,
        suite_name=suite.name,
        suite=suite.digest,
        policy=policy,
        policy_digest=policy.digest,
        device=device,
        started_at=started_at,
        finished_at=clock(),
        outcome=combine(finding.outcome for finding in examined.findings),
        load=examined.load,
        findings=examined.findings,
        cases=examined.cases,
        tags=tag_scores(examined.cases, policy.quality),
        performance=examined.performance,
        definitions=DEFINITIONS,
        client=_versions(),
    )
    return report, attach(registry, report)


def attach(registry: Registry, report: Report) -> Digest:
    """Attach a report to its engine, as JSON and as Markdown; the referrer's digest."""
    return registry.engines.attach(
        report.engine,
        REPORT_ARTIFACT,
        [
            (REPORT_JSON, canonical_json(report), "application/json"),
            (REPORT_MARKDOWN, to_markdown(report).encode(), "text/markdown"),
        ],
        listing(report),
    )


def _examine(
    backend: Backend,
    engine_dir: Path,
    runtime_config: dict[str, Any],
    runtime: dict[str, str],
    log_path: Path,
    policy: GatePolicy,
    suite: Suite,
    progress: Progress,
    place: Place,
) -> _Examined:
    progress.phase("load")
    try:
        facts = backend.inspect(engine_dir)
    except (InvalidInput, NotFound) as error:
        return _not_loaded(Outcome.FAILED, error.message)
    # The runtime that the engine was recorded with, not whichever is supported today.
    recorded = facts.model_copy(update={"runtime": facts.runtime | runtime})
    command = backend.serve(recorded, runtime_config)
    try:
        with (
            place(command) as placed,
            serving(
                placed,
                engine_dir,
                progress=progress,
                log_path=log_path,
                timeout_s=policy.load_timeout_s,
            ) as server,
        ):
            return asyncio.run(_ask(server, policy, suite, progress))
    except DidNotLoad as error:
        return _not_loaded(Outcome.FAILED, error.message, error.log)
    except CouldNotServe as error:
        return _not_loaded(Outcome.ERRORED, error.message, error.log)


def _not_loaded(outcome: Outcome, reason: str, log: tuple[str, ...] = ()) -> _Examined:
    skipped = "not examined: the engine is not loaded"
    return _Examined(
        load=LoadResult(outcome=outcome, reason=reason[:2000], log=log),
        findings=(
            Finding(name="load", outcome=outcome, reason=reason[:2000]),
            Finding(name="quality", outcome=Outcome.SKIPPED, reason=skipped),
            Finding(name="performance", outcome=Outcome.SKIPPED, reason=skipped),
        ),
    )


async def _ask(server: Server, policy: GatePolicy, suite: Suite, progress: Progress) -> _Examined:

    def gone() -> str | None:
        ended = server.ended()
        return None if ended is None else f"the server {ended.words}"

    progress.phase("golden", f"suite {suite.name}, {len(suite.cases)} cases")
    performance: PerformanceResult | None = None
    async with ChatClient(server.endpoint, timeout_s=policy.timeout_s) as client:
        cases = await ask_suite(
            client, suite, concurrency=policy.concurrency, progress=progress, gone=gone
        )
        if policy.performance is None:
            speed: tuple[Finding, ...] = _no_speed("the policy asks for none")
        elif (how := gone()) is not None:
            speed = _no_speed(f"not measured: {how}")
        else:
            progress.phase("speed", f"{policy.performance.requests} requests")
            performance = await measure(client, policy.performance, progress=progress, gone=gone)
            speed = judge_performance(performance, policy.performance)
            if (how := gone()) is not None:
                speed = _no_speed(f"not judged: {how}")
    load = _load(server)
    return _Examined(
        load=load,
        findings=(
            Finding(name="load", outcome=load.outcome, reason=load.reason),
            *judge_quality(cases, policy.quality),
            *speed,
        ),
        cases=cases,
        performance=performance,
    )


def _load(server: Server) -> LoadResult:
    ending = server.ended()
    ready = f"ready in {server.load_s:.1f} s"
    if ending is None:
        return LoadResult(
            outcome=Outcome.PASSED, reason=f"{ready}, up to the end", load_s=round(server.load_s, 3)
        )
    return LoadResult(
        outcome=Outcome.FAILED if ending.by_itself else Outcome.ERRORED,
        reason=f"{ready}, but the server {ending.words} while it was asked",
        load_s=round(server.load_s, 3),
        log=server.log(),
    )


def _no_speed(why: str) -> tuple[Finding, ...]:
    return (Finding(name="performance", outcome=Outcome.SKIPPED, reason=why),)


def _versions() -> dict[str, str]:
    return {
        "engine-ci": _version("engine-ci"),
        "aiohttp": _version("aiohttp"),
        "python": platform.python_version(),
    }


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
