"""Puts a checked copy of a file where a step wants it.

The cheapest way that cannot hurt: a hard link to a file that nobody may write, a reflink where the
file system has them, a copy otherwise; a writable original is never linked, since a later write to
either name would change both. Size and SHA-256 are checked on the bytes that are handed out, and
the final name appears only after that.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from engine_pipeline.sources.rules import check_path
from engine_registry.digest import READ_SIZE_BYTES, Digest
from engine_registry.errors import IntegrityError, NotFound, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine_pipeline.spec.lock import LockedFile

# linux/fs.h: make one file share another's extents (Btrfs, XFS, bcachefs).
_FICLONE = 0x40049409


def place(
    original: Path, file: LockedFile, dest_dir: Path, name: str, tick: Callable[[int], None]
) -> None:
    """Put `original` at `dest_dir/file.path`, if it is what the lock says.

    Args:
        original: the file as its source keeps it.
        file: what was locked.
        dest_dir: exists; directories below it are made.
        name: the source, for errors.
        tick: told after every piece how many more bytes are checked.

    Raises:
        NotFound: `original` is not there.
        IntegrityError: reference `source-changed`; nothing is left under the final name.
    """
    check_path(file.path, name)
    target = dest_dir / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        with _opened(original, file, name) as stream:
            _check_size(os.fstat(stream.fileno()).st_size, file, name)
            if _link(original, stream, part):
                _, found = measure(part, tick)
            else:
                found = _copy(stream, part, tick)
        if found != file.digest:
            raise changed(file, name, str(file.digest), str(found))
        part.replace(target)
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def measure(path: Path, tick: Callable[[int], None]) -> tuple[int, Digest]:
    """Size and digest of the bytes of a file, read once."""
    state = hashlib.sha256()
    size = 0
    buffer = memoryview(bytearray(READ_SIZE_BYTES))
    with path.open("rb") as stream:
        while count := stream.readinto(buffer):
            state.update(buffer[:count])
            size += count
            tick(count)
    return size, Digest(state.hexdigest())


def check(path: Path, file: LockedFile, name: str) -> None:
    """Compare a file with the lock; raises as `place`."""
    with _opened(path, file, name) as stream:
        _check_size(os.fstat(stream.fileno()).st_size, file, name)
        found = Digest.of_stream(stream)
    if found != file.digest:
        raise changed(file, name, str(file.digest), str(found))


def changed(file: LockedFile, name: str, locked: str, found: str) -> IntegrityError:
    """The error for bytes that are not the locked ones."""
    return IntegrityError(
        f"{name}: {file.path}: locked {locked}, found {found}",
        hint="restore the file, or run `enginectl lock` and review what moved",
        reference="source-changed",
    )


def _opened(path: Path, file: LockedFile, name: str) -> BinaryIO:
    try:
        return path.open("rb")
    except FileNotFoundError as error:
        raise NotFound(
            f"{name}: {file.path}: locked, and not there any more",
            hint="restore the file, or run `enginectl lock` and review what moved",
            reference="source-file-missing",
        ) from error
    except OSError as error:
        raise Unavailable(
            f"{name}: {file.path}: cannot be read: {error.strerror}",
            hint="check permissions and the file system, then run the same command again",
            reference="source-unreadable",
        ) from error


def _check_size(size: int, file: LockedFile, name: str) -> None:
    if size != file.size_bytes:
        raise changed(file, name, f"{file.size_bytes} bytes", f"{size} bytes")


def _link(original: Path, stream: BinaryIO, part: Path) -> bool:
    """Share the bytes without copying them; False if that is unsafe or impossible here."""
    mode = os.fstat(stream.fileno()).st_mode
    with suppress(OSError):
        if not mode & 0o222:
            # `resolve`: a link to a symbolic link would dangle with it.
            os.link(original.resolve(), part)
            return True
    return _reflink(stream, part)


def _reflink(stream: BinaryIO, part: Path) -> bool:
    try:
        import fcntl
    except ImportError:
        return False
    try:
        with part.open("xb") as out:
            fcntl.ioctl(out.fileno(), _FICLONE, stream.fileno())
            os.fsync(out.fileno())
    except OSError:
        part.unlink(missing_ok=True)
        return False
    return True


def _copy(stream: BinaryIO, part: Path, tick: Callable[[int], None]) -> Digest:
    state = hashlib.sha256()
    buffer = memoryview(bytearray(READ_SIZE_BYTES))
    with part.open("xb") as out:
        while count := stream.readinto(buffer):  # type: ignore[attr-defined]
            state.update(buffer[:count])
            out.write(buffer[:count])
            tick(count)
        out.flush()
        os.fsync(out.fileno())
    return Digest(state.hexdigest())
