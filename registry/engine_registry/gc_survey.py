"""What a collection sees of a registry: listed, read, decided on, followed to the last blob."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.events import ROLLBACK_WINDOW
from engine_registry.gc_facts import Facts, Reader
from engine_registry.gc_listing import Listing, list_registry
from engine_registry.refs import ReleaseRef
from engine_registry.retention import decide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine_registry.digest import Digest
    from engine_registry.refs import ProductRef
    from engine_registry.registry import Registry
    from engine_registry.retention import Retention

    # The rules of a product; None: it has none, and everything of it is kept.
    Rules = Callable[[ProductRef], Retention | None]

# An index that was not refreshed for so long is built anew.
KEEP_TOUCHES = timedelta(days=60)


@dataclass(slots=True)
class Survey:
    """One look at a whole registry.

    Attributes:
        releases: what is kept, with reasons.
        engines: what is kept, with reasons.
        blobs: what each kept engine needs.
        reachable: all blobs that kept engines need.
    """

    listing: Listing
    facts: Facts
    reader: Reader
    releases: dict[ReleaseRef, tuple[str, ...]] = field(default_factory=dict)
    engines: dict[Digest, tuple[str, ...]] = field(default_factory=dict)
    blobs: dict[Digest, set[Digest]] = field(default_factory=dict)
    reachable: set[Digest] = field(default_factory=set)

    def removable_releases(self) -> list[ReleaseRef]:
        """Stored releases that nothing keeps, in order."""
        stored = self.listing.stored
        gone = stored.releases & self.facts.digests.keys() - self.releases.keys()
        return sorted(ref for ref in gone if layout.release(ref) not in stored.young)

    def removable_engines(self) -> list[Digest]:
        """Engines and leftovers of engines with documents in the store that nothing keeps."""
        return sorted(
            engine
            for engine in self.listing.stored.engines()
            if engine not in self.engines
            and engine not in self.reachable  # attached to something that is kept
            and not self.listing.is_in_use(engine)
        )

    def removable_blobs(self) -> set[Digest]:
        """Stored blobs that no kept engine needs and that were not stored just now."""
        stored = self.listing.stored
        return stored.blobs.keys() - self.reachable - stored.young

    def blobs_in_sight(self) -> set[Digest]:
        """Blobs of engines that readers see, kept or not: documents go before their blobs."""
        visible = self.listing.stored.engines() - self.engines.keys()
        found: set[Digest] = set()
        for _, blobs in self.reader.blobs_of(visible, self.facts, must_be_whole=False):
            found |= blobs
        return found

    def products_of(self, engine: Digest) -> set[ProductRef]:
        """Whose engine it is, as its records say."""
        return {one.product for one in self.facts.built.get(engine, [])}

    def restorable_engines(self) -> list[Digest]:
        """Kept engines of which something lies in the trash and not in the store."""
        stored, trashed = self.listing.stored, self.listing.trashed
        lacking = trashed.blobs.keys() - stored.blobs.keys()
        lacking |= {
            subject
            for subject in trashed.engines()
            if any(name not in stored.sizes for name in trashed.documents_of(subject))
        }
        if not lacking:
            return []
        return sorted(
            engine
            for engine, blobs in self.blobs.items()
            if engine in lacking or not lacking.isdisjoint(blobs)
        )

    def restorable_releases(self) -> list[ReleaseRef]:
        """Kept releases that lie in the trash and not in the store."""
        lost = self.listing.trashed.releases - self.listing.stored.releases
        return sorted(ref for ref in lost if ref in self.releases)


def survey(registry: Registry, rules: Rules, *, grace: timedelta) -> Survey:
    """Look at everything; nothing is changed.

    Raises:
        IntegrityError: something that is kept is damaged or incomplete.
        NotFound: there is no registry.
    """
    listing = list_registry(registry.stores.trash, grace, KEEP_TOUCHES)
    reader = Reader(registry, listing)
    facts = reader.facts(lambda product: _window(rules(product)))
    found = Survey(listing=listing, facts=facts, reader=reader)
    now = registry.clock()
    reasons: dict[Digest, list[str]] = {}
    for product in facts.products:
        kept = decide(product, rules(product.product), now=now, grace=grace)
        for number, why in kept.releases.items():
            found.releases[ReleaseRef(product.product, number)] = why
        for engine, why in kept.engines.items():
            reasons.setdefault(engine, []).extend(why)
    found.engines = {engine: tuple(dict.fromkeys(why)) for engine, why in reasons.items()}
    _follow(found, sorted(found.engines))
    return found


@dataclass(slots=True)
class Named:
    """What was named of one product since it was looked at."""

    numbers: set[int] = field(default_factory=set)
    engines: set[Digest] = field(default_factory=set)


def named_since(registry: Registry, product: ProductRef, seen: Survey) -> Named:
    """What new releases, moved channels and new holds of a product name: the cheap second look."""
    found = Named()
    held = registry.holds.held(product)
    found.numbers |= held.keys()
    children = registry.stores.documents.children(layout.releases(product))
    for number in filter(None, map(layout.number_of, children)):
        ref = ReleaseRef(product, number)
        if ref not in seen.listing.stored.releases:
            found.engines.add(registry.releases.release(ref).content.engine)
    for channel in registry.channels.channels(product):
        state = registry.channels.state(channel)
        if state.number == seen.facts.event_numbers.get(channel):
            continue
        found.numbers |= {approval.number for approval in state.approvals}
        live = [entry.live for entry in state.history]
        live += [state.pending.to] if state.pending else []
        found.numbers |= {one.number for one in live}
        found.engines |= {one.engine for one in live}
    for number in found.numbers:
        release = seen.facts.releases.get(ReleaseRef(product, number))
        found.engines |= {release.engine} if release else set()
    return found


def _follow(found: Survey, engines: Iterable[Digest]) -> None:
    for engine, blobs in found.reader.blobs_of(engines, found.facts, must_be_whole=True):
        found.blobs[engine] = blobs
        found.reachable |= blobs


def _window(rules: Retention | None) -> int:
    return ROLLBACK_WINDOW if rules is None else rules.live_per_channel
