"""Do the events of a channel follow each other: what is confirmed before a channel is moved."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.documents import unseal_body
from engine_registry.errors import IntegrityError, NotFound

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from engine_registry.digest import Digest
    from engine_registry.events import ChannelState, Event
    from engine_registry.refs import ChannelRef
    from engine_registry.store import DocumentStore

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Link:
    """What an event says of the one before, and its own digest."""

    number: int
    previous: str | None
    digest: str


def read_link(documents: DocumentStore, ref: ChannelRef, number: int) -> Link:
    """One event's, of a number that the pointer says is there.

    Raises:
        IntegrityError: the event is damaged or missing.
    """
    name = layout.event(ref, number)
    try:
        data = documents.read(name)
    except NotFound as error:
        raise broken(ref, f"event {number} is missing, the pointer names it") from error
    try:
        body, digest = unseal_body(data, name)
    except IntegrityError as error:
        raise to_restore(error, name) from None
    return Link(number, json.loads(body).get("previous"), str(digest))


def whole_links(ref: ChannelRef, reads: Sequence[Callable[[], Link]]) -> list[Link]:
    """The links, without old ones that are damaged: those are said in the process's log.

    Raises:
        IntegrityError: the last is damaged.
    """
    found = []
    for read in reads:
        try:
            found.append(read())
        except IntegrityError as error:
            if read is reads[-1]:
                raise
            _LOG.warning("%s: passed over: %s; next: %s", ref, error.message, error.hint)
    return found


def check_links(ref: ChannelRef, state: ChannelState, links: Sequence[Link]) -> None:
    """The newest events up to `state` chain, and the last is the one that it says."""
    for before, after in pairwise(links):
        if after.number == before.number + 1 and after.previous != before.digest:
            raise broken(
                ref,
                f"event {after.number} says the one before is {after.previous}, "
                f"it is {before.digest}",
            )
    if links and links[-1].digest != str(state.last):
        raise broken(
            ref,
            f"the pointer says event {state.number} is {state.last}, it is {links[-1].digest}",
        )


def check_numbers(ref: ChannelRef, numbers: Sequence[int], *, first: int, upto: int) -> None:
    """Every event from `first` on is there, up to `upto` and to whatever is the last.

    Raises:
        IntegrityError: some are missing.
    """
    held = set(numbers)
    gaps = [str(n) for n in range(first, max([*numbers, upto]) + 1) if n not in held]
    if gaps:
        raise broken(ref, f"events {', '.join(gaps[:5])} missing")


def agreed_digest(
    ref: ChannelRef,
    number: int,
    own: Callable[[], tuple[Event, Digest] | None],
    after: Callable[[], tuple[Event, Digest] | None],
) -> Digest | None:
    """The digest of event `number`, by itself and by the one after it; None if there is neither.

    Raises:
        IntegrityError: the two differ, or it is damaged and there is none after it.
    """
    try:
        following = after()
    except IntegrityError:
        following = None
    stated = following[0].previous if following is not None else None
    try:
        read = own()
    except IntegrityError:
        if stated is None:
            raise
        return stated
    if read is None or stated is None:
        return stated if read is None else read[1]
    if read[1] != stated:
        raise broken(ref, f"event {number + 1} says the one before is {stated}, it is {read[1]}")
    return stated


def to_restore(error: IntegrityError, name: str) -> IntegrityError:
    """The error of a damaged event, with the way out: any copy has the one right file."""
    error.hint = f"put {name} back from a copy of the registry, as docs/operations.md says"
    return error


def broken(ref: ChannelRef, what: str) -> IntegrityError:
    """The error for a log that is not a chain."""
    return IntegrityError(
        f"{ref}: event log broken: {what}",
        hint="run `enginectl verify`, then put the event files back from a copy of the registry, "
        "as docs/operations.md says",
        reference="event-log-broken",
    )
