"""The records of an engine, read back: one per build that gave exactly these bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.ahead import read_all
from engine_registry.documents import unseal
from engine_registry.errors import IntegrityError, NotFound
from engine_registry.record import Record

if TYPE_CHECKING:
    from engine_registry.digest import Digest
    from engine_registry.store import Stores


def read_records(stores: Stores, engine: Digest) -> tuple[Record, ...]:
    """The records of every build that gave this engine, oldest first; empty if none.

    Raises:
        IntegrityError: one is damaged, or lies under another's name.
    """
    folder = layout.records(engine)
    names = [f"{folder}/{child}" for child in stores.documents.children(folder)]
    found = []
    for name, read in zip(names, read_all(stores, stores.documents.read, names), strict=True):
        try:
            record, _ = unseal(read(), Record, name)
        except NotFound:
            continue  # discarded meanwhile
        if layout.record(record.engine, record.build_key) != name:
            raise IntegrityError(
                f"{name}: holds the record of engine {record.engine.short} and build key "
                f"{record.build_key.short}",
                hint="run `enginectl verify` to list every damaged file",
                reference="document-misplaced",
            )
        found.append(record)
    return tuple(sorted(found, key=lambda record: (record.built_at, record.build_key)))
