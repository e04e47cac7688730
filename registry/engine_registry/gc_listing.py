"""One look at every stored name, sorted by what it belongs to: the ground a collection stands on.

Taken before any root is read: whatever is written afterwards is not in it and cannot be removed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.errors import InvalidInput
from engine_registry.refs import ProductRef, ReleaseRef
from engine_registry.touched import Act, parse

if TYPE_CHECKING:
    from datetime import timedelta

    from engine_registry.digest import Digest
    from engine_registry.store import AgedFile, Trash

_TRASH = f"{layout.TRASH}/"
# `records/<2>/<engine>/<key>.json`, `keys/<2>/<key>/<engine>.json`, `releases/<m>/<t>/<n>.json`
_PARTS = 4


@dataclass(slots=True)
class Shelf:
    """The names in the store, or those in the trash.

    Attributes:
        blobs: size of each.
        records: build keys of each engine's records.
        keys: build keys that lead to each engine.
        referrers: manifests attached to each manifest.
        young: blobs and documents written or discarded within the grace period, by digest or name.
        youngest: age of the youngest document of each engine.
        sizes: of documents that can be removed, by name.
    """

    blobs: dict[Digest, int] = field(default_factory=dict)
    records: dict[Digest, set[Digest]] = field(default_factory=dict)
    keys: dict[Digest, set[Digest]] = field(default_factory=dict)
    referrers: dict[Digest, set[Digest]] = field(default_factory=dict)
    releases: set[ReleaseRef] = field(default_factory=set)
    retired: set[ReleaseRef] = field(default_factory=set)
    young: set[Digest | str] = field(default_factory=set)
    youngest: dict[Digest, timedelta] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def engines(self) -> set[Digest]:
        """Everything that documents speak of as of an engine, whole or not."""
        return {*self.records, *self.keys, *self.referrers}

    def documents_of(self, engine: Digest) -> list[str]:
        """An engine's own documents here, in the order in which they are removed."""
        names = [layout.key(key, engine) for key in sorted(self.keys.get(engine, ()))]
        names += [layout.record(engine, key) for key in sorted(self.records.get(engine, ()))]
        names += [
            layout.referrer(engine, attached) for attached in sorted(self.referrers.get(engine, ()))
        ]
        return names


@dataclass(slots=True)
class Listing:
    """Both shelves, and what was touched.

    Attributes:
        grace: what is younger is left alone.
        touched: age of the youngest entry of each engine, removals not counted.
        old_touches: entries that nobody needs any more.
        discarded_touches: entries in the trash.
    """

    grace: timedelta
    stored: Shelf = field(default_factory=Shelf)
    trashed: Shelf = field(default_factory=Shelf)
    touched: dict[Digest, timedelta] = field(default_factory=dict)
    old_touches: list[str] = field(default_factory=list)
    discarded_touches: list[str] = field(default_factory=list)

    def is_in_use(self, engine: Digest) -> bool:
        """Whether anything of the engine was written or anybody touched it within the grace."""
        written = self.stored.youngest.get(engine, self.grace)
        return min(written, self.touched.get(engine, self.grace)) < self.grace


def list_registry(trash: Trash, grace: timedelta, keep_touches: timedelta) -> Listing:
    """Look at every name.

    Args:
        trash: the port that tells ages.
        grace: what is younger than this is left alone.
        keep_touches: how long entries of touches are of use.
    """
    listing = Listing(grace=grace)
    for file in trash.aged():
        is_trashed = file.name.startswith(_TRASH)
        shelf = listing.trashed if is_trashed else listing.stored
        name = file.name.removeprefix(_TRASH) if is_trashed else file.name
        kind, _, rest = name.partition("/")
        if kind == layout.TOUCHED:
            _place_touch(listing, name, file, keep_touches, is_trashed)
        elif kind == "blobs":
            digest = layout.digest_of(rest.removeprefix("sha256/"))
            if digest is not None and layout.blob(digest) == name:
                shelf.blobs[digest] = file.size_bytes
                if file.age < grace:
                    shelf.young.add(digest)
        elif _place_release(shelf, name) or _place_engine(shelf, name, file.age):
            shelf.sizes[name] = file.size_bytes
            if file.age < grace:
                shelf.young.add(name)
    return listing


def _place_engine(shelf: Shelf, name: str, age: timedelta) -> bool:
    """Whether the name is one of an engine's documents; if it is, it is put with its engine."""
    parts = name.split("/")
    if len(parts) != _PARTS:
        return False
    outer, inner = layout.digest_of(f"{parts[2]}/"), layout.digest_of(parts[3])
    if outer is None or inner is None or parts[1] != outer.hex[:2]:
        return False
    match parts[0]:
        case layout.RECORDS:
            engine, place, other = outer, shelf.records, inner
        case layout.KEYS:
            engine, place, other = inner, shelf.keys, outer
        case layout.REFERRERS:
            engine, place, other = outer, shelf.referrers, inner
        case _:
            return False
    place.setdefault(engine, set()).add(other)
    shelf.youngest[engine] = min(age, shelf.youngest.get(engine, age))
    return True


def _place_release(shelf: Shelf, name: str) -> bool:
    """Whether the name is a release's, or of what is left of one; if it is, it is put there."""
    kind, model, target, child = [*name.split("/"), "", "", ""][:_PARTS]
    number = layout.number_of(child.replace(layout.RETIRED, ".json"))
    if kind != layout.RELEASES or number is None:
        return False
    try:
        ref = ReleaseRef(ProductRef.parse(f"{model}/{target}"), number)
    except InvalidInput:
        return False  # not ours; verification reports it
    where = shelf.retired if child.endswith(layout.RETIRED) else shelf.releases
    where.add(ref)
    return True


def _place_touch(
    listing: Listing, name: str, file: AgedFile, keep_touches: timedelta, is_trashed: bool
) -> None:
    found = parse(name)
    if is_trashed:
        listing.discarded_touches.append(name)
    elif found is not None:
        if file.age >= keep_touches:
            listing.old_touches.append(name)
        if found.act is not Act.REMOVED:
            before = listing.touched.get(found.engine, file.age)
            listing.touched[found.engine] = min(before, file.age)
