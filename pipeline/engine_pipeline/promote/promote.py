"""Make a release live on a channel, if the channel's policy says yes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine_pipeline.gates.report import runtime_digest
from engine_pipeline.promote.evidence import read_evidence
from engine_pipeline.promote.findings import Candidate
from engine_pipeline.promote.moves import Moved, check_overrides, commit, current, refuse
from engine_pipeline.promote.nodes import fit_of_nodes
from engine_pipeline.promote.rules import decide_promotion
from engine_pipeline.trust.rules import good_signatures
from engine_pipeline.trust.standing import NOT_LOOKED_FOR
from engine_registry.events import Live, Promoted
from engine_registry.refs import ChannelRef
from engine_registry.store import Depth

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine_pipeline.promote.findings import Decision, Wanted
    from engine_pipeline.promote.moves import Desk
    from engine_pipeline.promote.policy import ChannelPolicy
    from engine_registry.digest import Digest
    from engine_registry.events import ChannelState
    from engine_registry.record import Release


def promote(
    desk: Desk,
    release: Release,
    channel: ChannelRef,
    *,
    policy: ChannelPolicy,
    wanted: Mapping[str, Wanted],
    reason: str | None = None,
    overrides: tuple[str, ...] = (),
) -> Moved:
    """Move `channel` to `release`; a release that is live already is left alone (event None).

    Args:
        desk: registry, actor, clock.
        release: what to promote.
        channel: where to; must be of the release's MODEL/TARGET.
        policy: the channel's rules.
        wanted: for each gate of the policy, the policy and suite digests it must be judged under.
        reason: recorded; required with overrides.
        overrides: rules whose refusal is accepted (`bad`, `fit`).

    Raises:
        JudgedAndRefused, CouldNotJudge, RefusedByPolicy, Incompatible: the first broken rule.
        NotFound, IntegrityError: the engine's bytes are missing or damaged.
        ChannelMoved: somebody moved the channel first.
    """
    accepted = check_overrides(overrides, reason)
    state = current(desk, channel, insists=False)
    if state.live == live_of(release):
        return Moved(event=None, before=state, after=state)
    judged = judge(desk, release, channel, state, policy=policy, wanted=wanted, overrides=accepted)
    refuse(f"promotion of {release.name} to {channel.channel}", judged.decision)
    change = Promoted(
        to=live_of(release),
        policy=policy.digest,
        evidence=judged.evidence,
        reason=reason,
        overrides=judged.decision.overrides,
    )
    event, after = commit(desk, channel, state, change)
    desk.registry.releases.keep_whole(release)
    return Moved(event=event, before=state, after=after, decision=judged.decision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the rules say of a release on a channel, and the reports and signatures behind it."""

    decision: Decision
    evidence: tuple[Digest, ...]


def live_of(release: Release) -> Live:
    """The release as a channel names it."""
    return Live(number=release.number, release=release.digest, engine=release.content.engine)


def judge(
    desk: Desk,
    release: Release,
    channel: ChannelRef,
    state: ChannelState,
    *,
    policy: ChannelPolicy,
    wanted: Mapping[str, Wanted],
    overrides: frozenset[str],
) -> Judged:
    """Ask every rule whether the release may go live on the channel that is in `state`.

    Raises:
        NotFound, IntegrityError: the engine's bytes are missing or damaged.
    """
    engine = desk.registry.engines.check_engine(release.content.engine, Depth.UNCHANGED)
    upstream = None
    if policy.upstream is not None:
        upstream = desk.registry.channels.state(ChannelRef(channel.product, policy.upstream))
    runtime = runtime_digest(release.content.runtime_config)
    wanted = {name: replace(want, runtime=runtime) for name, want in wanted.items()}
    evidence = read_evidence(desk.registry, release.content.engine, wanted)
    built_by = next(
        (r.built_by for r in engine.records if r.digest == release.content.record),
        engine.records[0].built_by,
    )
    signatures = desk.signatures(engine.digest) if policy.signed else NOT_LOOKED_FOR
    decision = decide_promotion(
        candidate=Candidate(release=release, digest=release.digest, built_by=built_by),
        state=state,
        upstream=upstream,
        policy=policy,
        wanted=wanted,
        evidence=evidence,
        actor=desk.actor,
        now=desk.clock(),
        overrides=overrides,
        signatures=signatures,
        nodes=fit_of_nodes(desk, release, policy, must_know=True),
        live_on=_live_on({name for one in evidence for name in one.no_baseline}, desk),
    )
    reports = tuple(e.report for e in evidence)
    envelopes = good_signatures(policy.signed, release, reports, signatures)
    return Judged(decision=decision, evidence=tuple(sorted({*reports, *envelopes})))


def _live_on(channels: Iterable[str], desk: Desk) -> dict[str, Digest]:
    """The engines that are live on these channels now; channels without one are left out."""
    found = {}
    for name in sorted(name for name in channels if name.count("/") == 2):
        live = desk.registry.channels.state(ChannelRef.parse(name)).live
        if live is not None:
            found[name] = live.engine
    return found
