"""Acts on a channel that move nothing: approve, hold, freeze and their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.promote.approvals import refuse_unproved
from engine_pipeline.promote.moves import Moved, commit, current, insist
from engine_registry.errors import InvalidInput
from engine_registry.events import Approved, Frozen, Held, HoldLifted, Thawed

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from engine_pipeline.promote.moves import Desk
    from engine_pipeline.promote.policy import ChannelPolicy
    from engine_registry.events import Change, ChannelState
    from engine_registry.record import Release
    from engine_registry.refs import ChannelRef


def approve(
    desk: Desk,
    release: Release,
    channel: ChannelRef,
    *,
    policy: ChannelPolicy,
    reason: str | None,
) -> Moved:
    """Record one person's yes.

    Nothing is recorded for a yes that stands already, for a release that is live there, and where
    the channel asks for none.

    Raises:
        RefusedByPolicy: a yes under this name would not count (`approval-unproved`).
    """
    state = current(desk, channel, insists=False)
    is_live = state.live is not None and state.live.release == release.digest
    if is_live or not policy.approvals:
        return Moved(event=None, before=state, after=state)
    refuse_unproved(desk.actor, channel, policy)
    # The proof counts: a yes that somebody else gave under this name does not stand for one's own.
    mine = (release.digest, desk.actor)
    if any((a.release, a.actor) == mine for a in state.approvals):
        return Moved(event=None, before=state, after=state)
    change = Approved(number=release.number, release=release.digest, reason=reason)
    event, after = commit(desk, channel, state, change)
    return Moved(event=event, before=state, after=after)


def freeze(desk: Desk, channel: ChannelRef, *, reason: str, until: datetime | None) -> Moved:
    """Stop promotions to `channel`, for good or until a time; a new freeze replaces the old one."""
    now = desk.clock()
    if until is not None and until <= now:
        raise InvalidInput(
            f"freeze until {until:%Y-%m-%d %H:%M}Z is over already; it is {now:%Y-%m-%d %H:%M}Z",
            hint="give a time in the future, or leave --until out",
            reference="time-in-the-past",
        )
    return insist(desk, channel, _say(desk, channel, Frozen(reason=reason, until=until)))


def thaw(desk: Desk, channel: ChannelRef, *, reason: str) -> Moved:
    """End a freeze; without one nothing changes."""
    say = _say(desk, channel, Thawed(reason=reason), unless=lambda state: state.freeze is None)
    return insist(desk, channel, say)


def hold(desk: Desk, channel: ChannelRef, *, reason: str) -> Moved:
    """Keep promotions off what is live; a new hold replaces the old one."""
    return insist(desk, channel, _say(desk, channel, Held(reason=reason)))


def lift_hold(desk: Desk, channel: ChannelRef, *, reason: str) -> Moved:
    """End a hold; without one nothing changes."""
    say = _say(desk, channel, HoldLifted(reason=reason), unless=lambda state: state.hold is None)
    return insist(desk, channel, say)


def _say(
    desk: Desk,
    channel: ChannelRef,
    change: Change,
    unless: Callable[[ChannelState], bool] = lambda _: False,
) -> Callable[[ChannelState], Moved]:
    def act(state: ChannelState) -> Moved:
        if unless(state):
            return Moved(event=None, before=state, after=state)
        event, after = commit(desk, channel, state, change)
        return Moved(event=event, before=state, after=after)

    return act
