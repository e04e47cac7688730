"""Adds up bytes of several files, from several threads, into one progress."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_pipeline.progress import Progress

# A report at least this often, however the clock of the progress is set.
REPORT_EVERY_BYTES = 64 << 20


class Tally:
    """Bytes done out of a known total.

    Args:
        progress: told about every change; it may drop what comes too often.
        total: bytes.
    """

    def __init__(self, progress: Progress, total: int) -> None:
        self._progress = progress
        self._total = total
        self._done = 0
        self._lock = Lock()
        progress.update(0, total, "bytes")

    def add(self, count: int) -> None:
        """`count` more bytes; a retry may take some back with a negative count."""
        with self._lock:
            self._done = max(0, self._done + count)
            self._progress.update(min(self._done, self._total), self._total, "bytes")
