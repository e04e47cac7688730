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
from engine_registry.ahead import ahead, read_all
from engine_registry.events import Live, Promoted
from engine_registry.refs import ChannelRef
from engine_registry.store import Depth

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from engine_pipeline.promote.findings import Decision, Evidence, Finding, Wanted
    from engine_pipeline.promote.moves import Desk
    from engine_pipeline.promote.policy import ChannelPolicy
    from engine_pipeline.trust.standing import Signatures
    from engine_registry.ahead import Ask
    from engine_registry.digest import Digest
    from engine_registry.drafts import StoredEngine
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
    with ahead(desk.registry.stores) as ask:
        # What is known of the release does not depend on what the channel is.
        facts = _facts(ask, desk, release, channel, policy, wanted)
        ask(lambda: desk.registry.notes.read(channel))
        state = current(desk, channel, insists=False)
        if state.live == live_of(release):
            return Moved(event=None, before=state, after=state)
        judged = _judge(desk, release, state, facts, policy=policy, overrides=accepted)
    refuse(f"promotion of {release.name} to {channel.channel}", judged.decision)
    change = Promoted(
        to=live_of(release),
        policy=policy.digest,
        evidence=judged.evidence,
        reason=reason,
        overrides=judged.decision.overrides,
    )
    event, after = commit(desk, channel, state, change, judged.engine)
    desk.registry.releases.keep_whole(release)
    return Moved(event=event, before=state, after=after, decision=judged.decision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What the rules say of a release on a channel, and the reports and signatures behind it.

    Attributes:
        engine: the release's, found whole.
    """

    engine: StoredEngine
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
    with ahead(desk.registry.stores) as ask:
        facts = _facts(ask, desk, release, channel, policy, wanted)
        return _judge(desk, release, state, facts, policy=policy, overrides=overrides)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Facts:
    """What is known of a release apart from its channel: asked for, read when called."""

    wanted: Mapping[str, Wanted]
    engine: Callable[[], StoredEngine]
    upstream: Callable[[], ChannelState | None]
    evidence: Callable[[], tuple[Evidence, ...]]
    signatures: Callable[[], Signatures]
    nodes: Callable[[], tuple[Finding, ...]]


def _facts(
    ask: Ask,
    desk: Desk,
    release: Release,
    channel: ChannelRef,
    policy: ChannelPolicy,
    wanted: Mapping[str, Wanted],
) -> _Facts:
    registry, content = desk.registry, release.content
    runtime = runtime_digest(content.runtime_config)
    wanted = {name: replace(want, runtime=runtime) for name, want in wanted.items()}

    def upstream() -> ChannelState | None:
        if policy.upstream is None:
            return None
        return registry.channels.state(ChannelRef(channel.product, policy.upstream))

    def nodes() -> tuple[Finding, ...]:
        return fit_of_nodes(desk, release, policy, must_know=True, records=lambda: engine().records)

    engine = ask(lambda: registry.engines.check_engine(content.engine, Depth.UNCHANGED))
    return _Facts(
        wanted=wanted,
        engine=engine,
        upstream=ask(upstream),
        evidence=ask(lambda: read_evidence(registry, content.engine, wanted)),
        signatures=ask(
            lambda: desk.signatures(content.engine) if policy.signed else NOT_LOOKED_FOR
        ),
        nodes=ask(nodes),
    )


def _judge(
    desk: Desk,
    release: Release,
    state: ChannelState,
    facts: _Facts,
    *,
    policy: ChannelPolicy,
    overrides: frozenset[str],
) -> Judged:
    engine, upstream, evidence = facts.engine(), facts.upstream(), facts.evidence()
    signatures = facts.signatures()
    built_by = next(
        (r.built_by for r in engine.records if r.digest == release.content.record),
        engine.records[0].built_by,
    )
    decision = decide_promotion(
        candidate=Candidate(release=release, digest=release.digest, built_by=built_by),
        state=state,
        upstream=upstream,
        policy=policy,
        wanted=facts.wanted,
        evidence=evidence,
        actor=desk.actor,
        now=desk.clock(),
        overrides=overrides,
        signatures=signatures,
        nodes=facts.nodes(),
        live_on=_live_on({name for one in evidence for name in one.no_baseline}, desk),
    )
    reports = tuple(e.report for e in evidence)
    envelopes = good_signatures(policy.signed, release, reports, signatures)
    evidence_used = tuple(sorted({*reports, *envelopes}))
    return Judged(engine=engine, decision=decision, evidence=evidence_used)


def _live_on(channels: Iterable[str], desk: Desk) -> dict[str, Digest]:
    """The engines that are live on these channels now; channels without one are left out."""
    names = sorted(name for name in channels if name.count("/") == 2)
    states = read_all(
        desk.registry.stores,
        lambda name: desk.registry.channels.state(ChannelRef.parse(name)),
        names,
    )
    lives = {name: state().live for name, state in zip(names, states, strict=True)}
    return {name: live.engine for name, live in lives.items() if live is not None}
