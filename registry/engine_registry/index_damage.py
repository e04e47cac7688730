"""What an index could not read: named, left out of its answers, and tried again each time."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from engine_registry.index_file import read_meta, write_meta

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable

    from engine_registry.errors import EngineCIError

_NAME = "damaged"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Damaged:
    """An engine's record or attachment, or a product's release, that is not whole.

    Attributes:
        engine: its digest; empty for a release.
        product: of the release; empty for an engine.
        reference, message, hint: as of the error.
    """

    engine: str = ""
    product: str = ""
    reference: str
    message: str
    hint: str

    @classmethod
    def of(cls, error: EngineCIError, *, engine: str = "", product: str = "") -> Damaged:
        """What an error says of one of them."""
        said = {"reference": error.name, "message": error.message, "hint": error.hint}
        return cls(engine=engine, product=product, **said)


def read_damaged(connection: sqlite3.Connection) -> tuple[Damaged, ...]:
    """What was not whole at the last refresh."""
    return tuple(Damaged(**item) for item in json.loads(read_meta(connection, _NAME) or "[]"))


def write_damaged(connection: sqlite3.Connection, damaged: Iterable[Damaged]) -> None:
    """Keep that for the next one."""
    write_meta(connection, _NAME, json.dumps([asdict(item) for item in sorted(set(damaged))]))
