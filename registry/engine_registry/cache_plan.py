"""What a node's cache of engines keeps, and why: rules over facts, a reason for everything.

Pure: facts and time are arguments. Whole engines stay or go; a file that two share goes with the
last of them. What is claimed or in use stays even above the limit; of the rest, what was used most
lately stays as far as there is room.

    1 claimed   live on a channel that is deployed from this node, or among the last before it
    2 in use    some process fetches it or lays it out at this moment
    3 recent    used more lately than everything that has to go
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import AwareDatetime, Field

from engine_registry.digest import Digest
from engine_registry.documents import Document, Value
from engine_registry.record import Text
from engine_registry.refs import Slug
from engine_registry.retention import say_span

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from engine_registry.events import ChannelState


class CachedBlob(Value):
    """One file of an engine."""

    digest: Digest
    size_bytes: Annotated[int, Field(ge=0)]


class CachedEngine(Document):
    """An engine that the cache has, or is about to have."""

    engine: Digest
    model: Slug
    target: Slug
    blobs: tuple[CachedBlob, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        return sum(blob.size_bytes for blob in self.blobs)


class ClaimedRelease(Value):
    """A release that has to stay near."""

    number: Annotated[int, Field(ge=1)]
    engine: Digest


class Claim(Document):
    """What one place of this node serves from, and could be taken back to.

    Attributes:
        channel: that the place follows.
        place: directory of what is deployed there; the claim ends when it is removed.
        releases: the live one, then those before it, newest first.
    """

    channel: Text
    place: Text
    releases: tuple[ClaimedRelease, ...]
    at: AwareDatetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """One engine of the cache as it is found.

    Attributes:
        missing_bytes: not fetched yet, or no longer there; counts as if it were.
    """

    entry: CachedEngine
    used_at: datetime
    is_in_use: bool = False
    missing_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """What becomes of one engine, and the reasons.

    Attributes:
        frees_bytes: of an evicted engine, what nothing that is kept shares.
    """

    held: Held
    reasons: tuple[str, ...]
    is_claimed: bool = False
    frees_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What stays and what goes, each the most lately used first.

    Attributes:
        kept_bytes: of what stays, shared files counted once.
        limit_bytes: what was asked for.
        lacking: engines that are claimed and not here whole, with the reasons.
    """

    kept: tuple[Decided, ...]
    evicted: tuple[Decided, ...]
    kept_bytes: int
    limit_bytes: int
    lacking: dict[Digest, tuple[str, ...]]

    @property
    def over_bytes(self) -> int:
        """How far what has to stay is above the limit."""
        return max(self.kept_bytes - self.limit_bytes, 0)

    @property
    def kept_blobs(self) -> frozenset[Digest]:
        """Every file of what stays."""
        return frozenset(blob.digest for one in self.kept for blob in one.held.entry.blobs)


def decide(
    held: Iterable[Held], claims: Sequence[Claim], *, limit_bytes: int, now: datetime
) -> Decision:
    """What stays in a cache of this size."""
    newest_first = sorted(held, key=lambda one: (one.used_at, one.entry.engine), reverse=True)
    reasons = {one.entry.engine: _claimed_by(one.entry.engine, claims) for one in newest_first}
    kept: dict[Digest, Decided] = {}
    blobs: dict[Digest, int] = {}
    for one in newest_first:
        claimed = reasons[one.entry.engine]
        why = [*claimed, "in use at this moment"] if one.is_in_use else claimed
        if why:
            kept[one.entry.engine] = Decided(held=one, reasons=tuple(why), is_claimed=bool(claimed))
            blobs |= _sizes(one)
    evicted: list[Decided] = []
    for one in newest_first:
        if one.entry.engine in kept:
            continue
        with_it = blobs | _sizes(one)
        ago = f"used {say_span(now - one.used_at)} ago"
        if not evicted and sum(with_it.values()) <= limit_bytes:
            blobs = with_it
            kept[one.entry.engine] = Decided(held=one, reasons=(f"{ago}, within the limit",))
        else:
            evicted.append(Decided(held=one, reasons=(f"{ago}, the limit is reached",)))
    return Decision(
        kept=tuple(kept[one.entry.engine] for one in newest_first if one.entry.engine in kept),
        evicted=tuple(_freed(evicted, blobs)),
        kept_bytes=sum(blobs.values()),
        limit_bytes=limit_bytes,
        lacking=_lacking(newest_first, claims),
    )


def claim_of(state: ChannelState, *, place: str, earlier: int, at: datetime) -> Claim:
    """What a place that follows this channel has to keep near.

    Args:
        state: of the channel; something is live on it.
        place: where it is deployed to.
        earlier: how many releases that were live before; none that is marked bad, since no
            rollback goes there.
        at: the time now.
    """
    bad = {mark.number for mark in state.bad}
    live, *before = {entry.live.number: entry.live for entry in state.history}.values()
    good = [one for one in before if one.number not in bad][:earlier]
    releases = tuple(ClaimedRelease(number=one.number, engine=one.engine) for one in (live, *good))
    return Claim(channel=state.name, place=place, releases=releases, at=at)


def _claimed_by(engine: Digest, claims: Sequence[Claim]) -> list[str]:
    found = []
    for claim in claims:
        where = f"{claim.channel}, deployed to {claim.place}"
        for position, release in enumerate(claim.releases):
            if release.engine == engine:
                how = f"live before release {claim.releases[0].number}" if position else "live"
                found.append(f"release {release.number}, {how} on {where}")
    return found


def _lacking(held: Sequence[Held], claims: Sequence[Claim]) -> dict[Digest, tuple[str, ...]]:
    whole = {one.entry.engine for one in held if not one.missing_bytes}
    claimed = dict.fromkeys(release.engine for claim in claims for release in claim.releases)
    return {engine: tuple(_claimed_by(engine, claims)) for engine in claimed if engine not in whole}


def _freed(evicted: list[Decided], kept: dict[Digest, int]) -> Iterable[Decided]:
    """The same with what each frees; of files that two of them share, the first counts them."""
    counted = dict(kept)
    for one in evicted:
        sizes = _sizes(one.held)
        own = {digest: size for digest, size in sizes.items() if digest not in counted}
        counted |= sizes
        yield Decided(held=one.held, reasons=one.reasons, frees_bytes=sum(own.values()))


def _sizes(one: Held) -> dict[Digest, int]:
    return {blob.digest: blob.size_bytes for blob in one.entry.blobs}
