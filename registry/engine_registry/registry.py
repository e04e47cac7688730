"""One registry: engines, releases and channels over the same stores and clock."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.channels import ChannelLog
from engine_registry.documents import unseal
from engine_registry.engines import Engines
from engine_registry.foresight import Notes
from engine_registry.holds import ReleaseHolds
from engine_registry.materialise import from_the_store
from engine_registry.record import RegistryInfo
from engine_registry.releases import Releases
from engine_registry.resolve import Resolved, Resolver
from engine_registry.sets import SetDecisions
from engine_registry.touched import Touches
from engine_registry.urls import stores_at

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_registry.digest import Digest
    from engine_registry.materialise import Near
    from engine_registry.record import Release
    from engine_registry.refs import ProductRef
    from engine_registry.store import Stores


def utc_now() -> datetime:
    """The time now, aware, in UTC."""
    return datetime.now(UTC)


class Registry:
    """The facade that acts use.

    Args:
        stores: the ports of one registry.
        clock: gives the aware UTC time.
        url: what messages call this registry.
        near: see `Engines`.

    Attributes:
        engines: put, find, check, hand out, attach.
        releases: cut and list.
        channels: read and append events.
        holds: keep releases from garbage collection.
        touches: which engines were touched lately.
        sets: what was decided on releases that move together.
        notes: what the next rollback of a channel will look at.
    """

    def __init__(
        self,
        stores: Stores,
        clock: Callable[[], datetime] = utc_now,
        url: str = "memory:",
        near: Near = from_the_store,
    ) -> None:
        self.stores = stores
        self.clock = clock
        self.url = url
        self._near = near
        self.touches = Touches(stores.documents, clock)
        self.engines = Engines(stores, self.touches, near=near)
        self.releases = Releases(stores, self.engines, self.touches)
        self.channels = ChannelLog(stores)
        self.holds = ReleaseHolds(stores)
        self.sets = SetDecisions(stores.documents)
        self.notes = Notes(stores)
        self._resolver = Resolver(stores, self.engines, self.releases, self.channels)

    def over(self, stores: Stores) -> Registry:
        """The same registry, reached through other ports, for one act."""
        return Registry(stores, self.clock, self.url, self._near)

    def info(self) -> RegistryInfo:
        """What this registry says of itself.

        Raises:
            NotFound: there is no registry (`registry-missing`).
        """
        return unseal(self.stores.documents.read(layout.REGISTRY), RegistryInfo, layout.REGISTRY)[0]

    def resolve(self, text: str) -> Resolved:
        """What a digest, a unique prefix, a release or a channel names; see `Resolver`."""
        return self._resolver.resolve(text)

    def resolve_engine(self, text: str) -> Digest:
        """The engine that a reference names; see `Resolver`."""
        return self._resolver.resolve_engine(text)

    def resolve_release(self, text: str, product: ProductRef | None = None) -> Release:
        """The release, of `product` if given, that a reference names; see `Resolver`."""
        return self._resolver.resolve_release(text, product)


def open_registry(
    url: str, clock: Callable[[], datetime] = utc_now, near: Near = from_the_store
) -> Registry:
    """The registry at `file:///abs/dir` or a plain path; nothing is read or created yet.

    Raises:
        InvalidInput: an unknown scheme or a malformed address.
    """
    return Registry(stores_at(url, clock), clock, url, near)
