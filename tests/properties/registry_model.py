"""What a registry should say after any history, in a few plain lists: the model of random runs.

Written from the documents, not from the code: a channel is its list of releases that went live,
marks, approvals, a freeze and a hold; a promotion is allowed if all that the policy asks is there.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from engine_registry.events import ROLLBACK_WINDOW, ChannelState

SOAK = timedelta(minutes=30)
MAX_AGE = timedelta(days=10)
# Of releases that were live on a channel; see `Retention.live_per_channel`.
LIVE_KEPT = 2


@dataclass
class Channel:
    """One channel.

    Attributes:
        was_live: number and since when, the newest first.
        freeze: None: none; else until when, and None within: until lifted.
        last_at: time of the newest event.
    """

    events: int = 0
    was_live: list[tuple[int, datetime]] = field(default_factory=list)
    bad: set[int] = field(default_factory=set)
    approved: set[tuple[int, str]] = field(default_factory=set)
    freeze: tuple[datetime | None] | None = None
    is_held: bool = False
    last_at: datetime | None = None

    @property
    def live(self) -> int | None:
        return self.was_live[0][0] if self.was_live else None

    @property
    def window(self) -> list[int]:
        return [number for number, _ in self.was_live[:ROLLBACK_WINDOW]]

    def happens(self, now: datetime) -> datetime:
        """One more event; when it counts as having happened: never before the last one."""
        self.events += 1
        self.last_at = now if self.last_at is None else max(now, self.last_at)
        return self.last_at

    def goes_live(self, number: int, now: datetime) -> None:
        at = self.happens(now)
        self.was_live.insert(0, (number, at))
        self.bad.discard(number)
        self.approved = {(n, who) for n, who in self.approved if n != number}

    def goes_back(self, number: int, now: datetime) -> None:
        for passed in self.window:
            if passed == number:
                break
            self.bad.add(passed)
        self.goes_live(number, now)
        self.is_held = True

    def back_to(self) -> int | None:
        """Where a rollback goes by itself."""
        good = (n for n in self.window[1:] if n not in self.bad and n != self.live)
        return next(good, None)

    def is_frozen(self, now: datetime) -> bool:
        if self.freeze is None:
            return False
        (until,) = self.freeze
        return until is None or now < until

    def soaked(self, number: int, now: datetime) -> timedelta | None:
        """The longest time without a break."""
        spans, until = [], now
        for live, since in self.was_live[:ROLLBACK_WINDOW]:
            if live == number:
                spans.append(max(until - since, timedelta(0)))
            until = since
        return max(spans, default=None)

    def keeps(self) -> set[int]:
        """Releases that no garbage collection may remove on this channel's account."""
        found: list[int] = []
        good = 0
        for number in dict.fromkeys(self.window):
            if good == LIVE_KEPT:
                break
            found.append(number)
            good += number not in self.bad or len(found) == 1
        return {*found, *(number for number, _ in self.approved)}


@dataclass
class Model:
    """One product.

    Attributes:
        releases: number → engine and variant; of those that are there.
        removed: the same of those that a collection removed.
        newest: the highest number ever given.
        reports: engine → time and whether it passed, of every report.
        held: releases on hold.
    """

    staging: Channel = field(default_factory=Channel)
    prod: Channel = field(default_factory=Channel)
    releases: dict[int, tuple[int, int]] = field(default_factory=dict)
    removed: dict[int, tuple[int, int]] = field(default_factory=dict)
    newest: int = 0
    reports: dict[int, list[tuple[datetime, bool]]] = field(default_factory=dict)
    held: set[int] = field(default_factory=set)

    def channel(self, name: str) -> Channel:
        return self.staging if name == "staging" else self.prod

    def why_not(self, name: str, number: int, actor: str, now: datetime) -> set[str]:
        """The rules that a promotion would break."""
        channel = self.channel(name)
        broken = set()
        if channel.is_frozen(now):
            broken.add("freeze")
        if channel.is_held:
            broken.add("hold")
        if number in channel.bad:
            broken.add("bad")
        engine = self.releases[number][0]
        at, passed = max(self.reports.get(engine, []), default=(now, False))
        if not passed or now - at > MAX_AGE:
            broken.add("gates")
        if name == "prod":
            soaked = self.staging.soaked(number, now)
            if soaked is None or soaked < SOAK or number in self.staging.bad:
                broken.add("upstream")
            if not {who for n, who in channel.approved if n == number} - {actor, "alice"}:
                broken.add("approvals")
        return broken

    def protected(self) -> set[int]:
        """Releases that have to survive every collection."""
        found = self.staging.keeps() | self.prod.keeps() | self.held
        if self.releases:
            found.add(max(self.releases))
        return found & set(self.releases)


def told(state: ChannelState) -> Channel:
    """A channel's state in the words of the model; `was_live` as far as the state reaches."""
    return Channel(
        events=state.number,
        was_live=[(entry.live.number, entry.since) for entry in state.history],
        bad={mark.number for mark in state.bad},
        approved={(a.number, a.actor.name) for a in state.approvals},
        freeze=(state.freeze.until,) if state.freeze else None,
        is_held=state.hold is not None,
        last_at=state.last_at,
    )
