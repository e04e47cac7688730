"""What is still to be delivered where, in one SQLite file: survives the process, may be deleted.

A row is due until the delivery succeeded *and* that is written here. Whoever dies in between
delivers again, under the same delivery id: at least once. Deleting the file loses no fact, since
all are in the registry: they are read again, and those that still count are delivered again.
"""

from __future__ import annotations

import fcntl
import os
import uuid
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from engine_pipeline.tracking.due import Due, Logged, Standing
from engine_pipeline.tracking.facts import Fact
from engine_pipeline.tracking.sqlite_file import SqliteFile
from engine_registry.errors import Conflict

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from engine_pipeline.tracking.port import Destination

_SCHEMA = """
CREATE TABLE IF NOT EXISTS position (stream TEXT PRIMARY KEY, at TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS fact (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, at TEXT NOT NULL, body TEXT);
CREATE TABLE IF NOT EXISTS destination (
    name TEXT PRIMARY KEY, seq INTEGER NOT NULL, failures INTEGER NOT NULL DEFAULT 0,
    rests_until TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS due (
    destination TEXT NOT NULL, seq INTEGER NOT NULL, at TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, not_before TEXT NOT NULL DEFAULT '', error TEXT,
    PRIMARY KEY (destination, seq)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS due_order ON due (destination, attempts, at, seq);
CREATE TABLE IF NOT EXISTS log (
    at TEXT NOT NULL, destination TEXT NOT NULL, delivery TEXT NOT NULL, fact TEXT NOT NULL,
    attempt INTEGER NOT NULL, outcome TEXT NOT NULL, detail TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS log_order ON log (destination, at);
"""
_LOG_KEPT = timedelta(days=90)
_NAMESPACE = uuid.UUID("3d1d31f8-5b0a-5c3e-9d53-6f7c1a2b9e40")


class Outbox:
    """One outbox; safe to use from several threads.

    Args:
        path: of the file; it and its folder are made when missing, readable by their owner only.
        registry: identifies the registry, so that delivery ids of two never meet.
    """

    def __init__(self, path: Path, registry: str) -> None:
        self._path = path
        self._registry = registry
        self._file = SqliteFile(path, _SCHEMA)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Be the only one who delivers from this outbox; ends with the process, however it ends.

        Raises:
            Conflict: somebody else does at this moment (`delivery-running`).
        """
        with self._path.with_suffix(".lock").open("a+") as stream:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                stream.seek(0)
                raise Conflict(
                    f"{self._path}: process {stream.read(20).strip() or '?'} delivers from it now",
                    hint="let it finish; what is due is delivered by whoever comes next",
                    reference="delivery-running",
                ) from error
            stream.truncate(0)
            stream.write(str(os.getpid()))
            stream.flush()
            yield

    def knows(self, fact_id: str) -> bool:
        """See `feed.Memory`."""
        return bool(self._file.rows("SELECT 1 FROM fact WHERE id = ?", fact_id))

    def position(self, stream: str) -> str | None:
        """See `feed.Memory`."""
        rows = self._file.rows("SELECT at FROM position WHERE stream = ?", stream)
        return str(rows[0][0]) if rows else None

    def take_in(self, facts: Iterable[Fact], positions: Mapping[str, str]) -> int:
        """Keep facts and how far was read, together; how many were new."""
        with self._file.writing() as db:
            before = db.total_changes
            db.executemany(
                "INSERT OR IGNORE INTO fact (id, at, body) VALUES (?, ?, ?)",
                [(f.id, _text(f.at), f.model_dump_json()) for f in facts],
            )
            added = db.total_changes - before
            db.executemany("INSERT OR REPLACE INTO position VALUES (?, ?)", positions.items())
        return added

    def register(self, names: Iterable[str]) -> None:
        """Let destinations that were never seen before start after the facts that are here now."""
        with self._file.writing() as db:
            last = db.execute("SELECT coalesce(max(seq), 0) FROM fact").fetchone()[0]
            db.executemany(
                "INSERT OR IGNORE INTO destination (name, seq) VALUES (?, ?)",
                [(name, last) for name in names],
            )

    def enrol(self, destination: Destination, now: datetime) -> int:
        """Make due what a destination wants of the facts it has not looked at yet; how many."""
        oldest = "" if destination.max_age is None else _text(now - destination.max_age)
        self.register([destination.name])
        with self._file.writing() as db:
            last = db.execute("SELECT coalesce(max(seq), 0) FROM fact").fetchone()[0]
            wanted = [
                (destination.name, seq, at)
                for seq, at, body in db.execute(
                    "SELECT seq, at, body FROM fact WHERE at >= ? AND seq > "
                    "(SELECT seq FROM destination WHERE name = ?)",
                    (oldest, destination.name),
                )
                if destination.wants(Fact.model_validate_json(body))
            ]
            db.executemany(
                "INSERT OR IGNORE INTO due (destination, seq, at) VALUES (?, ?, ?)", wanted
            )
            db.execute("UPDATE destination SET seq = ? WHERE name = ?", (last, destination.name))
        return len(wanted)

    def due(self, destination: str, now: datetime, limit: int = 100) -> list[Due]:
        """What is due at `now`, least often tried first, then oldest first."""
        rows = self._file.rows(
            "SELECT seq, body, attempts FROM due JOIN fact USING (seq) WHERE destination = ? "
            "AND not_before <= ? ORDER BY attempts, due.at, seq LIMIT ?",
            destination,
            _text(now),
            limit,
        )
        found = [(seq, Fact.model_validate_json(body), attempts) for seq, body, attempts in rows]
        return [
            Due(seq=seq, fact=f, attempts=attempts, delivery=self.delivery_id(destination, f.id))
            for seq, f, attempts in found
        ]

    def delivery_id(self, destination: str, fact_id: str) -> str:
        """The id of a delivery: a function of what is told to whom."""
        return str(uuid.uuid5(_NAMESPACE, f"{self._registry}\n{destination}\n{fact_id}"))

    def settle(
        self, destination: str, due: Due, *, outcome: str, detail: str, now: datetime, tries: int
    ) -> None:
        """A delivery is over, for better or worse; its last attempt is logged."""
        with self._file.writing() as db:
            db.execute("DELETE FROM due WHERE destination = ? AND seq = ?", (destination, due.seq))
            if outcome == "sent":
                db.execute(
                    "UPDATE destination SET failures = 0, rests_until = NULL WHERE name = ?",
                    (destination,),
                )
            self._note(db, destination, due, due.attempts + tries, outcome, detail, now)

    def put_off(
        self,
        destination: str,
        due: Due,
        *,
        until: datetime,
        only_this: bool,
        detail: str,
        now: datetime,
        tries: int,
    ) -> None:
        """A delivery did not succeed: until then it waits, or the whole destination does."""
        attempts = due.attempts + tries
        with self._file.writing() as db:
            db.execute(
                "UPDATE due SET attempts = ?, not_before = ?, error = ? "
                "WHERE destination = ? AND seq = ?",
                (attempts, _text(until), detail[:500], destination, due.seq),
            )
            if not only_this:
                db.execute(
                    "UPDATE destination SET failures = failures + 1, rests_until = ? "
                    "WHERE name = ?",
                    (_text(until), destination),
                )
            self._note(db, destination, due, attempts, "failed", detail, now)

    def failures(self, destination: str) -> int:
        """How many runs in a row ended with a failure there."""
        rows = self._file.rows("SELECT failures FROM destination WHERE name = ?", destination)
        return int(rows[0][0]) if rows else 0

    def standing(self, destination: str) -> Standing:
        """What waits for a destination, and why."""
        waiting = self._file.rows("SELECT count(*) FROM due WHERE destination = ?", destination)[0][
            0
        ]
        rests = self._file.rows("SELECT rests_until FROM destination WHERE name = ?", destination)
        error = self._file.rows(
            "SELECT error FROM due WHERE destination = ? AND error IS NOT NULL "
            "ORDER BY attempts DESC LIMIT 1",
            destination,
        )
        until = datetime.fromisoformat(rests[0][0]) if rests and rests[0][0] else None
        return Standing(
            waiting=waiting, rests_until=until, error=str(error[0][0]) if error else None
        )

    def log(self, destination: str | None, limit: int) -> list[Logged]:
        """The newest attempts, oldest of them first."""
        rows = self._file.rows(
            "SELECT at, destination, delivery, fact, attempt, outcome, detail FROM log "
            "WHERE ?1 IS NULL OR destination = ?1 ORDER BY rowid DESC LIMIT ?2",
            destination,
            limit,
        )
        return [
            Logged(
                at=datetime.fromisoformat(at),
                destination=name,
                delivery=delivery,
                fact=fact,
                attempt=attempt,
                outcome=outcome,
                detail=detail,
            )
            for at, name, delivery, fact, attempt, outcome, detail in reversed(rows)
        ]

    def forget_told(self) -> None:
        """Drop the text of facts that nobody waits for; their ids stay."""
        with self._file.writing() as db:
            db.execute(
                "UPDATE fact SET body = NULL WHERE body IS NOT NULL "
                "AND seq <= (SELECT coalesce(min(seq), 0) FROM destination) "
                "AND seq NOT IN (SELECT seq FROM due)"
            )

    def _note(
        self,
        db: sqlite3.Connection,
        destination: str,
        due: Due,
        attempt: int,
        outcome: str,
        detail: str,
        now: datetime,
    ) -> None:
        row = (_text(now), destination, due.delivery, due.fact.id, attempt, outcome, detail[:500])
        db.execute("INSERT INTO log VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        db.execute(
            "DELETE FROM log WHERE destination = ? AND at < ?",
            (destination, _text(now - _LOG_KEPT)),
        )


def _text(moment: datetime) -> str:
    """In one form and one zone, so that texts compare as the times do."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
