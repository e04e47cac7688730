"""A channel's event log as values: what may happen, and what the channel is after it.

Creating event n+1 *is* the commit. Each event carries the digest of the one before; the state of a
channel is `fold` over its events and nothing else. Pure: no files, no clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, assert_never

from pydantic import AwareDatetime, Field

from engine_registry.changes import (
    Approved,
    Change,
    Frozen,
    Held,
    HoldLifted,
    Live,
    Prepared,
    Promoted,
    RolledBack,
    Thawed,
    Withdrawn,
)
from engine_registry.digest import Digest
from engine_registry.documents import Document, Value
from engine_registry.errors import IntegrityError
from engine_registry.record import MAX_TEXT_CHARS, Actor, Text
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from datetime import datetime

# How many releases that were live are kept in the folded state, newest first. Rollback looks no
# further back; older ones are still in the log.
ROLLBACK_WINDOW = 20


class Event(Document):
    """Event `number` of a channel.

    Attributes:
        previous: digest of event `number - 1`; None for the first.
        operation: unique id of the act, so that a writer whose reply was lost knows its own event.
    """

    model: Slug
    target: Slug
    channel: Slug
    number: Annotated[int, Field(ge=1)]
    previous: Digest | None
    operation: Text
    actor: Actor
    at: AwareDatetime
    change: Change


class Freeze(Value):
    """A freeze in force: who, why, until when (None: until thawed)."""

    reason: Text
    actor: Actor
    at: AwareDatetime
    until: AwareDatetime | None


class Hold(Value):
    """A hold in force."""

    reason: Text
    actor: Actor
    at: AwareDatetime


class Approval(Value):
    """One approval of one release on this channel."""

    number: int
    release: Digest
    actor: Actor
    at: AwareDatetime


class WasLive(Value):
    """A release that is or was live, since when, and how it got there."""

    live: Live
    since: AwareDatetime
    event: int


class Pending(Value):
    """A prepared release, by whom and since when."""

    prepared: Prepared
    event: int
    actor: Actor
    at: AwareDatetime

    @property
    def to(self) -> Live:
        """What is about to go live."""
        return self.prepared.to


class BadMark(Value):
    """Why a release may not be rolled back to."""

    number: int
    reason: Text


class ChannelState(Document):
    """The fold of a channel's events up to `number`; also what the pointer file stores.

    Attributes:
        number: the last event folded in; 0 for a channel without events.
        last: digest of that event.
        history: releases that are or were live, newest first; the first is live now.
        bad: releases that are no rollback target.
        approvals: approvals since each release was last live, newest last.
        pending: a set whose fate is not yet recorded here.
    """

    model: Slug
    target: Slug
    channel: Slug
    number: int = 0
    last: Digest | None = None
    last_at: AwareDatetime | None = None
    history: tuple[WasLive, ...] = ()
    bad: tuple[BadMark, ...] = ()
    approvals: tuple[Approval, ...] = ()
    freeze: Freeze | None = None
    hold: Hold | None = None
    pending: Pending | None = None

    @property
    def live(self) -> Live | None:
        """What is live now."""
        return self.history[0].live if self.history else None

    @property
    def name(self) -> str:
        """`MODEL/TARGET/CHANNEL`."""
        return f"{self.model}/{self.target}/{self.channel}"


def fold(state: ChannelState, event: Event, digest: Digest) -> ChannelState:
    """The state after `event`, whose stored body has `digest`.

    Raises:
        IntegrityError: the event is of another channel, leaves a gap, or does not chain.
    """
    here = (state.model, state.target, state.channel)
    if (event.model, event.target, event.channel) != here:
        raise _broken(
            state, f"event {event.number} names {event.model}/{event.target}/{event.channel}"
        )
    if event.number != state.number + 1:
        raise _broken(state, f"event {event.number} follows event {state.number}")
    if event.previous != state.last:
        raise _broken(
            state,
            f"event {event.number} says the one before is {event.previous}, it is {state.last}",
        )
    if state.pending is not None and not settles(event.change, state.pending):
        raise _broken(
            state, f"event {event.number} ({event.change.kind}) does not settle the set before it"
        )
    moved = state.model_copy(update={"number": event.number, "last": digest, "last_at": event.at})
    return _apply(moved, event)


def settles(change: Change, pending: Pending) -> bool:
    """Whether this change records the fate of the pending set."""
    if isinstance(change, Promoted):
        return change.set == pending.prepared.set and change.to == pending.to
    return isinstance(change, Withdrawn) and change.set == pending.prepared.set


def promotion_of(pending: Pending) -> Promoted:
    """What happens to the channel if the pending set does."""
    return Promoted(**pending.prepared.model_dump(exclude={"kind"}))


def as_promoted(state: ChannelState, pending: Pending, at: datetime) -> ChannelState:
    """The state as it is from `at` on, before the promotion of a committed set is recorded.

    The newest event in the log that names the release is still the one that prepared it.
    """
    entry = WasLive(live=pending.to, since=at, event=pending.event)
    return state.model_copy(update={**_with_live(state, entry), "pending": None})


def _apply(state: ChannelState, event: Event) -> ChannelState:
    change = event.change
    match change:
        case Promoted():
            entry = WasLive(live=change.to, since=event.at, event=event.number)
            return state.model_copy(update={**_with_live(state, entry), "pending": None})
        case RolledBack():
            hold = Hold(reason=change.reason, actor=event.actor, at=event.at)
            entry = WasLive(live=change.to, since=event.at, event=event.number)
            bad = _left_behind(state, change)
            update = {**_with_live(state, entry), "bad": bad, "hold": hold}
            return state.model_copy(update=update)
        case Approved():
            approval = Approval(
                number=change.number, release=change.release, actor=event.actor, at=event.at
            )
            return state.model_copy(update={"approvals": (*state.approvals, approval)})
        case Frozen():
            freeze = Freeze(
                reason=change.reason, actor=event.actor, at=event.at, until=change.until
            )
            return state.model_copy(update={"freeze": freeze})
        case Thawed():
            return state.model_copy(update={"freeze": None})
        case Held():
            hold = Hold(reason=change.reason, actor=event.actor, at=event.at)
            return state.model_copy(update={"hold": hold})
        case HoldLifted():
            return state.model_copy(update={"hold": None})
        case Prepared():
            pending = Pending(prepared=change, event=event.number, actor=event.actor, at=event.at)
            return state.model_copy(update={"pending": pending})
        case Withdrawn():
            return state.model_copy(update={"pending": None})
        case _:
            assert_never(change)


def _with_live(state: ChannelState, entry: WasLive) -> dict[str, Any]:
    """What changes when a release goes live: it is no longer bad, nor waiting for approval."""
    number = entry.live.number
    return {
        "history": (entry, *state.history)[:ROLLBACK_WINDOW],
        "approvals": tuple(item for item in state.approvals if item.number != number),
        "bad": _without(state.bad, number),
    }


def _left_behind(state: ChannelState, change: RolledBack) -> tuple[BadMark, ...]:
    """Every release that was live since the target last was: going back passed over all of them."""
    bad = _without(state.bad, change.to.number)
    reason = f"rolled back to release {change.to.number}: {change.reason}"[:MAX_TEXT_CHARS]
    for entry in state.history:
        if entry.live.number == change.to.number:
            break
        bad = (*_without(bad, entry.live.number), BadMark(number=entry.live.number, reason=reason))
    return bad


def _without(marks: tuple[BadMark, ...], number: int) -> tuple[BadMark, ...]:
    return tuple(mark for mark in marks if mark.number != number)


def _broken(state: ChannelState, what: str) -> IntegrityError:
    return IntegrityError(
        f"{state.name}: event log broken: {what}",
        hint="run `enginectl verify` and restore the event files from a copy of the registry",
        reference="event-log-broken",
    )


__all__ = [
    "ROLLBACK_WINDOW",
    "Approval",
    "Approved",
    "BadMark",
    "Change",
    "ChannelState",
    "Event",
    "Freeze",
    "Frozen",
    "Held",
    "Hold",
    "HoldLifted",
    "Live",
    "Pending",
    "Prepared",
    "Promoted",
    "RolledBack",
    "Thawed",
    "WasLive",
    "Withdrawn",
    "as_promoted",
    "fold",
    "promotion_of",
    "settles",
]
