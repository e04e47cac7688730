"""What the rules of retention have to know, read from documents in the store and in the trash.

A document that is damaged ends the collection: what it keeps is not known, so nothing may go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.ahead import read_many
from engine_registry.closure import Sight, name_of, parts_of_engine
from engine_registry.digest import Digest
from engine_registry.documents import unseal
from engine_registry.errors import IntegrityError, NotFound
from engine_registry.events import ROLLBACK_WINDOW, Promoted, RolledBack
from engine_registry.record import Record, Release
from engine_registry.refs import ProductRef, ReleaseRef
from engine_registry.retention import ChannelFacts, EngineFacts, ProductFacts, ReleaseFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from engine_registry.events import ChannelState
    from engine_registry.gc_listing import Listing
    from engine_registry.refs import ChannelRef
    from engine_registry.registry import Registry


@dataclass(frozen=True, slots=True)
class Built:
    """What is needed of a record."""

    build_key: Digest
    product: ProductRef
    record: Record


@dataclass(slots=True)
class Facts:
    """Everything that was read.

    Attributes:
        releases: every release that is stored or in the trash, or that a channel still names.
        built: the records of each engine.
        products: what the rules look at.
        event_numbers: where each channel was when it was read.
    """

    releases: dict[ReleaseRef, ReleaseFacts] = field(default_factory=dict)
    digests: dict[ReleaseRef, Digest] = field(default_factory=dict)
    built: dict[Digest, list[Built]] = field(default_factory=dict)
    products: list[ProductFacts] = field(default_factory=list)
    event_numbers: dict[ChannelRef, int] = field(default_factory=dict)


class Reader:
    """Reads one registry for one collection.

    Args:
        registry: what to read.
        listing: taken before.
    """

    def __init__(self, registry: Registry, listing: Listing) -> None:
        self._registry = registry
        self._listing = listing
        self._sight = Sight(registry.stores)

    def facts(self, live_per_channel: Callable[[ProductRef], int]) -> Facts:
        """Everything that the rules look at.

        Args:
            live_per_channel: how many releases that were live the rules of a product keep; more
                than a channel's state remembers are looked up in its log.

        Raises:
            IntegrityError: a document is damaged.
        """
        facts = Facts()
        self._read_records(facts)
        self._read_releases(facts)
        channels: dict[ProductRef, list[ChannelFacts]] = {}
        for ref in self._registry.channels.channels():
            found = self._channel(ref, facts, live_per_channel(ref.product))
            channels.setdefault(ref.product, []).append(found)
        by_product: dict[ProductRef, list[ReleaseFacts]] = {}
        for named, release in facts.releases.items():
            by_product.setdefault(named.product, []).append(release)
        engines: dict[ProductRef, dict[Digest, EngineFacts]] = {}
        for engine, built in facts.built.items():
            for product in {one.product for one in built}:
                engines.setdefault(product, {})[engine] = self._engine(engine, built)
        for product in sorted({*channels, *by_product, *engines}):
            facts.products.append(
                ProductFacts(
                    product=product,
                    releases=tuple(sorted(by_product.get(product, []), key=lambda r: r.number)),
                    channels=tuple(channels.get(product, [])),
                    engines=tuple(engines.get(product, {}).values()),
                    held={n: h.reason for n, h in self._registry.holds.held(product).items()},
                )
            )
        return facts

    def blobs_of(
        self, engines: Iterable[Digest], facts: Facts, *, must_be_whole: bool
    ) -> Iterator[tuple[Digest, set[Digest]]]:
        """Each of these engines and the blobs that it needs, in the same order.

        Raises:
            IntegrityError: a manifest is damaged; or, of an engine that must be whole, missing.
        """
        yield from read_many(
            self._registry.stores,
            lambda engine: (engine, self._blobs_of(engine, facts, must_be_whole)),
            engines,
        )

    def names_of(self, engine: Digest, facts: Facts) -> list[str]:
        """Every name of a whole engine in the order of writing, each once; raises as `blobs_of`."""
        parts = dict.fromkeys(self._parts_of(engine, facts, must_be_whole=True))
        return list(map(name_of, parts))

    def _parts_of(
        self, engine: Digest, facts: Facts, *, must_be_whole: bool
    ) -> Iterator[Digest | str]:
        def manifest(digest: Digest) -> bytes | None:
            data = self._sight.manifest(digest)
            if data is None and digest == engine and must_be_whole:
                raise IntegrityError(
                    f"engine {engine}: is to be kept, but has no manifest: what belongs to it is "
                    "not known",
                    hint="run `enginectl verify`, put its blobs back from a copy of the registry "
                    "or build it again; nothing was removed",
                    reference="kept-engine-incomplete",
                )
            return data

        return parts_of_engine(
            engine,
            records=[
                (one.build_key, f"{one.record.lock} {one.record.provenance}".encode())
                for one in facts.built.get(engine, [])
            ],
            referrers=self._referrers,
            manifest=manifest,
        )

    def _blobs_of(self, engine: Digest, facts: Facts, must_be_whole: bool) -> set[Digest]:
        parts = self._parts_of(engine, facts, must_be_whole=must_be_whole)
        return {part for part in parts if isinstance(part, Digest)}

    def _referrers(self, subject: Digest) -> list[Digest]:
        shelves = (self._listing.stored, self._listing.trashed)
        return sorted(set().union(*(shelf.referrers.get(subject, ()) for shelf in shelves)))

    def _read_records(self, facts: Facts) -> None:
        stored, trashed = self._listing.stored.records, self._listing.trashed.records
        wanted = [
            (engine, key)
            for engine in stored | trashed
            for key in stored.get(engine, set()) | trashed.get(engine, set())
        ]
        for found in read_many(self._registry.stores, self._record, wanted):
            if found is not None:
                facts.built.setdefault(found.record.engine, []).append(found)

    def _record(self, wanted: tuple[Digest, Digest]) -> Built | None:
        engine, key = wanted
        name = layout.record(engine, key)
        try:
            record, _ = unseal(self._sight.read(name), Record, name)
        except NotFound:
            return None  # purged since the listing by another collector
        if (record.engine, record.build_key) != wanted:
            raise _misplaced(name)
        return Built(key, ProductRef(record.model, record.target), record)

    def _read_releases(self, facts: Facts) -> None:
        wanted = sorted({*self._listing.stored.releases, *self._listing.trashed.releases})
        read = read_many(self._registry.stores, self._release, wanted)
        for ref, found in zip(wanted, read, strict=True):
            if found is not None:
                release, digest = found
                facts.releases[ref] = ReleaseFacts(
                    number=ref.number,
                    engine=release.content.engine,
                    created_at=release.created_at,
                )
                facts.digests[ref] = digest

    def _release(self, ref: ReleaseRef) -> tuple[Release, Digest] | None:
        name = layout.release(ref)
        try:
            release, digest = unseal(self._sight.read(name), Release, name)
        except NotFound:
            return None
        if release.name != str(ref):
            raise _misplaced(name)
        return release, digest

    def _channel(self, ref: ChannelRef, facts: Facts, wanted: int) -> ChannelFacts:
        channels = self._registry.channels
        state = channels.state(ref)
        facts.event_numbers[ref] = state.number
        was_live = [entry.live.number for entry in state.history]
        if wanted > len(set(was_live)) and len(was_live) == ROLLBACK_WINDOW:
            moves = [e.change for e, _ in channels.events(ref)]
            was_live = [c.to.number for c in moves if isinstance(c, Promoted | RolledBack)][::-1]
        # A channel names engine and release: what it needs is known even without the release.
        for entry in state.history:
            named = ReleaseRef(ref.product, entry.live.number)
            if named not in facts.releases and named not in self._listing.stored.retired:
                facts.releases[named] = ReleaseFacts(
                    number=named.number, engine=entry.live.engine, created_at=entry.since
                )
        return ChannelFacts(
            name=str(ref),
            was_live=tuple(was_live),
            bad=frozenset(mark.number for mark in state.bad),
            approved=frozenset(approval.number for approval in state.approvals),
            pending=state.pending.to.number if state.pending else None,
            stopped=_stopped(state),
        )

    def _engine(self, engine: Digest, built: list[Built]) -> EngineFacts:
        return EngineFacts(
            engine=engine,
            built_at=max(one.record.built_at for one in built),
            written_ago=self._listing.stored.youngest.get(engine),
            touched_ago=self._listing.touched.get(engine),
        )


def _stopped(state: ChannelState) -> str | None:
    if state.hold is not None:
        return f"on hold: {state.hold.reason}"
    if state.freeze is not None:
        return f"frozen: {state.freeze.reason}"
    return None


def _misplaced(name: str) -> IntegrityError:
    return IntegrityError(
        f"{name}: holds a document of another name",
        hint="run `enginectl verify` to list every damaged file; nothing was removed",
        reference="document-misplaced",
    )
