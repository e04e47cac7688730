"""Acts on a channel that move nothing: approve, hold, freeze and their ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.promote.moves import Moved, commit, current
from engine_registry.errors import InvalidInput
from engine_registry.events import Approved, Frozen, Held, HoldLifted, Thawed

if TYPE_CHECKING:
    from datetime import datetime

    from engine_pipeline.promote.moves import Desk
    from engine_registry.record import Release
    from engine_registry.refs import ChannelRef


def approve(desk: Desk, release: Release, channel: ChannelRef, *, reason: str | None) -> Moved:
    """Record one person's yes; saying it again while it stands changes nothing."""
    state = current(desk, channel, insists=False)
    mine = (release.digest, desk.actor.name)
    if any((a.release, a.actor.name) == mine for a in state.approvals):
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
    state = current(desk, channel, insists=True)
    event, after = commit(desk, channel, state, Frozen(reason=reason, until=until))
    return Moved(event=event, before=state, after=after)


def thaw(desk: Desk, channel: ChannelRef, *, reason: str) -> Moved:
    """End a freeze; without one nothing changes."""
    state = current(desk, channel, insists=True)
    if state.freeze is None:
        return Moved(event=None, before=state, after=state)
    event, after = commit(desk, channel, state, Thawed(reason=reason))
    return Moved(event=event, before=state, after=after)


def hold(desk: Desk, channel: ChannelRef, *, reason: str) -> Moved:
    """Keep promotions off what is live; a new hold replaces the old one."""
    state = current(desk, channel, insists=True)
    event, after = commit(desk, channel, state, Held(reason=reason))
    return Moved(event=event, before=state, after=after)


def lift_hold(desk: Desk, channel: ChannelRef, *, reason: str) -> Moved:
    """End a hold; without one nothing changes."""
    state = current(desk, channel, insists=True)
    if state.hold is None:
        return Moved(event=None, before=state, after=state)
    event, after = commit(desk, channel, state, HoldLifted(reason=reason))
    return Moved(event=event, before=state, after=after)
