"""Garbage collection: look, discard what no root reaches, purge it later.

Why nothing that is reachable is ever lost, with any number of writers and collectors at work:

1. Only what was old *and* unreachable when it was listed is discarded, and only if nobody named it
   since; documents first, blobs when two looks in a row found them unreachable and no document in
   sight needs them.
2. To discard is to move: what is discarded can be put back whole. After discarding, the collector
   looks at all roots again and puts back what somebody named meanwhile; the writer, after naming
   something, looks whether it is still there (`rescue`). At least one of them sees the other.
3. Only what has lain in the trash for the grace period is purged, after one more look at all roots.
   No writer sees what is in the trash, so nothing new can come to rest on it.

Each step may die anywhere and be run again. Events, pointers and decisions on sets are never
removed.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.documents import seal
from engine_registry.errors import DocumentConflict
from engine_registry.gc_plan import Plan, plan_of, purgeable
from engine_registry.gc_survey import KEEP_TOUCHES, Survey, named_since, survey
from engine_registry.retired import Retired
from engine_registry.touched import Act

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_registry.digest import Digest
    from engine_registry.gc_survey import Rules
    from engine_registry.record import Actor
    from engine_registry.refs import ReleaseRef
    from engine_registry.registry import Registry

_LOG = logging.getLogger(__name__)

# Longer than any upload, gate or deployment is expected to take between two writes.
GRACE = timedelta(days=1)
_REASON = "kept by no root and no rule of retention"
_AT_ONCE = timedelta(0)


@dataclass(slots=True, kw_only=True)
class Collected:
    """What a collection did.

    Attributes:
        plan: what it saw before it began.
        restored: files put back out of the trash because something names them again.
        put_off: releases and engines that somebody named while the collection was at work.
    """

    plan: Plan
    discarded_files: int = 0
    purged_files: int = 0
    purged_bytes: int = 0
    restored: int = 0
    put_off: tuple[str, ...] = ()


class Collector:
    """Collects the garbage of one registry.

    Args:
        registry: what to collect in.
        rules: the retention of a product; None: everything of it is kept.
        actor: who is named in what is left of a removed release.
        grace: how long anything written, touched or discarded is left alone.
        in_trash: how long anything stays in the trash; default: the grace period.
        say: told what is being done.
    """

    def __init__(
        self,
        registry: Registry,
        rules: Rules,
        *,
        actor: Actor,
        grace: timedelta = GRACE,
        in_trash: timedelta | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._registry = registry
        self._rules = rules
        self._actor = actor
        self._grace = grace
        self._in_trash = grace if in_trash is None else in_trash
        self._say = say
        self._trash = registry.stores.trash

    def plan(self) -> Plan:
        """What would be kept, removed, restored and purged now; nothing is changed.

        Raises:
            IntegrityError: something that is kept is damaged or incomplete.
        """
        return plan_of(self._look())

    def discard(self) -> Collected:
        """Put everything into the trash that nothing keeps.

        Raises:
            IntegrityError: something that is kept is damaged or incomplete; nothing was removed.
        """
        seen = self._look()
        done = Collected(plan=plan_of(seen))
        self._say("discarding releases and engines")
        put_off: set[str] = set()
        done.discarded_files += self._discard_releases(seen, put_off)
        done.discarded_files += self._discard_engines(seen, put_off)
        done.discarded_files += sum(
            self._trash.discard(name, KEEP_TOUCHES) for name in seen.listing.old_touches
        )
        if candidates := seen.removable_blobs():
            done.discarded_files += self._discard_blobs(candidates, seen)
        done.put_off = tuple(sorted(put_off))
        if done.discarded_files or done.plan.restored:
            done.restored = self._restore(self._look())
        return done

    def purge(self) -> Collected:
        """Put back what is reached again, and remove for good what has lain long enough.

        Raises:
            IntegrityError: something that is kept is damaged or incomplete; nothing was removed.
        """
        seen = self._look()
        done = Collected(plan=plan_of(seen))
        done.restored = self._restore(seen)
        self._say("purging")
        for ref in sorted(seen.listing.trashed.releases & seen.facts.digests.keys()):
            if ref not in seen.releases:
                self._leave_word(ref, seen)
        for name, size_bytes in purgeable(seen):
            if self._trash.purge(name, self._in_trash):
                done.purged_files += 1
                done.purged_bytes += size_bytes
        return done

    def _look(self) -> Survey:
        self._say("looking at every name and every root")
        return survey(self._registry, self._rules, grace=self._grace)

    def _discard_releases(self, seen: Survey, put_off: set[str]) -> int:
        count = 0
        for product, refs in groupby(seen.removable_releases(), key=lambda ref: ref.product):
            named = named_since(self._registry, product, seen)
            for ref in refs:
                if ref.number in named.numbers:
                    put_off.add(str(ref))
                    continue
                self._leave_word(ref, seen)
                count += self._trash.discard(layout.release(ref), self._grace)
        listing = seen.listing
        for ref in sorted(listing.stored.retired & listing.stored.releases & seen.releases.keys()):
            self._trash.discard(layout.retired(ref), _AT_ONCE)  # the release was put back
        return count

    def _leave_word(self, ref: ReleaseRef, seen: Survey) -> None:
        """Say that a release is gone on purpose, before it goes."""
        gone = Retired(
            model=ref.product.model,
            target=ref.product.target,
            number=ref.number,
            release=seen.facts.digests[ref],
            engine=seen.facts.releases[ref].engine,
            reason=_REASON,
            actor=self._actor,
            at=self._registry.clock(),
        )
        with suppress(DocumentConflict):  # said before
            self._registry.stores.documents.create(layout.retired(ref), seal(gone))

    def _discard_engines(self, seen: Survey, put_off: set[str]) -> int:
        # A release that stayed, whatever the reason, needs its engine.
        released = {
            seen.facts.releases[ref].engine
            for ref in seen.facts.digests.keys() - seen.releases.keys()
            if self._registry.stores.documents.exists(layout.release(ref))
        }
        going = [engine for engine in seen.removable_engines() if engine not in released]
        going.sort(key=lambda engine: sorted(seen.products_of(engine)))
        count = 0
        for products, engines in groupby(going, key=seen.products_of):
            named = [named_since(self._registry, product, seen) for product in sorted(products)]
            for engine in engines:
                if any(engine in one.engines for one in named):
                    put_off.add(str(engine))
                else:
                    count += self._discard_documents(engine, seen)
        return count

    def _discard_documents(self, engine: Digest, seen: Survey) -> int:
        """Make an engine invisible: key links, records, then what is attached."""
        self._registry.touches.note(engine, Act.REMOVED)
        count = 0
        for name in seen.listing.stored.documents_of(engine):
            if self._trash.discard(name, self._grace):
                count += 1
            elif self._registry.stores.documents.exists(name):
                _LOG.warning("engine %s: %s has to stay for now; left alone", engine.short, name)
                break
        return count

    def _discard_blobs(self, candidates: set[Digest], before: Survey) -> int:
        now = self._look()
        self._say("discarding blobs")
        going = (candidates & now.removable_blobs()) - now.blobs_in_sight()
        manifests = before.listing.stored.engines()
        manifests |= set().union(*before.listing.stored.referrers.values())
        # Manifests first: what still has one is whole.
        ordered = (*sorted(going & manifests), *sorted(going - manifests))
        return sum(self._trash.discard(layout.blob(digest), self._grace) for digest in ordered)

    def _restore(self, seen: Survey) -> int:
        """Put back whatever is kept and lies in the trash, in the order of writing."""
        count = 0
        for engine in seen.restorable_engines():
            names = seen.reader.names_of(engine, seen.facts)
            self._registry.touches.note(engine, Act.RESTORED)
            count += sum(self._trash.restore(name) for name in names)
        for ref in seen.restorable_releases():
            count += self._trash.restore(layout.release(ref))
            self._trash.discard(layout.retired(ref), _AT_ONCE)
        return count
