"""One SQLite file for several threads: every write durable, every transaction whole or absent."""

from __future__ import annotations

import os
import sqlite3
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from engine_registry.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# How long to wait for another process's transaction; each takes milliseconds.
_BUSY_TIMEOUT_S = 10


class SqliteFile:
    """An open file. Every method raises Unavailable (`outbox-unusable`) where SQLite fails.

    Args:
        path: it and its folder are made when missing, readable by their owner only.
        schema: statements that make what is missing.
    """

    def __init__(self, path: Path, schema: str) -> None:
        self._path = path
        self._lock = threading.Lock()
        with self._translated():
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._db = sqlite3.connect(
                path, timeout=_BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            self._db.execute("PRAGMA synchronous=FULL")
            self._db.executescript(schema)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def rows(self, query: str, *values: object) -> list[tuple[Any, ...]]:
        """The rows of one query."""
        with self._lock, self._translated():
            return self._db.execute(query, values).fetchall()

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """A transaction that is committed at the end, and undone by any exception."""
        with self._lock, self._translated():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise Unavailable(
                f"{self._path}: the outbox cannot be used: {error}",
                hint="make room or permit writing there; a damaged outbox may be deleted: see "
                "docs/notifications.md for what is sent again then",
                reference="outbox-unusable",
            ) from error
