"""Small durable steps on a POSIX file system, and what its errors mean to a user.

Owns the order fsync file, name it, fsync directory. What is written, and where, is the caller's.
"""

from __future__ import annotations

import errno
import io
import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from engine_registry.errors import Unavailable
from engine_registry.room import free_bytes, is_full

if TYPE_CHECKING:
    from collections.abc import Iterator

    from _typeshed import WriteableBuffer

_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
READ_ONLY = 0o444
# How often a folder is made again that a collector removed, empty, before it was linked into.
_TRIES = 16


def sync_dir(path: Path) -> None:
    """Make the names in a directory durable.

    A folder that is gone by now was emptied by a collector: it has no names left.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def ensure_dir(path: Path) -> None:
    """Create a directory and its parents, durably; a no-op where it is there.

    Collectors remove empty folders, so it and its parent may come and go meanwhile.
    """
    for left in reversed(range(_TRIES)):
        if path.is_dir():
            return
        ensure_dir(path.parent)
        try:
            path.mkdir()
        except (FileExistsError, FileNotFoundError):
            if not left:
                raise
        else:
            sync_dir(path.parent)
            return


def link_into(source: Path, target: Path) -> None:
    """Give a file a second, exclusive name; its folder may come and go meanwhile.

    Raises:
        FileExistsError: somebody has the name.
        FileNotFoundError: the source is gone.
    """
    for left in reversed(range(_TRIES)):
        ensure_dir(target.parent)
        try:
            os.link(source, target, follow_symlinks=False)
        except FileNotFoundError:
            if not left or not os.path.lexists(source):
                raise
        else:
            return


def write_all(fd: int, data: bytes | memoryview) -> None:
    """Write every byte at the descriptor's position."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def store_full(place: Path, need_bytes: int) -> Unavailable:
    """The error for a file system without room for `need_bytes` more; 0: not known how many."""
    need = f"need {need_bytes:,} bytes, " if need_bytes else ""
    return Unavailable(
        f"{place}: no room: {need}{free_bytes(place):,} bytes are free",
        hint="make room there (docs/operations.md, `The disk is full`), then run the same command "
        "again",
        reference="store-full",
    )


@contextmanager
def writing(place: Path, what: str, need_bytes: int = 0) -> Iterator[None]:
    """Turn the operating system's refusals of a write into errors a user can act on.

    `need_bytes` is 0 where nobody knows: names alone are written, or the file shares its bytes.
    """
    try:
        yield
    except OSError as error:
        if is_full(error):
            raise store_full(place, need_bytes) from error
        if error.errno in _FORBIDDEN:
            raise Unavailable(
                f"{place}: not writable: cannot {what}: {error.strerror}",
                hint="ask for write access to it, or choose another registry with "
                "ENGINECTL_REGISTRY=file://DIR",
                reference="store-not-writable",
            ) from error
        raise _io_error(place, what, error) from error


@contextmanager
def reading(place: Path, what: str) -> Iterator[None]:
    """Turn the operating system's refusals of a read into errors a user can act on."""
    try:
        yield
    except OSError as error:
        if error.errno in _FORBIDDEN:
            raise Unavailable(
                f"{place}: not readable: cannot {what}: {error.strerror}",
                hint=f"ask for read access to {place}",
                reference="store-not-readable",
            ) from error
        raise _io_error(place, what, error) from error


class ReadFile(io.FileIO):
    """An open file; a disk that fails under it is `Unavailable`, as everywhere."""

    def readinto(self, buffer: WriteableBuffer) -> int:
        """As any file's."""
        with reading(Path(str(self.name)), "read it"):
            return super().readinto(buffer) or 0

    def readall(self) -> bytes:
        """As any file's."""
        with reading(Path(str(self.name)), "read it"):
            return super().readall() or b""

    def read(self, size: int | None = -1) -> bytes:
        """As any file's."""
        with reading(Path(str(self.name)), "read it"):
            return super().read(size) or b""


def _io_error(place: Path, what: str, error: OSError) -> Unavailable:
    return Unavailable(
        f"{place}: cannot {what}: {error.strerror or error}",
        hint="look at the disk or the network mount (`dmesg`), then run the same command again",
        reference="store-io",
    )
