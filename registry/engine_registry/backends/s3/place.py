"""A blob's place on the local disk: written as a hidden sibling, named when whole."""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from engine_registry.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_READ_ONLY = 0o444
# SYNC_FILE_RANGE_WRITE of linux/fs.h: begin to write out what is dirty, wait for nothing.
_WRITE = 2


class Place:
    """An open, unnamed-yet file of known size."""

    def __init__(self, path: Path, fd: int) -> None:
        self._path = path
        self._fd = fd

    def write(self, data: memoryview, offset: int) -> None:
        """Write a range; ranges come in any order and from several threads."""
        with _writing(self._path):
            done = 0
            while done < len(data):
                done += os.pwrite(self._fd, data[done:], offset + done)
        _start_to_sync(self._fd, offset, len(data))


def refuse_existing(path: Path) -> None:
    """Confirm that nothing has the name yet."""
    if path.exists() or path.is_symlink():
        raise InvalidInput(
            f"cannot write {path}: it exists",
            hint="name a path that does not exist yet",
            reference="path-exists",
        )


@contextmanager
def new_file(path: Path, size_bytes: int) -> Iterator[Place]:
    """A place that becomes the read-only file `path` when the block ends, or is removed.

    Raises:
        Unavailable: `disk-full` before the first byte is fetched, or `directory-not-writable`.
    """
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    with _writing(path):
        fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with _writing(path):
            _reserve(fd, size_bytes)
        yield Place(path, fd)
        with _writing(path):
            os.fchmod(fd, _READ_ONLY)
            os.fsync(fd)
            partial.rename(path)
    finally:
        os.close(fd)
        partial.unlink(missing_ok=True)


def _reserve(fd: int, size_bytes: int) -> None:
    """Take the room now: a disk that is too small is found before hours of download."""
    if size_bytes == 0:
        return
    try:
        os.posix_fallocate(fd, 0, size_bytes)
    except OSError as error:
        if error.errno not in {errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
            raise
        os.ftruncate(fd, size_bytes)


def _start_to_sync(fd: int, offset: int, length: int) -> None:
    """Have a range go to the disk from now on, so that little is left for the sync at the end.

    That one waits, and says whether all is there: half of a download's time if it comes alone.
    """
    with suppress(AttributeError):  # where the system has no such thing
        ctypes.CDLL(None).sync_file_range(
            fd, ctypes.c_int64(offset), ctypes.c_int64(length), _WRITE
        )


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
            raise Unavailable(
                f"cannot write {path}: {error.strerror}",
                hint="make room on that file system, then run the same command again",
                reference="disk-full",
            ) from error
        raise Unavailable(
            f"cannot write {path}: {error.strerror or error}",
            hint="check that its directory is writable, then run the same command again",
            reference="directory-not-writable",
        ) from error
