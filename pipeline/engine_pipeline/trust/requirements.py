"""Does a release have what a channel requires, as far as bytes, reports and signatures show?

Needs the registry and channels.yaml alone, so anybody can ask on any machine. Ages, soak and
approvals are judged when a channel moves and are in its log; they are not looked at here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import CREATED, GATE, POLICY, SUITE, runtime_digest
from engine_pipeline.promote.evidence import read_evidence
from engine_pipeline.promote.findings import Finding, Wanted, deciding_reports
from engine_pipeline.trust.rules import signed_findings
from engine_registry.digest import Digest
from engine_registry.errors import ExitCode, IntegrityError
from engine_registry.manifest import REPORT_ARTIFACT
from engine_registry.store import Depth

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from engine_pipeline.promote.findings import Evidence
    from engine_pipeline.promote.policy import ChannelPolicy, Policies
    from engine_pipeline.trust.standing import Signatures
    from engine_registry.record import Release
    from engine_registry.registry import Registry


def bytes_finding(registry: Registry, engine: Digest) -> Finding:
    """Is every byte of the engine what its digest says? Hashes all of them.

    Raises:
        NotFound: some are missing.
    """
    try:
        stored = registry.engines.check_engine(engine, Depth.FULL)
    except IntegrityError as error:
        return Finding(
            rule="bytes",
            holds=False,
            says=error.message,
            hint=error.hint,
            exit_code=ExitCode.INTEGRITY,
        )
    count = len(stored.manifest.layers)
    says = f"engine {engine.short}: {count} files, {stored.size_bytes:,} bytes match their digests"
    return Finding(rule="bytes", holds=True, says=says)


def requirement_findings(
    registry: Registry,
    release: Release,
    policy: ChannelPolicy,
    policies: Policies,
    *,
    suite: Callable[[str], Digest | None],
    signatures: Signatures,
) -> tuple[Finding, ...]:
    """One finding for each gate and each signature that the channel's policy requires.

    Args:
        registry: where the evidence is.
        release: what is looked at.
        policy: of the channel.
        policies: the bars of the gates.
        suite: the digest of a suite by name; None where golden prompts are not at hand, and then
            the suite that a report names is taken for granted.
        signatures: everything attached to the release's engine, judged.
    """
    engine = release.content.engine
    suites = {name: suite(policies.gate(name).suite) for name in policy.gates}
    wanted = {
        name: _wanted(registry, engine, name, policies.gate(name).digest, suites[name])
        for name in policy.gates
    }
    runtime = runtime_digest(release.content.runtime_config)
    wanted = {name: replace(want, runtime=runtime) for name, want in wanted.items()}
    evidence = read_evidence(registry, engine, wanted)
    reports = deciding_reports(policy.gates, wanted, evidence)
    by_digest = {item.report: item for item in evidence}
    gates = [
        _gate(name, release, by_digest.get(reports.get(name, engine)), suites[name])
        for name in policy.gates
    ]
    return (*gates, *signed_findings(policy.signed, release, reports, signatures))


def _wanted(
    registry: Registry, engine: Digest, gate: str, policy: Digest, suite: Digest | None
) -> Wanted:
    if suite is not None:
        return Wanted(policy=policy, suite=suite)
    same = [
        link.annotations
        for link in registry.engines.referrers(engine, REPORT_ARTIFACT)
        if (link.annotations.get(GATE), link.annotations.get(POLICY)) == (gate, str(policy))
    ]
    newest: Mapping[str, str] = max(same, key=lambda notes: notes.get(CREATED, ""), default={})
    # A report that names no suite fits none: the digest of nothing is nobody's.
    named = newest.get(SUITE)
    return Wanted(policy=policy, suite=Digest.parse(named) if named else Digest.of(b""))


def _gate(name: str, release: Release, report: Evidence | None, suite: Digest | None) -> Finding:
    command = f"enginectl gate {release.name} --gate {name}"
    if report is None:
        return Finding(
            rule="gates",
            holds=False,
            says=f"gate {name}: no report under today's bars and suite, want a passed one",
            hint=f"run `{command}`",
        )
    unsure = "" if suite else "; its golden prompts are not here to be compared"
    return Finding(
        rule="gates",
        holds=report.outcome is Outcome.PASSED,
        says=f"gate {name}: report {report.report.short} of {report.at:%Y-%m-%d} "
        f"{report.outcome}, want passed{unsure}",
        hint=f"run `{command} --again`",
    )
