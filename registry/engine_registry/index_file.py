"""The SQLite file behind the index: its tables, and how a damaged or foreign one is made anew."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING

from engine_registry.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A change of the tables is a change of this name: an index of another kind is made anew.
_KIND = "engine-ci index 2"
# How long to wait for another process that brings the same index up to date.
_WAIT_S = 60

# Every filter of a question is in both of the first two indices, so that a question reads one of
# them from end to end at worst, and none of the rows that do not fit.
_TABLES = """
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS engines (
    digest TEXT PRIMARY KEY, product TEXT NOT NULL, kind TEXT NOT NULL, precision TEXT NOT NULL,
    spec TEXT NOT NULL, size_bytes INTEGER NOT NULL, built_at TEXT NOT NULL, built_by TEXT NOT NULL,
    outcomes TEXT NOT NULL, is_released INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS builds (
    build_key TEXT, engine TEXT, PRIMARY KEY (build_key, engine)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS gates (
    engine TEXT, gate TEXT, outcome TEXT NOT NULL, PRIMARY KEY (engine, gate)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS releases (
    product TEXT, number INTEGER, engine TEXT NOT NULL, PRIMARY KEY (product, number)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settled (note TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS engines_by_age ON engines (
    built_at DESC, digest, product, kind, precision, is_released, outcomes, spec
);
CREATE INDEX IF NOT EXISTS engines_by_product ON engines (
    product, built_at DESC, digest, kind, precision, is_released, outcomes, spec
);
CREATE INDEX IF NOT EXISTS builds_by_engine ON builds (engine);
CREATE INDEX IF NOT EXISTS releases_by_engine ON releases (engine);
"""


@contextmanager
def connected(path: Path, founded: str) -> Iterator[sqlite3.Connection]:
    """A connection to the index of the registry that was founded then, made if need be.

    Nothing is written unless a transaction is begun and committed.

    Raises:
        Unavailable: the file cannot be read or written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _is_usable(path, founded):
            remove(path)
            _make(path, founded)
        with closing(_open(path)) as connection:
            yield connection
    except (sqlite3.Error, OSError) as error:
        raise Unavailable(
            f"index {path}: {error}",
            hint=f"remove {path} and run the same command again",
            reference="index-unusable",
        ) from error


def remove(path: Path) -> None:
    """Remove an index, and the journal that would be played into the next one."""
    for name in (path.name, f"{path.name}-journal"):
        path.with_name(name).unlink(missing_ok=True)


def read_meta(connection: sqlite3.Connection, name: str) -> str | None:
    """A fact that the index keeps on itself."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
    return str(row[0]) if row else None


def write_meta(connection: sqlite3.Connection, name: str, value: str) -> None:
    """Keep such a fact."""
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))


def _open(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)


def _is_usable(path: Path, founded: str) -> bool:
    if not path.exists():
        return False
    try:
        with closing(_open(path)) as connection:
            wants = {"kind": _KIND, "founded": founded}
            return all(read_meta(connection, name) == value for name, value in wants.items())
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise  # somebody is at work on it
        return False
    except sqlite3.DatabaseError:
        return False


def _make(path: Path, founded: str) -> None:
    """Two processes may do this at once: each statement bears being run twice."""
    with closing(_open(path)) as connection:
        connection.executescript(f"BEGIN IMMEDIATE;{_TABLES}COMMIT;")
        for name, value in (("kind", _KIND), ("founded", founded)):
            write_meta(connection, name, value)
