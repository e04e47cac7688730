"""Move several releases together, each to its own channel: all of them, or none.

Judge every member first and name everything that is missing, per member. Then reserve each channel
with an event; then one create-once document decides for all of them (`engine_registry.sets`). A
process that dies in between leaves either nothing live or everything; whoever needs a channel next
records which.
"""

from __future__ import annotations

import itertools
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.promote.moves import check_overrides, commit, current, error_of
from engine_pipeline.promote.promote import Judged, judge, live_of
from engine_registry.errors import Conflict, EngineCIError, InvalidInput
from engine_registry.events import Prepared
from engine_registry.sets import Fate, Member, SetDecision, settle

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine_pipeline.promote.findings import Wanted
    from engine_pipeline.promote.moves import Desk
    from engine_pipeline.promote.policy import ChannelPolicy
    from engine_registry.events import ChannelState
    from engine_registry.record import Release
    from engine_registry.refs import ChannelRef


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """One member of a set: what is to go live where, and under which rules."""

    release: Release
    channel: ChannelRef
    policy: ChannelPolicy
    wanted: Mapping[str, Wanted]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMember:
    """What became of one member.

    Attributes:
        after: the state of its channel now.
        judged: None for a release that was live already.
    """

    wish: Wish
    before: ChannelState
    after: ChannelState
    judged: Judged | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetMoved:
    """The result of moving a set.

    Attributes:
        name: of the set; None if every release was live already.
    """

    name: str | None
    members: tuple[SetMember, ...]


def promote_set(
    desk: Desk,
    wishes: Sequence[Wish],
    *,
    reason: str | None = None,
    overrides: tuple[str, ...] = (),
) -> SetMoved:
    """Make every release live on its channel at one moment, or none of them.

    Releases that are live already are left alone; the others still move together.

    Raises:
        InvalidInput: two releases for one channel.
        JudgedAndRefused, CouldNotJudge, RefusedByPolicy, Incompatible: rules are broken; the
            message lists them per member, the kind is that of the first. Nothing has happened.
        NotFound, IntegrityError: bytes of a member are missing or damaged.
        Conflict: a channel moved, or somebody withdrew the set. Nothing is live that was not.
    """
    accepted = check_overrides(overrides, reason)
    ordered = sorted(wishes, key=lambda wish: wish.channel)
    _refuse_doubles(ordered)
    states = {wish.channel: current(desk, wish.channel, insists=False) for wish in ordered}
    moving = [w for w in ordered if states[w.channel].live != live_of(w.release)]
    judged = {
        wish.channel: judge(
            desk,
            wish.release,
            wish.channel,
            states[wish.channel],
            policy=wish.policy,
            wanted=wish.wanted,
            overrides=accepted,
        )
        for wish in moving
    }
    _refuse_broken(ordered, judged)
    after = dict(states)
    name = _move(desk, moving, states, judged, reason, after) if moving else None
    return SetMoved(
        name=name,
        members=tuple(
            SetMember(
                wish=wish,
                before=states[wish.channel],
                after=after[wish.channel],
                judged=judged.get(wish.channel),
            )
            for wish in ordered
        ),
    )


def _move(
    desk: Desk,
    moving: Sequence[Wish],
    states: Mapping[ChannelRef, ChannelState],
    judged: Mapping[ChannelRef, Judged],
    reason: str | None,
    after: dict[ChannelRef, ChannelState],
) -> str:
    name = f"set-{uuid.uuid4().hex}"
    members: list[Member] = []
    reserved: list[ChannelRef] = []
    try:
        # In order of name everywhere, so that of two sets one meets the other at its first channel.
        for wish in moving:
            found = judged[wish.channel]
            change = Prepared(
                set=name,
                to=live_of(wish.release),
                policy=wish.policy.digest,
                evidence=found.evidence,
                reason=reason,
                overrides=found.decision.overrides,
            )
            event, _ = commit(desk, wish.channel, states[wish.channel], change)
            reserved.append(wish.channel)
            members.append(Member(channel=str(wish.channel), event=event.number, to=change.to))
    except EngineCIError as error:
        _decide(desk, name, Fate.WITHDRAWN, (), error.message[:400])
        _settle(desk, reserved)
        raise
    decision = _decide(desk, name, Fate.COMMITTED, tuple(members), reason or "moved together")
    after.update(_settle(desk, reserved))
    if decision.fate is Fate.WITHDRAWN:
        raise Conflict(
            f"set of {len(members)} releases: withdrawn by {decision.actor.name}: "
            f"{decision.reason}; nothing was changed",
            hint="run `enginectl status`, then decide again",
            reference="set-withdrawn",
        )
    for wish in moving:
        desk.registry.releases.keep_whole(wish.release)
    return name


def _decide(
    desk: Desk, name: str, fate: Fate, members: tuple[Member, ...], reason: str
) -> SetDecision:
    return desk.registry.sets.decide(
        SetDecision(
            set=name,
            fate=fate,
            members=members,
            reason=reason,
            actor=desk.actor,
            at=desk.clock(),
        )
    )


def _settle(desk: Desk, channels: Sequence[ChannelRef]) -> dict[ChannelRef, ChannelState]:
    registry = desk.registry
    return {ref: settle(registry.channels, registry.sets, ref) for ref in channels}


def _refuse_doubles(wishes: Sequence[Wish]) -> None:
    for one, other in itertools.pairwise(wishes):
        if one.channel == other.channel:
            raise InvalidInput(
                f"{one.release.name} and {other.release.name} are both for {one.channel}",
                hint="name one release for each MODEL/TARGET",
                reference="channel-named-twice",
            )


def _refuse_broken(wishes: Sequence[Wish], judged: Mapping[ChannelRef, Judged]) -> None:
    """Raise the first broken rule's error with everything that is missing, per member."""
    missing = [
        (wish, judged[wish.channel].decision.broken)
        for wish in wishes
        if wish.channel in judged and judged[wish.channel].decision.broken
    ]
    if not missing:
        return
    says = "; ".join(
        f"{wish.release.name}: " + ", ".join(finding.says for finding in broken)
        for wish, broken in missing
    )
    first = missing[0][1][0]
    raise error_of(first)(
        f"promotion of {len(wishes)} releases together refused, {len(missing)} of them are not "
        f"ready, none was moved: {says}",
        hint=first.hint,
        reference=f"rule-{first.rule}",
    )
