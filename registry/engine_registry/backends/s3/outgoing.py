"""Bodies of requests that go out piece by piece.

Given bytes, the client would hand all of them to one `sendall`, whose time-out is for the whole:
64 MiB within 30 s or never. So it is for each piece. The client asks for 16 KiB at a time, which
costs more than sending them does; it takes what it gets.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from engine_registry.backends.s3.checksums import Running

if TYPE_CHECKING:
    from engine_registry.backends.s3.address import ChecksumMode

# Stays in the cache of a core from where it was read until it is sent.
PIECE_BYTES = 256 << 10


class Body(ABC):
    """As much of a file object as the client wants of a body."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._at = 0

    def read(self, size: int = -1) -> memoryview:  # noqa: ARG002 pieces are of our size
        """The next piece, good until the one after is asked for; empty at the end."""
        piece = self._piece(self._at, min(PIECE_BYTES, self._length - self._at))
        self._at += len(piece)
        return piece

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go elsewhere: the client measures the length, and rewinds when it is redirected."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._length}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        """Where the next piece begins."""
        return self._at

    @abstractmethod
    def _piece(self, offset: int, length: int) -> memoryview:
        """So many bytes from there, or fewer; none only at the end."""


class BytesBody(Body):
    """Bytes that are in memory."""

    def __init__(self, data: bytes) -> None:
        super().__init__(len(data))
        self._view = memoryview(data)

    def _piece(self, offset: int, length: int) -> memoryview:
        return self._view[offset : offset + length]


class PartBody(Body):
    """A part of an open file, checksummed as it is sent.

    Args:
        fd: the file.
        offset: where the part begins.
        length: how long it is.
        mode: of the checksum.

    Attributes:
        failure: what kept the file from being read, if anything did.
    """

    def __init__(self, fd: int, offset: int, length: int, mode: ChecksumMode) -> None:
        super().__init__(length)
        self._fd = fd
        self._offset = offset
        self._mode = mode
        self._running = Running(mode)
        self._summed = 0
        self._buffer = memoryview(bytearray(min(PIECE_BYTES, length)))
        self.failure: OSError | EOFError | None = None

    def differs(self, value: bytes) -> bool:
        """Whether what was read of the part so far proves that its checksum is another."""
        is_whole = self._summed == self._length
        is_short = isinstance(self.failure, EOFError)
        return is_short or (is_whole and self._running.value() != value)

    def checksum(self) -> bytes:
        """The checksum of the part, or of what is left of it, all of it read now."""
        while self.read():
            pass
        return self._running.value()

    def _piece(self, offset: int, length: int) -> memoryview:
        if offset == 0:
            self._running, self._summed = Running(self._mode), 0
        try:
            count = os.preadv(self._fd, [self._buffer[:length]], self._offset + offset)
            if count == 0 < length:
                raise EOFError  # the store would wait for the rest
        except (OSError, EOFError) as error:
            self.failure = error
            raise
        piece = self._buffer[:count]
        self._running.update(piece)
        self._summed += count
        return piece
