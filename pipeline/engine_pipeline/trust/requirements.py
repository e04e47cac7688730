"""Does a release have what a channel requires, as far as bytes, reports and signatures show?

Needs the registry and channels.yaml alone, so anybody can ask on any machine. Ages, soak and
approvals are judged when a channel moves and are in its log; they are not looked at here. Evidence
that something has overtaken, as another engine where there was none to compare with, counts no more
for a channel to be moved to, and still for the one that is live there by it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import CREATED, GATE, POLICY, SUITE, runtime_digest
from engine_pipeline.promote.evidence import read_evidence
from engine_pipeline.promote.findings import Finding, Wanted, counting_evidence, deciding_reports
from engine_pipeline.promote.gate_rule import failed_elsewhere, overtaken
from engine_pipeline.trust.rules import signed_findings
from engine_registry.digest import Digest
from engine_registry.errors import ExitCode, IntegrityError
from engine_registry.manifest import REPORT_ARTIFACT
from engine_registry.refs import ChannelRef
from engine_registry.store import Depth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from datetime import datetime

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
    channel: ChannelRef,
    policy: ChannelPolicy,
    policies: Policies,
    *,
    suite: Callable[[str], Digest | None],
    signatures: Signatures,
    now: datetime,
) -> tuple[Finding, ...]:
    """One finding for each gate and each signature that the channel's policy requires.

    Args:
        registry: where the evidence is.
        release: what is looked at.
        channel: that is asked about.
        policy: of the channel.
        policies: the bars of the gates.
        suite: the digest of a suite by name; None where golden prompts are not at hand, and then
            the suite that a report names is taken for granted.
        signatures: everything attached to the release's engine, judged.
        now: aware UTC.
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
    live_on = _live_on(
        registry, {str(channel), *(n for item in evidence for n in item.no_baseline)}
    )
    is_live = live_on.get(str(channel)) == engine

    def gate(name: str) -> Finding:
        counting = counting_evidence(name, wanted[name], evidence)
        report = next(iter(counting), None)
        stale = None
        if report is not None and report.outcome is Outcome.PASSED and not is_live:
            stale = overtaken(report, engine, live_on, now)
        if report is not None and (failed := failed_elsewhere(counting)) is not None:
            return _failed_elsewhere(name, release, failed)
        return _gate(name, release, report, suites[name], stale)

    gates = [gate(name) for name in policy.gates]
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


def _live_on(registry: Registry, channels: Iterable[str]) -> dict[str, Digest]:
    """The engines that are live on these channels now; channels without one are left out."""
    refs = [ChannelRef.parse(name) for name in sorted(channels) if name.count("/") == 2]
    lives = {str(ref): registry.channels.state(ref).live for ref in refs}
    return {name: live.engine for name, live in lives.items() if live is not None}


def _failed_elsewhere(name: str, release: Release, says: str) -> Finding:
    return Finding(
        rule="gates",
        holds=False,
        says=f"gate {name}: {says}",
        hint=f"run `enginectl gate {release.name} --gate {name}` there once it is mended",
    )


def _gate(
    name: str, release: Release, report: Evidence | None, suite: Digest | None, stale: str | None
) -> Finding:
    command = f"enginectl gate {release.name} --gate {name}"
    if report is None:
        return Finding(
            rule="gates",
            holds=False,
            says=f"gate {name}: no report under today's bars and suite, want a passed one",
            hint=f"run `{command}`",
        )
    if stale is not None:
        return Finding(
            rule="gates",
            holds=False,
            says=f"gate {name}: report {report.report.short} {stale}",
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
