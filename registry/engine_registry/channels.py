"""Channels over the stores: read the log, append to it, keep the pointer near its end.

Creating event n+1 is the commit; the pointer (`head.json`) is a cached fold that anybody may lose
or delay. Whether a move is allowed is the pipeline's judgement; that it was decided on the state it
lands on is decided here.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.ahead import ahead, read_all
from engine_registry.documents import seal, unseal
from engine_registry.errors import (
    ChannelMoved,
    DocumentConflict,
    IntegrityError,
    InvalidInput,
    NotFound,
)
from engine_registry.events import ChannelState, Event, fold, settles
from engine_registry.heads import Heads
from engine_registry.links import (
    Link,
    agreed_digest,
    check_links,
    check_numbers,
    read_link,
    to_restore,
    whole_links,
)
from engine_registry.refs import ChannelRef, ProductRef
from engine_registry.sets import SetDecisions, set_pending

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from engine_registry.digest import Digest
    from engine_registry.events import Change
    from engine_registry.record import Actor
    from engine_registry.store import Stores

# How many of the latest events are re-read before a move: about 20 ms on a local disk.
CHECKED_LINKS = 256
# The same where each is a request of its own; `verify` reads them all.
CHECKED_LINKS_FAR = 4
# Of a log that is replayed, where each is a request.
_EVENTS_AT_ONCE = 32


class ChannelLog:
    """Every channel of one registry."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._documents = stores.documents
        self._sets = SetDecisions(stores.documents)
        self._heads = Heads(stores.pointers)

    def state(self, ref: ChannelRef) -> ChannelState:
        """What the channel is now: pointer plus the events after it, or the whole log replayed.

        A channel without events has a state too, with number 0. A release whose set was committed
        is live from that moment on, whether or not the channel's log says so yet.

        Raises:
            IntegrityError: an event read on the way is damaged or does not chain.
        """
        return self._sets.effective(self.recorded_state(ref))

    def recorded_state(self, ref: ChannelRef) -> ChannelState:
        """The fold of the channel's own log alone; raises as `state`."""
        return self._state(ref, 0)

    def checked_state(self, ref: ChannelRef) -> ChannelState:
        """The same, once no event is missing and the latest ones chain: what to decide a move on.

        Raises:
            IntegrityError: the log is damaged.
        """
        return self._state(ref, self._links)

    def urgent_state(self, ref: ChannelRef) -> ChannelState:
        """As `checked_state`, for what must not wait: old events may be damaged or missing.

        Pointer and newest event still have to agree, and whole events that follow each other to
        chain. What is damaged is said in the process's log.

        Raises:
            IntegrityError: the newest event is damaged, or two events contradict each other.
        """
        return self._state(ref, self._links, whole_links)

    def event_digest(self, ref: ChannelRef, number: int) -> Digest | None:
        """The digest of one event; None if there is none. The event after it says it as well.

        Raises:
            IntegrityError: the two differ, or the event is damaged and there is none after it.
        """
        return agreed_digest(
            ref,
            number,
            own=lambda: self._following(ref, number - 1),
            after=lambda: self._following(ref, number),
        )

    @property
    def _links(self) -> int:
        return CHECKED_LINKS_FAR if self._stores.is_far else CHECKED_LINKS

    def append(
        self,
        ref: ChannelRef,
        *,
        decided_on: int,
        change: Change,
        actor: Actor,
        at: datetime,
        operation: str,
        seen: ChannelState | None = None,
        beside: Callable[[ChannelState], None] = lambda _: None,
    ) -> tuple[Event, ChannelState]:
        """Commit `change` as event `decided_on + 1`; the event and the state after it.

        `seen` is the `checked_state` that the caller decided on; it spares reading it again.
        Whether it still is the newest is decided by the creation of the event. `beside` is told the
        state after while the pointer is moved.

        Repeating a call with the same `operation` after a lost reply is a no-op with the same
        answer. An `at` before the previous event's (the clock went back) becomes that one's.

        Raises:
            ChannelMoved: the channel is not at event `decided_on`; nothing has happened.
            Conflict: a set is pending on it (`set-pending`); nothing has happened.
            IntegrityError: the log is damaged; nothing has happened.
        """
        state = seen if seen is not None else self.checked_state(ref)
        if state.number != decided_on:
            return self._own_or_moved(ref, decided_on, operation)
        if state.pending is not None and not settles(change, state.pending):
            raise set_pending(state, state.pending)
        event = Event(
            model=ref.product.model,
            target=ref.product.target,
            channel=ref.channel,
            number=decided_on + 1,
            previous=state.last,
            operation=operation,
            actor=actor,
            at=at if state.last_at is None else max(at, state.last_at),
            change=change,
        )
        after = fold(state, event, event.digest)
        try:
            self._documents.create(layout.event(ref, event.number), seal(event))
        except DocumentConflict:
            return self._own_or_moved(ref, decided_on, operation)
        with ahead(self._stores) as ask:
            published = ask(lambda: self._heads.publish(ref, after))
            beside(after)
            published()
        return event, after

    def events(self, ref: ChannelRef) -> list[tuple[Event, Digest]]:
        """Every event of the channel with its digest, oldest first, the whole chain checked.

        Raises:
            IntegrityError: an event is damaged or missing, or does not chain.
        """
        return [(event, digest) for event, digest, _ in self._folded(ref)]

    def check_links(self, ref: ChannelRef, last: int = CHECKED_LINKS) -> None:
        """Confirm that the latest `last` events are whole and chain up to the current state.

        Raises:
            IntegrityError: one is damaged, missing or does not chain.
        """
        self._state(ref, last)

    def channels(self, product: ProductRef | None = None) -> list[ChannelRef]:
        """Every channel that has events, in order of name."""
        return [
            ref
            for ref in self._named(product)
            if self._documents.exists(layout.event(ref, 1)) or any(True for _ in self._numbers(ref))
        ]

    def at_time(self, ref: ChannelRef, when: datetime) -> ChannelState:
        """What the channel was at `when`, by its log and by what was decided on its sets."""
        found = _empty(ref)
        for event, _, state in self._folded(ref):
            if event.at > when:
                break
            found = state
        return self._sets.effective(found, by=when)

    def replay(self, ref: ChannelRef) -> ChannelState:
        """The fold of the whole log, without the pointer."""
        found = _empty(ref)
        for _, _, state in self._folded(ref):
            found = state
        return found

    def _folded(self, ref: ChannelRef) -> Iterator[tuple[Event, Digest, ChannelState]]:
        """Every event with the state after it, oldest first, the chain checked as it goes."""
        state = _empty(ref)
        numbers = self._numbers(ref)
        for at in range(0, len(numbers), _EVENTS_AT_ONCE):
            some = numbers[at : at + _EVENTS_AT_ONCE]
            for read in read_all(self._stores, partial(self._event, ref), some):
                event, digest = read()
                state = fold(state, event, digest)
                yield event, digest, state

    def _state(
        self, ref: ChannelRef, links: int, spared: Callable[..., list[Link]] | None = None
    ) -> ChannelState:
        """Pointer, the events after it, and so many links of the log before it checked.

        `spared` gives those to check if some may be damaged.
        """
        state = self._heads.read(ref) or _empty(ref)
        with ahead(self._stores) as ask:
            following = ask(lambda: self._following(ref, state.number))
            listed = ask(lambda: self._numbers(ref)) if links else None
            newest = range(max(1, state.number - max(links, 1) + 1), state.number + 1)
            read = [ask(partial(read_link, self._documents, ref, number)) for number in newest]
            if listed is not None:
                first = state.number + 1 if spared else 1
                check_numbers(ref, listed(), first=first, upto=state.number)
            check_links(ref, state, spared(ref, read) if spared else [link() for link in read])
            found = following()
        while found is not None:
            state = fold(state, *found)
            found = self._following(ref, state.number)
        return state

    def _own_or_moved(
        self, ref: ChannelRef, decided_on: int, operation: str
    ) -> tuple[Event, ChannelState]:
        """Our own event if a lost reply hid it; else the refusal."""
        state = self.recorded_state(ref)
        if state.number > decided_on:
            ours, digest = self._event(ref, decided_on + 1)
            if ours.operation == operation:
                self._heads.publish(ref, state)
                after = (s for event, _, s in self._folded(ref) if event.number == ours.number)
                return ours, state if state.last == digest else next(after)
        live = state.live
        serving = f"release {live.number} ({live.engine.short}) is live" if live else "nothing live"
        by = ""
        if state.number:
            event, _ = self._event(ref, state.number)
            by = f", moved by {event.actor.name} ({event.change.kind})"
        raise ChannelMoved(
            f"{ref}: decided on event {decided_on}, but it is at event {state.number}{by}; "
            f"{serving}; nothing was changed",
            hint=f"run `enginectl status {ref}`, then decide again",
        )

    def _following(self, ref: ChannelRef, number: int) -> tuple[Event, Digest] | None:
        """The event after event `number`; None if that is the newest."""
        try:
            return self._event(ref, number + 1)
        except NotFound as error:
            if error.name == "registry-missing":
                raise
            return None

    def _event(self, ref: ChannelRef, number: int) -> tuple[Event, Digest]:
        name = layout.event(ref, number)
        try:
            return unseal(self._documents.read(name), Event, name)
        except IntegrityError as error:
            if error.name == "document-damaged":
                raise to_restore(error, name) from None
            raise

    def _numbers(self, ref: ChannelRef) -> list[int]:
        found = (layout.number_of(child) for child in self._documents.children(layout.events(ref)))
        return [number for number in found if number is not None]

    def _named(self, product: ProductRef | None) -> Iterator[ChannelRef]:
        for one in [product] if product else self._products():
            folder = f"{layout.CHANNELS}/{one.model}/{one.target}"
            for child in self._documents.children(folder):
                ref = _parsed(f"{one}/{child.removesuffix('/')}")
                if child.endswith("/") and ref is not None:
                    yield ref

    def _products(self) -> Iterator[ProductRef]:
        for model in self._documents.children(layout.CHANNELS):
            for target in self._documents.children(f"{layout.CHANNELS}/{model.removesuffix('/')}"):
                yield ProductRef(model.removesuffix("/"), target.removesuffix("/"))


def _empty(ref: ChannelRef) -> ChannelState:
    return ChannelState(model=ref.product.model, target=ref.product.target, channel=ref.channel)


def _parsed(text: str) -> ChannelRef | None:
    """The channel of a folder name; None for a folder that is not ours."""
    try:
        return ChannelRef.parse(text)
    except InvalidInput:
        return None
