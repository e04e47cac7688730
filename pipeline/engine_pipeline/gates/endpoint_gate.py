"""A gate on an endpoint that somebody else runs: asked and measured as it is, never attached.

Nothing proves which engine such an endpoint serves, so its report is evidence for no release.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from engine_pipeline.gates.advising import Advice
from engine_pipeline.gates.dialect_probe import find_manners
from engine_pipeline.gates.examine import ask_endpoint
from engine_pipeline.gates.judge import tag_scores
from engine_pipeline.gates.outcome import Outcome, combine
from engine_pipeline.gates.policy import check_fits
from engine_pipeline.gates.prefix import measure_prefixes
from engine_pipeline.gates.python_check import resolve_checks
from engine_pipeline.gates.reply import DEFINITIONS
from engine_pipeline.gates.report import Finding, LoadResult, Report
from engine_pipeline.gates.scratch import scratch
from engine_pipeline.gates.served_by import SAMPLING, ServedBy, sampling_finding, served_by
from engine_pipeline.gates.speed_gate import with_overhead
from engine_pipeline.gates.versions import client_versions
from engine_pipeline.redact import masked_in, redact

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.embedder import EmbeddingPlace
    from engine_pipeline.gates.policy import GatePolicy
    from engine_pipeline.gates.suite import Suite
    from engine_pipeline.progress import Progress
    from engine_pipeline.workload.model import Workload

_ALONE = "an endpoint is judged alone: nothing says which engine it serves"
_ANSWERS = LoadResult(outcome=Outcome.PASSED, reason="it answers; somebody else runs it")


def judge_endpoint(
    *,
    endpoint: Endpoint,
    gate: str,
    policy: GatePolicy,
    suite: Suite,
    progress: Progress,
    clock: Callable[[], datetime],
    workdir: Path,
    workloads: Mapping[str, Workload] = MappingProxyType({}),
    judge: Endpoint | None = None,
    embeddings: EmbeddingPlace | None = None,
) -> Report:
    """The report on a running endpoint, under the bars of a gate.

    Args:
        endpoint: where it is; its key is in no part of the report.
        gate: what the report calls the gate.
        policy: the bars; parity and the comparison with live are skipped, and said to be.
        suite: the suite that the policy names.
        progress: told of each phase.
        clock: aware UTC time.
        workdir: for the log of the client's self-test.
        workloads: of the lanes whose workload is in a file, by lane.
        judge: where that of the policy is.
        embeddings: where those of the policy come from.

    Raises:
        InvalidInput: the policy does not fit the suite, or the endpoint is not of this API.
        Unavailable: it does not answer.
    """
    check_fits(policy, suite)
    code = resolve_checks(suite)
    started_at = clock()
    progress.phase("endpoint", redact(endpoint.base_url))
    manners = asyncio.run(find_manners(endpoint, suite.sampling, timeout_s=policy.timeout_s))
    spoken = replace(endpoint, dialect=manners.dialect)
    advice = Advice(today=started_at.date(), judge=judge, embeddings=embeddings, code=code)
    asked = asyncio.run(
        ask_endpoint(spoken, policy, suite, advice, workloads, progress=progress, gone=lambda: None)
    )
    with scratch(workdir) as directory:
        speed = with_overhead(asked.speed, progress, directory)
    served = served_by(endpoint, manners)
    findings = (
        Finding(name="load", outcome=_ANSWERS.outcome, reason=_ANSWERS.reason),
        *_of_sampling(served, suite),
        *asked.findings(policy),
        *speed.findings(policy),
        *_not_compared(policy),
    )
    report = Report(
        engine=None,
        endpoint=served,
        gate=gate,
        suite_name=suite.name,
        suite=suite.digest,
        policy=policy,
        policy_digest=policy.digest,
        device=None,
        started_at=started_at,
        finished_at=clock(),
        outcome=combine(finding.outcome for finding in findings),
        load=_ANSWERS,
        findings=findings,
        cases=asked.cases,
        tags=tag_scores(asked.cases, policy.quality),
        under_load=asked.under_load,
        performance=speed.performance,
        lanes=speed.lanes,
        template=asked.template,
        prefixes=measure_prefixes(suite.prefixes, suite.cases),
        judge=asked.judge,
        embeddings=asked.embeddings,
        check_code=tuple(code.values()),
        definitions=DEFINITIONS,
        client=client_versions(),
    )
    return _without(endpoint.api_key, report)


def _of_sampling(served: ServedBy, suite: Suite) -> tuple[Finding, ...]:
    found = sampling_finding(served, suite)
    return () if found is None else (Finding(name=SAMPLING, outcome=found[0], reason=found[1]),)


def _not_compared(policy: GatePolicy) -> tuple[Finding, ...]:
    asked = (("parity", policy.parity), ("against live", policy.paired))
    return tuple(
        Finding(name=name, outcome=Outcome.SKIPPED, reason=_ALONE)
        for name, bars in asked
        if bars is not None
    )


def _without(key: str | None, report: Report) -> Report:
    """The report without the key, wherever the endpoint may have repeated it."""
    plain = masked_in(report.model_dump(mode="json", by_alias=True), key)
    return Report.model_validate_json(json.dumps(plain))
