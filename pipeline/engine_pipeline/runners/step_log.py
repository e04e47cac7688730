"""The text of one step: lines from its process, a bounded log file, the last lines in memory."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOG_LIMIT_BYTES = 16 << 20
_LINE_LIMIT_BYTES = 64 << 10
# A tool that names its trouble and then unwinds leaves it a traceback or two above the end.
_TAIL_LINES = 100


class Lines:
    """Cuts a stream of pieces into lines; a line without end is cut at 64 KiB."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[str]:
        """The lines that `piece` completes; an empty piece ends the stream."""
        self._rest += piece
        # Carriage returns redraw a progress bar: each is a line of its own here.
        *whole, self._rest = self._rest.replace(b"\r", b"\n").split(b"\n")
        if self._rest and (not piece or len(self._rest) > _LINE_LIMIT_BYTES):
            whole.append(self._rest)
            self._rest = b""
        for line in whole:
            if line:
                yield line.decode(errors="replace")


class StepLog:
    """A log file that stops growing at 16 MiB, and the last 100 lines whatever happens.

    Args:
        stream: open for writing; the caller closes it.
    """

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._left = _LOG_LIMIT_BYTES
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)

    def add(self, line: str) -> None:
        """Keep one line."""
        self._tail.append(line)
        data = line.encode() + b"\n"
        if self._left <= 0:
            return
        self._left -= len(data)
        self._stream.write(data if self._left > 0 else b"[log cut here: it reached 16 MiB]\n")

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines."""
        return tuple(self._tail)
