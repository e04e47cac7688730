"""Whom a damaged or missing file concerns: engines, releases, channels; as far as can be told."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.ahead import read_many
from engine_registry.closure import Sight
from engine_registry.errors import EngineCIError
from engine_registry.refs import ChannelRef, ReleaseRef

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from engine_registry.digest import Digest
    from engine_registry.mismatch import Mismatch
    from engine_registry.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Affected:
    """An engine that needs a file that is not as it should be.

    Attributes:
        releases: that are of it.
        live: channels where one of them is live.
    """

    engine: Digest
    releases: tuple[ReleaseRef, ...]
    live: tuple[ChannelRef, ...]

    def __str__(self) -> str:
        said = [f"engine {self.engine.short}", *map(str, self.releases)]
        live = f"; live on {', '.join(map(str, self.live))}" if self.live else ""
        return f"{', '.join(said)}{live}"


def affected(registry: Registry, mismatches: Collection[Mismatch]) -> list[Affected]:
    """The engines that need any of these files, in order; reads what belongs to every engine."""
    bad = {mismatch.name for mismatch in mismatches}
    engines = list(_engines(registry))
    names = read_many(registry.stores, partial(_names, registry), engines)
    needing = [
        engine for engine, own in zip(engines, names, strict=True) if not bad.isdisjoint(own)
    ]
    found = {engine: (list[ReleaseRef](), list[ChannelRef]()) for engine in needing}
    if not found:
        return []
    for product in registry.releases.products():
        for number in registry.releases.numbers(product):
            with suppress(EngineCIError):
                ref = ReleaseRef(product, number)
                engine = registry.releases.release(ref).content.engine
                if engine in found:
                    found[engine][0].append(ref)
    for channel in registry.channels.channels():
        with suppress(EngineCIError):
            live = registry.channels.state(channel).live
            if live is not None and live.engine in found:
                found[live.engine][1].append(channel)
    return [
        Affected(engine=engine, releases=tuple(releases), live=tuple(live))
        for engine, (releases, live) in found.items()
    ]


def _engines(registry: Registry) -> Iterator[Digest]:
    with suppress(EngineCIError):
        yield from registry.engines.all_engines()


def _names(registry: Registry, engine: Digest) -> set[str]:
    """What belongs to an engine, as far as that can be followed."""
    names = {layout.blob(engine)}
    with suppress(EngineCIError):
        names.update(Sight(registry.stores).engine(engine))
    return names
