"""What is kept, and why: rules over facts, with a reason for everything that stays.

Pure: facts and time are arguments. A release or an engine is kept if any rule says so; what no rule
speaks for may be collected. A product (MODEL/TARGET) without rules of its own keeps everything: no
policy is no permission.

    releases                                       engines
    1 live       live on a channel                 1 release   of a release that is kept
    2 set        about to go live, in a set        2 fresh     written to within the grace period
    3 window     among the last N live there       3 touched   judged, released or reused within it
    4 hold       on hold                           4 young     built within M
    5 incident   live within the window of a       5 other     kept by another product that built it
                 channel on hold or frozen
    6 pending    approved, not yet live
    7 newest     among the newest N of the product
    8 young      released within M
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from engine_registry.documents import Value
from engine_registry.events import ROLLBACK_WINDOW

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from engine_registry.digest import Digest
    from engine_registry.refs import ProductRef


class Retention(Value):
    """How much of a product is kept.

    Attributes:
        live_per_channel: releases that were live on a channel and are not marked bad, newest first,
            the live one included: how far a rollback can go.
        newest_releases: the last so many of the product, live anywhere or not.
        released_for: every release this young.
        unreleased_for: every engine this young, released or not.
    """

    live_per_channel: Annotated[int, Field(ge=1, le=1000)] = ROLLBACK_WINDOW
    newest_releases: Annotated[int, Field(ge=1, le=1000)] = 5
    released_for: timedelta = timedelta(days=90)
    unreleased_for: timedelta = timedelta(days=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseFacts:
    """One release."""

    number: int
    engine: Digest
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelFacts:
    """One channel.

    Attributes:
        name: MODEL/TARGET/CHANNEL.
        was_live: release numbers, newest first, the live one first; one may come more than once.
        bad: releases marked bad.
        approved: releases with an approval that has not been used.
        pending: the release that a set is about to make live.
        stopped: why the channel is on hold or frozen; None if it is not.
    """

    name: str
    was_live: tuple[int, ...]
    bad: frozenset[int] = frozenset()
    approved: frozenset[int] = frozenset()
    pending: int | None = None
    stopped: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """One engine.

    Attributes:
        built_at: of its newest record.
        written_ago: since the youngest of its documents was stored; None if all are in the trash.
        touched_ago: since somebody judged, released or reused it; None if nobody did lately.
    """

    engine: Digest
    built_at: datetime
    written_ago: timedelta | None
    touched_ago: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductFacts:
    """Everything of MODEL/TARGET that the rules look at.

    Attributes:
        held: reason of the hold on each release that has one.
    """

    product: ProductRef
    releases: tuple[ReleaseFacts, ...] = ()
    channels: tuple[ChannelFacts, ...] = ()
    engines: tuple[EngineFacts, ...] = ()
    held: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What stays, with the reasons in the order of the rules; anything else may go."""

    releases: dict[int, tuple[str, ...]]
    engines: dict[Digest, tuple[str, ...]]


def decide(
    facts: ProductFacts, rules: Retention | None, *, now: datetime, grace: timedelta
) -> Kept:
    """What of a product is kept.

    Args:
        facts: of the product.
        rules: None: there are none, and everything is kept.
        now: aware UTC.
        grace: how long anything that was written or touched is left alone.
    """
    releases: dict[int, tuple[str, ...]] = {}
    newest = sorted((release.number for release in facts.releases), reverse=True)
    for release in facts.releases:
        reasons = _for_release(release, facts, rules, newest, now)
        if reasons:
            releases[release.number] = tuple(reasons)
    of_release: dict[Digest, list[str]] = {}
    for release in facts.releases:
        if release.number in releases:
            name = f"release {facts.product}:{release.number}"
            of_release.setdefault(release.engine, []).append(name)
    engines: dict[Digest, tuple[str, ...]] = {}
    for engine in facts.engines:
        reasons = [*of_release.get(engine.engine, []), *_for_engine(engine, rules, now, grace)]
        if rules is None:
            reasons.append(_no_rules(facts.product))
        if reasons:
            engines[engine.engine] = tuple(reasons)
    # A kept release keeps its engine even if no record of it was found.
    for digest, names in of_release.items():
        engines.setdefault(digest, tuple(names))
    return Kept(releases=releases, engines=engines)


def _for_release(
    release: ReleaseFacts,
    facts: ProductFacts,
    rules: Retention | None,
    newest: list[int],
    now: datetime,
) -> list[str]:
    number = release.number
    reasons = [
        reason for channel in facts.channels for reason in _for_channel(number, channel, rules)
    ]
    if number in facts.held:
        reasons.append(f"on hold: {facts.held[number]}")
    if rules is None:
        return [*reasons, _no_rules(facts.product)]
    if number in newest[: rules.newest_releases]:
        reasons.append(f"among the newest {rules.newest_releases} of {facts.product}")
    age = now - release.created_at
    if age < rules.released_for:
        reasons.append(f"released {say_span(age)} ago, kept for {say_span(rules.released_for)}")
    return reasons


def _for_channel(number: int, channel: ChannelFacts, rules: Retention | None) -> list[str]:
    reasons = []
    if channel.was_live[:1] == (number,):
        reasons.append(f"live on {channel.name}")
    if channel.pending == number:
        reasons.append(f"about to go live on {channel.name} with its set")
    window = _window(channel, rules)
    if number in window[1:]:
        reasons.append(f"rollback window of {channel.name}")
    elif channel.stopped is not None and number in channel.was_live[:ROLLBACK_WINDOW]:
        reasons.append(f"{channel.name} is {channel.stopped}")
    if number in channel.approved:
        reasons.append(f"approved for {channel.name}, not yet live there")
    return reasons


def _window(channel: ChannelFacts, rules: Retention | None) -> tuple[int, ...]:
    """The live release and those before it, down to the last good one that the rules keep."""
    wanted = rules.live_per_channel if rules else ROLLBACK_WINDOW
    found: list[int] = []
    good = 0
    for number in dict.fromkeys(channel.was_live):
        if good == wanted:
            break
        found.append(number)
        # What is live counts even if it is marked bad: it holds the place of a good one.
        good += number not in channel.bad or len(found) == 1
    return tuple(found)


def _for_engine(
    engine: EngineFacts, rules: Retention | None, now: datetime, grace: timedelta
) -> list[str]:
    reasons = []
    if engine.written_ago is not None and engine.written_ago < grace:
        reasons.append(
            f"written to {say_span(engine.written_ago)} ago, spared for {say_span(grace)}"
        )
    if engine.touched_ago is not None and engine.touched_ago < grace:
        reasons.append(f"used {say_span(engine.touched_ago)} ago, spared for {say_span(grace)}")
    age = now - engine.built_at
    if rules is not None and age < rules.unreleased_for:
        reasons.append(f"built {say_span(age)} ago, kept for {say_span(rules.unreleased_for)}")
    return reasons


def _no_rules(product: ProductRef) -> str:
    return f"no retention is set for {product}"


def say_span(value: timedelta) -> str:
    """A length of time in its largest whole unit; what lies ahead counts as no time at all."""
    seconds = max(int(value.total_seconds()), 0)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
