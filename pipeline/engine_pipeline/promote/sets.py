"""Move several releases together, each to its own channel: all of them, or none.

Judge every member first and name everything that is missing, per member. Then reserve each channel
with an event; then one create-once document decides for all of them (`engine_registry.sets`). A
process that dies in between leaves either nothing live or everything; whoever needs a channel next
records which.
"""

from __future__ import annotations

import itertools
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine_pipeline.promote.findings import Finding
from engine_pipeline.promote.moves import check_overrides, commit, current
from engine_pipeline.promote.promote import Judged, judge, live_of
from engine_registry.errors import (
    Conflict,
    EngineCIError,
    IntegrityError,
    InvalidInput,
    NotFound,
)
from engine_registry.events import Prepared
from engine_registry.record import MAX_TEXT_CHARS
from engine_registry.sets import Fate, Member, SetDecision, set_pending, settle

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
    """What was found of one member, and what became of it.

    Attributes:
        before: the state of its channel that was looked at.
        after: the state of its channel now.
        judged: None for a release that is live already, or whose bytes are not whole.
        lacks: everything that keeps the release off its channel.
    """

    wish: Wish
    before: ChannelState
    after: ChannelState
    judged: Judged | None = None
    lacks: tuple[Finding, ...] = ()

    @property
    def is_live(self) -> bool:
        """Whether the release is live on its channel now."""
        return self.after.live == live_of(self.wish.release)


@dataclass(frozen=True, slots=True, kw_only=True)
class SetOutcome:
    """What was found of a set, and whether it moved.

    Attributes:
        name: of the set that went live; None if nothing was moved.
        members: in order of channel.
    """

    name: str | None
    members: tuple[SetMember, ...]

    @property
    def lacking(self) -> tuple[SetMember, ...]:
        """Members that are not ready; none of the set is moved while there is one."""
        return tuple(member for member in self.members if member.lacks)


def preflight(
    desk: Desk,
    wishes: Sequence[Wish],
    *,
    overrides: tuple[str, ...] = (),
    reason: str | None = None,
) -> SetOutcome:
    """What every member lacks to go live now; nothing is changed.

    Raises:
        InvalidInput: two releases for one channel.
    """
    accepted = check_overrides(overrides, reason)
    ordered = _ordered(wishes)
    states = {wish.channel: desk.registry.channels.state(wish.channel) for wish in ordered}
    return SetOutcome(name=None, members=_examine(desk, ordered, states, accepted))


def promote_set(
    desk: Desk,
    wishes: Sequence[Wish],
    *,
    reason: str | None = None,
    overrides: tuple[str, ...] = (),
) -> SetOutcome:
    """Make every release live on its channel at one moment, or none of them.

    Releases that are live already are left alone; the others still move together. If any member
    lacks something, nothing has happened and the outcome says what, of all of them.

    Raises:
        InvalidInput: two releases for one channel.
        Conflict: a channel moved, or somebody withdrew the set. Nothing is live that was not.
    """
    accepted = check_overrides(overrides, reason)
    ordered = _ordered(wishes)
    states = {wish.channel: current(desk, wish.channel, insists=False) for wish in ordered}
    outcome = SetOutcome(name=None, members=_examine(desk, ordered, states, accepted))
    moving = [(member, member.judged) for member in outcome.members if not member.is_live]
    ready = [(member, judged) for member, judged in moving if judged and not member.lacks]
    if not ready or len(ready) < len(moving):
        return outcome
    name, after = _move(desk, ready, reason)
    return SetOutcome(
        name=name,
        members=tuple(
            replace(member, after=after.get(member.wish.channel, member.after))
            for member in outcome.members
        ),
    )


def _ordered(wishes: Sequence[Wish]) -> list[Wish]:
    ordered = sorted(wishes, key=lambda wish: wish.channel)
    for one, other in itertools.pairwise(ordered):
        if one.channel == other.channel:
            raise InvalidInput(
                f"{one.release.name} and {other.release.name} are both for {one.channel}",
                hint="name one release for each MODEL/TARGET",
                reference="channel-named-twice",
            )
    return ordered


def _examine(
    desk: Desk,
    wishes: Sequence[Wish],
    states: Mapping[ChannelRef, ChannelState],
    accepted: frozenset[str],
) -> tuple[SetMember, ...]:
    return tuple(_examined(desk, wish, states[wish.channel], accepted) for wish in wishes)


def _examined(desk: Desk, wish: Wish, state: ChannelState, accepted: frozenset[str]) -> SetMember:
    member = SetMember(wish=wish, before=state, after=state)
    if member.is_live:
        return member
    lacks: tuple[Finding, ...] = ()
    if state.pending is not None:
        lacks = (_of(set_pending(state, state.pending), "set"),)
    try:
        judged = judge(
            desk,
            wish.release,
            wish.channel,
            state,
            policy=wish.policy,
            wanted=wish.wanted,
            overrides=accepted,
        )
    except (NotFound, IntegrityError) as error:
        return replace(member, lacks=(*lacks, _of(error, _RULES.get(error.name, "bytes"))))
    return replace(member, judged=judged, lacks=(*lacks, *judged.decision.broken))


# Whose rule it is that asks for a file beside channels.yaml which is not there.
_RULES = {"key-missing": "signed", "trust-config-missing": "signed", "node-missing": "fit"}


def _of(error: EngineCIError, rule: str) -> Finding:
    return Finding(
        rule=rule, holds=False, says=error.message, hint=error.hint, exit_code=error.exit_code
    )


def _move(
    desk: Desk, moving: Sequence[tuple[SetMember, Judged]], reason: str | None
) -> tuple[str, dict[ChannelRef, ChannelState]]:
    name = f"set-{uuid.uuid4().hex}"
    channels = [member.wish.channel for member, _ in moving]
    members: list[Member] = []
    try:
        # In order of name everywhere, so that of two sets one meets the other at its first channel.
        for member, judged in moving:
            wish = member.wish
            change = Prepared(
                set=name,
                to=live_of(wish.release),
                policy=wish.policy.digest,
                evidence=judged.evidence,
                reason=reason,
                overrides=judged.decision.overrides,
            )
            event, _ = commit(desk, wish.channel, member.before, change, judged.engine)
            members.append(Member(channel=str(wish.channel), event=event.number, to=change.to))
    except EngineCIError as error:
        # What cannot be put right now is put right by whoever needs the channel next.
        with suppress(EngineCIError):
            _decide(desk, name, Fate.WITHDRAWN, (), error.message[:MAX_TEXT_CHARS])
            _settle(desk, channels)  # all: a reservation may have been made and its reply lost
        raise
    decision = _decide(desk, name, Fate.COMMITTED, tuple(members), reason or "moved together")
    after = _settle(desk, channels)
    if decision.fate is Fate.WITHDRAWN:
        raise Conflict(
            f"set of {len(members)} releases: withdrawn by {decision.actor.name}: "
            f"{decision.reason}; nothing was changed",
            hint="run `enginectl status`, then decide again",
            reference="set-withdrawn",
        )
    for member, _ in moving:
        desk.registry.releases.keep_whole(member.wish.release)
    return name, after


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
