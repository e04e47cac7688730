"""Is what a channel wants signed signed by whoever may? Pure; every finding names both sides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.promote.findings import Finding
from engine_pipeline.trust.policy import Role
from engine_pipeline.trust.standing import Standing
from engine_registry.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine_pipeline.trust.standing import Seen, Signatures
    from engine_registry.digest import Digest
    from engine_registry.record import Release

# What a refusal speaks of if several signatures do not count: the most alarming first.
_ALARM = (Standing.BAD, Standing.REVOKED, Standing.WITHOUT_ROLE, Standing.UNTRUSTED)


def signed_findings(
    roles: Sequence[Role],
    release: Release,
    reports: Mapping[str, Sequence[Digest]],
    signatures: Signatures,
) -> tuple[Finding, ...]:
    """One finding for the build, one for each report, one for the release, as far as wanted.

    Args:
        roles: what the channel wants signed.
        release: the one in question.
        reports: gate → the attached reports that count; a gate without one is another rule's.
        signatures: everything attached to the release's engine.
    """
    engine, name = release.content.engine, release.name
    findings = []
    for role in roles:
        match role:
            case Role.BUILD:
                what = f"build of engine {engine.short}"
                findings.append(_signed(role, what, engine, name, signatures))
            case Role.GATE:
                findings += [
                    _signed(role, f"report {report.short} of gate {gate}", report, name, signatures)
                    for gate, counting in reports.items()
                    for report in counting
                ]
            case Role.RELEASE:
                what = f"release {name}"
                findings.append(_signed(role, what, release.digest, name, signatures))
    return tuple(findings)


def good_signatures(
    roles: Sequence[Role], release: Release, reports: Sequence[Digest], signatures: Signatures
) -> tuple[Digest, ...]:
    """The attached envelopes that satisfy `signed_findings`, for the event log."""
    about = {release.content.engine, release.digest, *reports}
    return tuple(
        seen.envelope
        for seen in signatures.seen
        if seen.standing is Standing.GOOD
        and seen.claim is not None
        and seen.claim.role in roles
        and seen.claim.about in about
    )


def _signed(role: Role, what: str, about: Digest, release: str, signatures: Signatures) -> Finding:
    matching = [
        s for s in signatures.seen if s.claim and (s.claim.role, s.claim.about) == (role, about)
    ]
    good = sorted({seen.signer for seen in matching if seen.standing is Standing.GOOD})
    may = ", ".join(signatures.signers.get(role, ()))
    if good:
        # All who might sign now may be revoked since, and this one be good still.
        says = f"{what}: signed by {', '.join(good)}" + (f"; may be signed by {may}" if may else "")
        return Finding(rule="signed", holds=True, says=says)
    # What was changed may claim to be about anything, so everything bad is suspect.
    suspects = [*matching, *(s for s in signatures.seen if s.standing is Standing.BAD)]
    worst = min(suspects, key=lambda seen: _ALARM.index(seen.standing), default=None)
    found = worst.says if worst else "not signed"
    return Finding(
        rule="signed",
        holds=False,
        says=f"{what}: {found}; may be signed by {may or 'nobody'}",
        hint=_hint(worst, release),
        exit_code=ExitCode.INTEGRITY
        if worst and worst.standing is Standing.BAD
        else ExitCode.POLICY,
    )


def _hint(worst: Seen | None, release: str) -> str:
    again = f"`enginectl sign {release} --key FILE` (or --keyless in CI)"
    if worst is None:
        return f"{again} as somebody who may"
    match worst.standing:
        case Standing.BAD:
            return f"find out who changed envelope {worst.envelope.short}; then {again}"
        case Standing.REVOKED:
            return (
                f"{again} as somebody else, once you know it to be good, or list "
                f"{worst.envelope} under still_good of {worst.signer}"
            )
        case Standing.WITHOUT_ROLE | Standing.UNTRUSTED:
            return f"{again} as somebody who may, or change `trust:` in channels.yaml"
        case Standing.GOOD:
            return again
