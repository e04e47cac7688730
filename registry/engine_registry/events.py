"""A channel's event log as values: what may happen, and what the channel is after it.

Creating event n+1 *is* the commit. Each event carries the digest of the one before; the state of a
channel is `fold` over its events and nothing else. Pure: no files, no clock.
"""

from __future__ import annotations

from typing import Annotated, Literal, assert_never

from pydantic import AwareDatetime, Field

from engine_registry.digest import Digest
from engine_registry.documents import Document, Value
from engine_registry.errors import IntegrityError
from engine_registry.record import Actor, Text
from engine_registry.refs import Slug

# How many releases that were live are kept in the folded state, newest first. Rollback looks no
# further back; older ones are still in the log.
ROLLBACK_WINDOW = 20


class Live(Value):
    """A release as a channel names it."""

    number: Annotated[int, Field(ge=1)]
    release: Digest
    engine: Digest


class Promoted(Value):
    """A release became live because the channel's policy said yes."""

    kind: Literal["promoted"] = "promoted"
    to: Live
    policy: Digest
    evidence: tuple[Digest, ...] = ()
    reason: Text | None = None
    overrides: tuple[Text, ...] = ()


class RolledBack(Value):
    """An earlier release became live again; those since then are marked bad, a hold is set."""

    kind: Literal["rolled-back"] = "rolled-back"
    to: Live
    reason: Text
    overrides: tuple[Text, ...] = ()


class Approved(Value):
    """A person said yes to this release on this channel."""

    kind: Literal["approved"] = "approved"
    number: int
    release: Digest
    reason: Text | None = None


class Frozen(Value):
    """No promotion until lifted or expired; rollback stays allowed."""

    kind: Literal["frozen"] = "frozen"
    reason: Text
    until: AwareDatetime | None = None


class Thawed(Value):
    """A freeze was lifted."""

    kind: Literal["thawed"] = "thawed"
    reason: Text


class Held(Value):
    """Promotion must not undo what is live."""

    kind: Literal["held"] = "held"
    reason: Text


class HoldLifted(Value):
    """A hold was lifted."""

    kind: Literal["hold-lifted"] = "hold-lifted"
    reason: Text


Change = Annotated[
    Promoted | RolledBack | Approved | Frozen | Thawed | Held | HoldLifted,
    Field(discriminator="kind"),
]


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
    moved = state.model_copy(update={"number": event.number, "last": digest, "last_at": event.at})
    return _apply(moved, event)


def _apply(state: ChannelState, event: Event) -> ChannelState:
    change = event.change
    match change:
        case Promoted():
            return _go_live(state, event, change.to).model_copy(
                update={"bad": _without(state.bad, change.to.number)}
            )
        case RolledBack():
            hold = Hold(reason=change.reason, actor=event.actor, at=event.at)
            return _go_live(state, event, change.to).model_copy(
                update={"bad": _left_behind(state, change), "hold": hold}
            )
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
        case _:
            assert_never(change)


def _go_live(state: ChannelState, event: Event, to: Live) -> ChannelState:
    entry = WasLive(live=to, since=event.at, event=event.number)
    kept = (entry, *state.history)[:ROLLBACK_WINDOW]
    waiting = tuple(item for item in state.approvals if item.number != to.number)
    return state.model_copy(update={"history": kept, "approvals": waiting})


def _left_behind(state: ChannelState, change: RolledBack) -> tuple[BadMark, ...]:
    """Every release that was live since the target last was: going back passed over all of them."""
    bad = _without(state.bad, change.to.number)
    reason = f"rolled back to release {change.to.number}: {change.reason}"[:400]
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
