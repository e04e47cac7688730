"""Releases that go live together: one create-once document decides for all their channels.

Each channel of a set first takes an event that reserves it (`prepared`). Creating `sets/<set>.json`
is the commit, or the end, of the set: before it nothing is live anywhere, after it everything is,
on every channel at the same moment. The events that record it in each channel's log follow; whoever
needs the channel writes them if the one who moved the set died. docs/adr/0011 says why.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from pydantic import AwareDatetime, Field

from engine_registry import layout
from engine_registry.documents import Document, Value, seal, unseal
from engine_registry.errors import Conflict, DocumentConflict, IntegrityError, NotFound
from engine_registry.events import (
    ChannelState,
    Live,
    Pending,
    Withdrawn,
    as_promoted,
    promotion_of,
)
from engine_registry.record import Actor, Text
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from datetime import datetime

    from engine_registry.channels import ChannelLog
    from engine_registry.refs import ChannelRef
    from engine_registry.store import DocumentStore

# How often a channel is settled anew when others settle it at the same time.
_TRIES = 8


class Fate(StrEnum):
    """What became of a set."""

    COMMITTED = "committed"
    WITHDRAWN = "withdrawn"


class Member(Value):
    """One channel of a set.

    Attributes:
        channel: MODEL/TARGET/CHANNEL.
        event: the number of the event that reserves it.
    """

    channel: Text
    event: Annotated[int, Field(ge=1)]
    to: Live


class SetDecision(Document):
    """The fate of a set, decided once.

    Attributes:
        members: every channel, if it was committed.
    """

    set: Slug
    fate: Fate
    members: tuple[Member, ...]
    reason: Text
    actor: Actor
    at: AwareDatetime


class SetDecisions:
    """The decisions of one registry."""

    def __init__(self, documents: DocumentStore) -> None:
        self._documents = documents

    def decide(self, decision: SetDecision) -> SetDecision:
        """Decide, unless somebody did before; what was decided."""
        try:
            self._documents.create(layout.release_set(decision.set), seal(decision))
        except DocumentConflict:
            theirs = self.on(decision.set)
            if theirs is None:
                raise
            return theirs
        return decision

    def on(self, name: str) -> SetDecision | None:
        """What was decided on a set; None while nothing is."""
        place = layout.release_set(name)
        try:
            decision, _ = unseal(self._documents.read(place), SetDecision, place)
        except NotFound as error:
            if error.name == "registry-missing":
                raise
            return None
        if decision.set != name:
            raise IntegrityError(
                f"{place}: holds the decision on set {decision.set}",
                hint="run `enginectl verify` to list every damaged file",
                reference="document-misplaced",
            )
        return decision

    def effective(self, state: ChannelState, by: datetime | None = None) -> ChannelState:
        """What the channel is, given what was decided on the set that is pending on it.

        Args:
            state: as its own log says.
            by: leave out what was decided later than this.

        Returns:
            A state in which a set is pending only while nobody has decided on it.
        """
        pending = state.pending
        decision = None if pending is None else self.on(pending.prepared.set)
        if pending is None or decision is None:
            return state
        at = max(decision.at, pending.at)  # as the event that records it will say
        if by is not None and at > by:
            return state
        if not _commits(decision, state, pending):
            return state.model_copy(update={"pending": None})
        return as_promoted(state, pending, at)


def settle(channels: ChannelLog, decisions: SetDecisions, ref: ChannelRef) -> ChannelState:
    """Record the fate of the set that is pending on a channel, if it is decided; the state then.

    A no-op where nothing is pending or decided. Any number of processes may do it at once.
    """
    for _ in range(_TRIES):
        state = channels.recorded_state(ref)
        pending = state.pending
        decision = decisions.on(pending.prepared.set) if pending else None
        if pending is None or decision is None:
            return state
        change = (
            promotion_of(pending)
            if _commits(decision, state, pending)
            else Withdrawn(set=decision.set, reason=decision.reason)
        )
        try:
            return channels.append(
                ref,
                decided_on=state.number,
                change=change,
                actor=decision.actor,
                at=decision.at,
                operation=f"settle {decision.set}",
            )[1]
        except Conflict:
            continue  # settled by somebody else, who may have moved on
    return channels.recorded_state(ref)


def set_pending(state: ChannelState, pending: Pending) -> Conflict:
    """The refusal of a move on a channel that a set has reserved."""
    return Conflict(
        f"{state.name}: reserved since {pending.at:%H:%M:%S}Z by {pending.actor.name} for release "
        f"{pending.to.number}, which moves with others; nothing was changed",
        hint=f"run the same command again; `enginectl status {state.name}` says when it is over",
        reference="set-pending",
    )


def _commits(decision: SetDecision, state: ChannelState, pending: Pending) -> bool:
    if decision.fate is Fate.WITHDRAWN:
        return False
    member = Member(channel=state.name, event=pending.event, to=pending.to)
    if member not in decision.members:
        raise IntegrityError(
            f"{state.name}: event {pending.event} belongs to set {decision.set}, whose decision "
            "does not name it",
            hint="run `enginectl verify` to list every damaged file",
            reference="event-log-broken",
        )
    return True
