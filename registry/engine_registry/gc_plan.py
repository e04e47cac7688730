"""What a collection would do, for people to read before it does.

Each thing kept comes with the roots that keep it, each thing removed with its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from engine_registry import layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_registry.digest import Digest
    from engine_registry.gc_survey import Survey


class Kind(StrEnum):
    """What a line of a plan is about."""

    RELEASE = "release"
    ENGINE = "engine"
    BLOB = "blob"  # of no engine: left by an upload or a collection that died
    TOUCH = "touch"  # an old note that somebody worked on an engine


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLine:
    """Something that stays.

    Attributes:
        reasons: the roots that keep it, never empty.
        size_bytes: of its blobs, those that it shares included.
    """

    kind: Kind
    name: str
    engine: Digest
    reasons: tuple[str, ...]
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedLine:
    """Something that goes, or would go.

    Attributes:
        name: release name, engine or blob digest.
        what: of an engine, the products whose build it is.
        size_bytes: what it alone takes up; bytes shared by several count for the first.
        files: stored names that go with it.
    """

    kind: Kind
    name: str
    what: str
    size_bytes: int
    files: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a collection would keep, remove, restore and purge.

    Attributes:
        kept_bytes: of all blobs that kept engines need, those shared by several counted once.
        restored: releases and engines that come back out of the trash.
        trash_files, trash_bytes: what lies in the trash.
        purgeable_files, purgeable_bytes: what of it has lain there longer than the grace period
            and is reached by no root.
    """

    kept: tuple[KeptLine, ...]
    removed: tuple[RemovedLine, ...]
    restored: tuple[str, ...]
    kept_bytes: int
    trash_files: int
    trash_bytes: int
    purgeable_files: int
    purgeable_bytes: int

    @property
    def removed_bytes(self) -> int:
        """Bytes that a collection frees, once they are purged."""
        return sum(line.size_bytes for line in self.removed)


def plan_of(survey: Survey) -> Plan:
    """The plan that follows from a look at the registry."""
    files, size_bytes = _trash(survey, purgeable_only=False)
    old_files, old_bytes = _trash(survey, purgeable_only=True)
    return Plan(
        kept=tuple(_kept(survey)),
        removed=tuple(_removed(survey)),
        restored=(
            *(str(ref) for ref in survey.restorable_releases()),
            *(str(engine) for engine in survey.restorable_engines()),
        ),
        kept_bytes=sum(survey.listing.stored.blobs.get(blob, 0) for blob in survey.reachable),
        trash_files=files,
        trash_bytes=size_bytes,
        purgeable_files=old_files,
        purgeable_bytes=old_bytes,
    )


def purgeable(survey: Survey) -> Iterator[tuple[str, int]]:
    """Discarded names that no root reaches and their sizes, documents before blobs.

    A discarded copy of something that is in the store again is of no use either.
    """
    stored, trashed = survey.listing.stored, survey.listing.trashed
    for ref in sorted(trashed.releases):
        name = layout.release(ref)
        if ref not in survey.releases or ref in stored.releases:
            yield name, trashed.sizes[name]
    for ref in sorted(trashed.retired):
        yield layout.retired(ref), trashed.sizes[layout.retired(ref)]
    for engine in sorted(trashed.engines()):
        for name in trashed.documents_of(engine):
            is_kept = engine in survey.engines or engine in survey.reachable
            if not is_kept or name in stored.sizes:
                yield name, trashed.sizes[name]
    manifests = trashed.engines() | set().union(*trashed.referrers.values())
    blobs = {
        digest
        for digest in trashed.blobs
        if digest not in survey.reachable or digest in stored.blobs
    }
    for digest in (*sorted(blobs & manifests), *sorted(blobs - manifests)):
        yield layout.blob(digest), trashed.blobs[digest]
    for name in survey.listing.discarded_touches:
        yield name, 0


def _kept(survey: Survey) -> Iterator[KeptLine]:
    sizes = survey.listing.stored.blobs
    for ref in sorted(survey.releases):
        yield KeptLine(
            kind=Kind.RELEASE,
            name=str(ref),
            engine=survey.facts.releases[ref].engine,
            reasons=survey.releases[ref],
            size_bytes=0,
        )
    for engine in sorted(survey.engines):
        yield KeptLine(
            kind=Kind.ENGINE,
            name=str(engine),
            engine=engine,
            reasons=survey.engines[engine],
            size_bytes=sum(sizes.get(blob, 0) for blob in survey.blobs[engine]),
        )


def _removed(survey: Survey) -> Iterator[RemovedLine]:
    stored = survey.listing.stored
    for ref in survey.removable_releases():
        size_bytes = stored.sizes[layout.release(ref)]
        engine = survey.facts.releases[ref].engine
        yield RemovedLine(
            kind=Kind.RELEASE,
            name=str(ref),
            what=f"engine {engine.short}",
            size_bytes=size_bytes,
            files=1,
        )
    left = survey.removable_blobs()
    going = survey.removable_engines()
    for engine, blobs in survey.reader.blobs_of(going, survey.facts, must_be_whole=False):
        own = blobs & left
        left -= own
        documents = stored.documents_of(engine)
        products = ", ".join(sorted(map(str, survey.products_of(engine))))
        yield RemovedLine(
            kind=Kind.ENGINE,
            name=str(engine),
            what=products or "left of an engine without a record",
            size_bytes=sum(stored.blobs[b] for b in own) + sum(stored.sizes[n] for n in documents),
            files=len(own) + len(documents),
        )
    for digest in sorted(left):
        yield RemovedLine(
            kind=Kind.BLOB,
            name=str(digest),
            what="of no engine",
            size_bytes=stored.blobs[digest],
            files=1,
        )
    if survey.listing.old_touches:
        count = len(survey.listing.old_touches)
        yield RemovedLine(
            kind=Kind.TOUCH, name=f"{count} notes", what="of long ago", size_bytes=0, files=count
        )


def _trash(survey: Survey, *, purgeable_only: bool) -> tuple[int, int]:
    trashed = survey.listing.trashed
    if not purgeable_only:
        sizes = [*trashed.blobs.values(), *trashed.sizes.values()]
        return len(sizes) + len(survey.listing.discarded_touches), sum(sizes)
    old = [
        size
        for name, size in purgeable(survey)
        if name not in trashed.young and _blob(name) not in trashed.young
    ]
    return len(old), sum(old)


def _blob(name: str) -> Digest | None:
    prefix = f"{layout.BLOBS}/"
    return layout.digest_of(name.removeprefix(prefix)) if name.startswith(prefix) else None
