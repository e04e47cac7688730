"""A local file on its way in: opened safely, fingerprinted in one pass.

The key of a blob is its digest, so all of a file is hashed before its first byte is sent. What the
store has already is then not sent at all, and an interrupted upload is found again by its key.
"""

from __future__ import annotations

import hashlib
import os
import stat as modes
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine_registry.backends.s3.checksums import Fingerprint, Fingerprinting
from engine_registry.digest import Digest
from engine_registry.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine_registry.backends.s3.address import ChecksumMode

# Small enough for the cache of a core, large enough that handing over costs nothing.
_PIECE_BYTES = 4 << 20


@contextmanager
def opened(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file that is no symbolic link.

    Raises:
        InvalidInput: `source-file-unusable`.
        Unavailable: `source-file-unreadable`, if the disk fails while it is read.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise _unusable(path, error.strerror or str(error)) from error
    try:
        stat = os.fstat(fd)
        if not modes.S_ISREG(stat.st_mode):
            raise _unusable(path, "not a regular file")
        yield fd, stat
    except OSError as error:
        raise unreadable(path, error) from error
    finally:
        os.close(fd)


def fingerprint(fd: int, mode: ChecksumMode, part_bytes: int) -> Fingerprint:
    """Read an open file from start to end, once, hashing and checksumming side by side."""
    identity = hashlib.sha256()
    guards = Fingerprinting(mode, part_bytes)
    buffer = memoryview(bytearray(_PIECE_BYTES))
    offset = 0
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
    with ThreadPoolExecutor(1) as beside:
        while count := os.preadv(fd, [buffer], offset):
            guarded = beside.submit(guards.update, buffer[:count])
            identity.update(buffer[:count])
            guarded.result()
            offset += count
    return guards.done(Digest(identity.hexdigest()), offset)


def read_whole(fd: int, size_bytes: int) -> bytes:
    """A small file's bytes; one byte more than announced shows that it grew."""
    pieces = []
    offset = 0
    while piece := os.pread(fd, size_bytes + 1 - offset, offset):
        pieces.append(piece)
        offset += len(piece)
    return b"".join(pieces)


def refuse_changed(path: Path, fd: int, before: os.stat_result, size_bytes: int) -> None:
    """Confirm that nobody wrote to the file since it was opened, as far as its times tell."""
    after = os.fstat(fd)
    if before.st_size != size_bytes or after.st_size != size_bytes:
        raise changed(path, f"its size changed from {before.st_size:,} while it was read")
    if after.st_mtime_ns != before.st_mtime_ns:
        raise changed(path, "it was written to while it was read")


def unreadable(path: Path, error: OSError) -> Unavailable:
    """The error for a file whose disk fails."""
    return Unavailable(
        f"cannot read {path}: {error.strerror or error}",
        hint="look at the disk (`dmesg`), then run the same command again",
        reference="source-file-unreadable",
    )


def changed(path: Path, how: str) -> InvalidInput:
    """The error for a file that does not hold still."""
    return InvalidInput(
        f"cannot take {path} into the registry: {how}",
        hint="wait until whatever writes that file is done, then run the same command again",
        reference="source-file-changed",
    )


def _unusable(path: Path, why: str) -> InvalidInput:
    return InvalidInput(
        f"cannot take {path} into the registry: {why}",
        hint="it must be a readable regular file, not a symbolic link or a device",
        reference="source-file-unusable",
    )
