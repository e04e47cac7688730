"""An index over one registry: answers what reading many documents would, and decides nothing.

Derived and safe to delete at any time. It lies with the user, not in the registry, because SQLite
needs a local disk. What is new is found through `touched/`, so bringing it up to date costs what
was done since, not what is stored. Writers' clocks may differ by OVERLAP; what a clock that is off
by more hides is found by a rebuild. A note is written before what it tells of: it is followed again
until it is SETTLED.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypeAlias

from engine_registry import layout
from engine_registry.ahead import read_many
from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError, NotFound
from engine_registry.index_damage import Damaged, read_damaged, write_damaged
from engine_registry.index_file import connected, read_meta, remove, write_meta
from engine_registry.index_query import EngineQuery, Found, find_engines, outcomes_text, sortable
from engine_registry.refs import ProductRef, ReleaseRef

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from engine_registry.record import Record
    from engine_registry.registry import Registry
    from engine_registry.touched import Touched

# Records, and the newest report of each gate: when, and its outcome.
_Facts: TypeAlias = "tuple[tuple[Record, ...], dict[str, tuple[str, str]]]"

OVERLAP = timedelta(minutes=15)
SETTLED = timedelta(minutes=3)  # from a note to what it tells of it is milliseconds
# Entries of `touched/` are kept for 60 days (`gc_survey.KEEP_TOUCHES`).
# An index not refreshed for longer is made anew; so is one that is ahead of a clock that went back.
OLDEST = timedelta(days=50)
_BATCH = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class GateNames:
    """How the annotations of an attached report are called: its gate, outcome and time."""

    artifact_type: str
    gate: str
    outcome: str
    created: str


class Index:
    """The index of one registry.

    Args:
        registry: what it is derived from.
        path: the SQLite file; made, and made anew, as needed.
        gates: what reports are attached as.
    """

    def __init__(self, registry: Registry, path: Path, gates: GateNames) -> None:
        self._registry = registry
        self._path = path
        self._gates = gates

    def refresh(
        self, *, rebuild: bool = False, on_read: Callable[[int, int], None] | None = None
    ) -> int:
        """Read what was touched since the last time, or everything; how many engines were read.

        One transaction: killed anywhere, the index is as it was. What is not whole is left out and
        named by `damaged`; it is read again each time.

        Args:
            rebuild: forget what is known.
            on_read: called with engines read so far and in all.

        Raises:
            NotFound: there is no registry.
            Unavailable: the index cannot be written.
        """
        founded = self._founded()
        now = self._registry.clock().astimezone(UTC)
        if rebuild:
            remove(self._path)
        with connected(self._path, founded) as connection:
            connection.execute("BEGIN IMMEDIATE")
            last = read_meta(connection, "refreshed_at")
            since = datetime.fromisoformat(last) if last else None
            is_new = since is None or not -OVERLAP <= now - since <= OLDEST
            if is_new:
                _forget(connection)
            # Listed before anything is read: what is noted from here on is for the next refresh.
            notes = _unsettled(connection, self._registry.touches.since((since or now) - OVERLAP))
            before = () if is_new else read_damaged(connection)
            again = {Digest.parse(item.engine) for item in before if item.engine}
            engines = (
                list(self._registry.engines.all_engines())
                if is_new
                else sorted({note.engine for note in notes} | again)
            )
            products = {item.product for item in before if item.product}
            write_damaged(connection, self._read(connection, engines, products, on_read))
            _settle(connection, notes, now)
            write_meta(connection, "refreshed_at", now.isoformat())
            connection.commit()
        return len(engines)

    def find(self, query: EngineQuery) -> Found:
        """Engines as the index knows them since the last `refresh`."""
        with connected(self._path, self._founded()) as connection:
            return find_engines(connection, query)

    def damaged(self) -> tuple[Damaged, ...]:
        """What could not be read at the last `refresh`, and so is not found."""
        with connected(self._path, self._founded()) as connection:
            return read_damaged(connection)

    def _founded(self) -> str:
        return self._registry.info().created_at.isoformat()

    def _read(
        self,
        connection: sqlite3.Connection,
        engines: Sequence[Digest],
        products: set[str],
        on_read: Callable[[int, int], None] | None,
    ) -> list[Damaged]:
        """Read these engines, and the releases of their products and of `products`; the damage."""
        damaged = []
        read = read_many(self._registry.stores, self._facts, engines)
        for done, (digest, found) in enumerate(zip(engines, read, strict=True), 1):
            products |= _drop(connection, digest)
            if isinstance(found, IntegrityError):
                damaged.append(Damaged.of(found, engine=str(digest)))
            else:
                records, gates = found
                products |= {f"{record.model}/{record.target}" for record in records}
                _keep(connection, digest, records, gates)
            if on_read is not None and (done % _BATCH == 0 or done == len(engines)):
                on_read(done, len(engines))
        for product in sorted(products):
            damaged += self._read_releases(connection, product)
        return damaged

    def _facts(self, digest: Digest) -> _Facts | IntegrityError:
        try:
            return self._whole_facts(digest)
        except IntegrityError as error:
            return error

    def _whole_facts(self, digest: Digest) -> _Facts:
        records = self._registry.engines.records(digest)
        names = self._gates
        newest: dict[str, tuple[str, str]] = {}
        links = self._registry.engines.referrers(digest, names.artifact_type) if records else []
        for link in links:
            found = link.annotations
            entry = (found.get(names.created, ""), found.get(names.outcome, ""))
            gate = found.get(names.gate)
            if gate and entry > newest.get(gate, ("", "")):
                newest[gate] = entry
        return records, newest

    def _read_releases(self, connection: sqlite3.Connection, product: str) -> list[Damaged]:
        ref = ProductRef.parse(product)
        held = set(self._registry.releases.numbers(ref))
        known = {
            number
            for (number,) in connection.execute(
                "SELECT number FROM releases WHERE product = ?", (product,)
            )
        }
        connection.executemany(
            "DELETE FROM releases WHERE product = ? AND number = ?",
            [(product, number) for number in known - held],
        )
        damaged = []
        for number in sorted(held - known):
            try:
                release = self._registry.releases.release(ReleaseRef(ref, number))
            except IntegrityError as error:
                damaged.append(Damaged.of(error, product=product))
            except NotFound:
                continue  # removed meanwhile
            else:
                connection.execute(
                    "INSERT OR REPLACE INTO releases VALUES (?, ?, ?)",
                    (product, number, str(release.content.engine)),
                )
        connection.execute(
            "UPDATE engines SET is_released = EXISTS "
            "(SELECT 1 FROM releases r WHERE r.engine = engines.digest) WHERE product = ?",
            (product,),
        )
        return damaged


def _forget(connection: sqlite3.Connection) -> None:
    for table in ("engines", "builds", "gates", "releases", "settled"):
        connection.execute(f"DELETE FROM {table}")


def _unsettled(connection: sqlite3.Connection, notes: Iterable[Touched]) -> list[Touched]:
    """Those that were not followed yet, or too early to be sure."""
    settled = {name for (name,) in connection.execute("SELECT note FROM settled")}
    return [note for note in notes if note.name not in settled]


def _settle(connection: sqlite3.Connection, notes: Iterable[Touched], now: datetime) -> None:
    """Remember what need not be followed again, as long as it would be met again."""
    connection.executemany(
        "INSERT INTO settled VALUES (?)",
        [(note.name,) for note in notes if now - note.minute >= SETTLED],
    )
    oldest = now - 2 * OVERLAP
    connection.execute(
        "DELETE FROM settled WHERE note < ?", (f"{layout.TOUCHED}/{oldest:%Y-%m-%d/%H%M}",)
    )


def _drop(connection: sqlite3.Connection, digest: Digest) -> set[str]:
    """Forget one engine; the product it was of, whose releases may be gone with it."""
    query = "SELECT product FROM engines WHERE digest = ?"
    products = {product for (product,) in connection.execute(query, (str(digest),))}
    for table, column in (("engines", "digest"), ("builds", "engine"), ("gates", "engine")):
        connection.execute(f"DELETE FROM {table} WHERE {column} = ?", (str(digest),))
    return products


def _keep(
    connection: sqlite3.Connection,
    digest: Digest,
    records: Sequence[Record],
    gates: dict[str, tuple[str, str]],
) -> None:
    """Write one engine down; without records there is none."""
    if not records:
        return
    newest = records[-1]
    connection.execute(
        "INSERT INTO engines VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)",
        (
            str(digest),
            f"{newest.model}/{newest.target}",
            newest.kind,
            newest.precision,
            newest.spec,
            newest.size_bytes,
            sortable(newest.built_at),
            newest.built_by.name,
            outcomes_text(outcome for _, outcome in gates.values()),
        ),
    )
    connection.executemany(
        "INSERT INTO builds VALUES (?, ?)", [(str(r.build_key), str(digest)) for r in records]
    )
    connection.executemany(
        "INSERT INTO gates VALUES (?, ?, ?)",
        [(str(digest), gate, outcome) for gate, (_, outcome) in sorted(gates.items())],
    )
