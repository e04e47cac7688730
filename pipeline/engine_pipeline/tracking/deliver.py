"""One run of deliveries: read the registry, then tell each destination what is due there.

A destination that fails is tried a few times, then left alone until its back-off is over; what is
due stays due. Destinations run side by side, so that one that hangs delays no other.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from itertools import islice
from typing import TYPE_CHECKING

from engine_pipeline.tracking.port import NotSent, Sent
from engine_registry.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from engine_pipeline.tracking.due import Due
    from engine_pipeline.tracking.feed import Feed
    from engine_pipeline.tracking.outbox import Outbox
    from engine_pipeline.tracking.port import Destination

# Per delivery and run: enough for a restart of the other side, too few to wait for an outage.
TRIES = 3
_FIRST_WAIT_S = 0.5
# Between runs: doubles from the first to the longest, so an outage costs little and ends soon.
_FIRST_REST = timedelta(seconds=15)
LONGEST_REST = timedelta(minutes=15)
# What a receiver may ask for with Retry-After, and what of that is waited for within a run.
LONGEST_ASKED_REST = timedelta(hours=1)
_WAITED_FOR = timedelta(seconds=5)
_CHUNK = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """Time and chance, so that tests need neither."""

    clock: Callable[[], datetime]
    sleep: Callable[[float], None]
    chance: Callable[[], float] = random.random


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """What one run did for one destination.

    Attributes:
        sent: deliveries that succeeded.
        abandoned: given up, because they are older than the destination wants.
        waiting: still due.
        rests_until: no attempt is made before.
        error: why something waits.
    """

    destination: str
    sent: int
    abandoned: int
    waiting: int
    rests_until: datetime | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What one run did.

    Attributes:
        new_facts: how many were read.
        unreachable: why the registry could not be read to its end; None if it was.
        damaged: documents of it that cannot be read, one line each; the rest was.
    """

    new_facts: int
    unreachable: str | None
    damaged: tuple[str, ...]
    tallies: tuple[Tally, ...]

    @property
    def is_behind(self) -> bool:
        """Whether something is still waiting that another run may deliver."""
        return self.unreachable is not None or any(tally.waiting for tally in self.tallies)


def run_once(
    feed: Feed,
    outbox: Outbox,
    destinations: Sequence[Destination],
    pace: Pace,
    *,
    insist: bool = False,
) -> Run:
    """Bring the outbox up to the registry and deliver what is due.

    What is due is delivered even while the registry cannot be reached.

    Args:
        feed: a pass over the registry.
        outbox: what is due; must be `held`.
        destinations: where to.
        pace: time and chance.
        insist: do not wait for the end of a back-off.
    """
    outbox.register(one.name for one in destinations)
    added, unreachable = 0, None
    try:
        facts = feed.facts()
        while chunk := list(islice(facts, _CHUNK)):
            added += outbox.take_in(chunk, {})
        outbox.take_in((), feed.positions)
    except Unavailable as error:
        unreachable = error.message
    for one in destinations:
        outbox.enrol(one, pace.clock())
    with ThreadPoolExecutor(max_workers=min(16, len(destinations) or 1)) as pool:
        found = pool.map(lambda one: _deliver_to(outbox, one, pace, insist=insist), destinations)
        tallies = tuple(found)
    outbox.forget_told()
    return Run(
        new_facts=added, unreachable=unreachable, damaged=tuple(feed.problems), tallies=tallies
    )


def _deliver_to(outbox: Outbox, one: Destination, pace: Pace, *, insist: bool) -> Tally:
    sent = abandoned = 0
    began = pace.clock()
    rests = outbox.standing(one.name).rests_until
    is_resting = rests is not None and rests > began and not insist
    now = began + LONGEST_ASKED_REST if insist else began
    while not is_resting and (batch := outbox.due(one.name, now)):
        now = began  # only once: what fails now waits
        for due in batch:
            ending = _try(outbox, one, due, pace)
            sent += ending is _Ending.SENT
            abandoned += ending is _Ending.ABANDONED
            if ending is _Ending.RESTS:
                is_resting = True
                break
    standing = outbox.standing(one.name)
    return Tally(
        destination=one.name,
        sent=sent,
        abandoned=abandoned,
        waiting=standing.waiting,
        rests_until=standing.rests_until,
        error=standing.error,
    )


class _Ending(Enum):
    """How the tries of one delivery in one run ended."""

    SENT = auto()
    ABANDONED = auto()
    PUT_OFF = auto()
    RESTS = auto()  # and the destination is left alone


def _try(outbox: Outbox, one: Destination, due: Due, pace: Pace) -> _Ending:
    now = pace.clock()
    if one.max_age is not None and now - due.fact.at > one.max_age:
        detail = "given up: older than max_age"
        outbox.settle(one.name, due, outcome="abandoned", detail=detail, now=now, tries=0)
        return _Ending.ABANDONED
    for tries in range(1, TRIES + 1):
        result = one.deliver(due.fact, delivery=due.delivery, attempt=due.attempts + tries)
        now = pace.clock()
        if isinstance(result, Sent):
            outbox.settle(one.name, due, outcome="sent", detail=result.detail, now=now, tries=tries)
            return _Ending.SENT
        wait = _wait(result, tries, pace)
        if result.is_final or tries == TRIES or wait > _WAITED_FOR:
            return _put_off(outbox, one, due, result, tries, pace)
        pace.sleep(wait.total_seconds())
    raise AssertionError  # the last try returns


def _put_off(
    outbox: Outbox, one: Destination, due: Due, result: NotSent, tries: int, pace: Pace
) -> _Ending:
    now = pace.clock()
    failures = due.attempts if result.is_about_this else outbox.failures(one.name)
    outbox.put_off(
        one.name,
        due,
        until=now + _rest(result, failures, pace),
        only_this=result.is_about_this,
        detail=result.detail,
        now=now,
        tries=tries,
    )
    return _Ending.PUT_OFF if result.is_about_this else _Ending.RESTS


def _wait(result: NotSent, tries: int, pace: Pace) -> timedelta:
    """Before the next try of the same run: doubles, at random between half and all of it."""
    if result.retry_after is not None:
        return result.retry_after
    seconds: float = _FIRST_WAIT_S * 2**tries * (0.5 + pace.chance() / 2)
    return timedelta(seconds=seconds)


def _rest(result: NotSent, failures: int, pace: Pace) -> timedelta:
    """Before the next run tries again."""
    grown: timedelta = min(_FIRST_REST * 2 ** min(failures, 10), LONGEST_REST)
    jittered = grown * (0.5 + pace.chance() / 2)
    asked = min(result.retry_after or timedelta(0), LONGEST_ASKED_REST)
    return max(jittered, asked)
