"""Blobs as files named by their digest, laid out like those of an OCI image layout."""

from __future__ import annotations

import errno
import os
import secrets
import stat as modes
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from typing import TYPE_CHECKING, BinaryIO, cast

from engine_registry import layout
from engine_registry.backends.filesystem import ingest
from engine_registry.backends.filesystem.durable import (
    READ_ONLY,
    ReadFile,
    ensure_dir,
    reading,
    store_full,
    sync_dir,
    write_all,
    writing,
)
from engine_registry.backends.filesystem.root import CACHE, StoreRoot, lock_temporary
from engine_registry.backends.filesystem.stamps import Stamps, settle
from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError, InvalidInput, NotFound
from engine_registry.room import free_bytes
from engine_registry.store import Depth, Ownership, StoredBlob

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Another file system, a file of somebody else's, too many links, no links at all: copy instead.
_NO_LINK = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS}


class FileBlobs:
    """The blob port over a directory. Safe to use from many threads and processes."""

    def __init__(self, root: StoreRoot) -> None:
        self._root = root
        self._stamps = Stamps(root.path / CACHE)
        self._rings: SimpleQueue[ingest.Ring] = SimpleQueue()

    def add_file(self, path: Path, ownership: Ownership) -> StoredBlob:
        """See `BlobStore.add_file`."""
        with _source(path) as (source, before):
            self._root.prepare()
            with writing(self._root.path, f"store {path.name}", before.st_size):
                ensure_dir(self._root.tmp_dir)
                linked = None
                if ownership is Ownership.GIVEN:
                    linked = self._link_in(path, source, before)
                return linked or self._copy_in(path, source, before)

    def adopt(self, path: Path, digest: Digest, size_bytes: int) -> StoredBlob:
        """Take in a file of the staging directory, whole and with this digest.

        The caller has just hashed its bytes, made them durable, and gives the name away.
        """
        self._root.prepare()
        with writing(self._root.path, "store a blob", size_bytes):
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                lock_temporary(fd)
                _seal(fd)
                os.fsync(fd)
                return self._publish(path, digest, size_bytes)
            finally:
                os.close(fd)

    def add_bytes(self, data: bytes) -> StoredBlob:
        """See `BlobStore.add_bytes`."""
        digest = Digest.of(data)
        self._root.prepare()
        with writing(self._root.path, "store a blob", len(data)):
            if self._holds(digest, len(data)):
                sync_dir(self._path(digest).parent)
                return StoredBlob(digest=digest, size_bytes=len(data))
            with self._root.temporary() as (fd, temp):
                write_all(fd, data)
                _seal(fd)
                os.fsync(fd)
                return self._publish(temp, digest, len(data))

    def open(self, digest: Digest) -> BinaryIO:
        """See `BlobStore.open`."""
        self._root.require()
        with reading(self._root.path, f"open blob {digest}"):
            try:
                return cast("BinaryIO", ReadFile(f"{self._root.path}/{layout.blob(digest)}"))
            except FileNotFoundError:
                raise _missing(digest) from None

    def materialise(self, digest: Digest, path: Path) -> None:
        """See `BlobStore.materialise`. Clone, else hard link, else copy."""
        if path.exists() or path.is_symlink():
            raise InvalidInput(
                f"cannot write {path}: it exists",
                hint="name a path that does not exist yet",
                reference="path-exists",
            )
        with (
            self.open(digest) as stream,
            writing(path.parent, f"write {path.name}", os.fstat(stream.fileno()).st_size),
        ):
            source = stream.fileno()
            with _partial(path) as (fd, partial):
                if not ingest.clone(source, fd):
                    if self._link_out(digest, source, path):
                        return
                    ingest.copy(source, fd, os.fstat(source).st_size, self._rings)
                os.fchmod(fd, READ_ONLY)
                os.fsync(fd)
                partial.rename(path)

    def check(self, digest: Digest, size_bytes: int, depth: Depth) -> None:
        """See `BlobStore.check`."""
        with self.open(digest) as stream:
            fd = stream.fileno()
            before = os.fstat(fd)
            if before.st_size != size_bytes:
                raise IntegrityError(
                    f"blob {digest}: holds {before.st_size:,} bytes, want {size_bytes:,}",
                    hint="run `enginectl verify` to list every damaged file",
                    reference="blob-damaged",
                )
            if depth is Depth.UNCHANGED and self._stamps.vouches(digest, before):
                return
            with reading(self._root.path, f"read blob {digest}"):
                found = ingest.hash_file(fd)
            if found != digest:
                self._stamps.forget(digest)
                raise IntegrityError(
                    f"blob {digest}: stored bytes have digest {found}, want {digest}",
                    hint="run `enginectl verify` to list every damaged file",
                    reference="blob-damaged",
                )
            if _shape(os.fstat(fd)) == _shape(before):
                self._stamps.write(digest, before)

    def _path(self, digest: Digest) -> Path:
        return self._root.path / layout.blob(digest)

    def _link_in(self, path: Path, source: int, before: os.stat_result) -> StoredBlob | None:
        temp = self._root.temp_path()
        try:
            os.link(path, temp, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_LINK:
                return None
            raise
        try:
            if not os.path.samestat(before, temp.lstat()):
                raise _changed(path, "it was replaced while it was read")
            lock_temporary(source)
            try:
                _seal(source)
            except PermissionError:
                return None
            sealed = os.fstat(source)
            digest = ingest.hash_and_sync(source, before.st_size)
            if _shape(os.fstat(source)) != _shape(sealed) or sealed.st_size != before.st_size:
                raise _changed(path, "it was written to while it was hashed")
            return self._publish(temp, digest, before.st_size)
        finally:
            temp.unlink(missing_ok=True)

    def _copy_in(self, path: Path, source: int, before: os.stat_result) -> StoredBlob:
        if free_bytes(self._root.path) < before.st_size:
            raise store_full(self._root.path, before.st_size)
        with self._root.temporary() as (fd, temp):
            cloned = ingest.clone(source, fd)
            if cloned:
                size_bytes = os.fstat(fd).st_size
            else:
                digest, size_bytes = ingest.copy(source, fd, before.st_size, self._rings)
            if not before.st_size == size_bytes == os.fstat(source).st_size:
                raise _changed(path, f"its size changed from {before.st_size:,} while it was read")
            _seal(fd)
            if cloned:
                digest = ingest.hash_and_sync(fd, size_bytes)
            else:
                os.fsync(fd)
            return self._publish(temp, digest, size_bytes)

    def _publish(self, temp: Path, digest: Digest, size_bytes: int) -> StoredBlob:
        """Give a sealed, durable temporary file its final name."""
        final = self._path(digest)
        ensure_dir(final.parent)
        while not self._name(temp, final, digest, size_bytes):
            pass
        sync_dir(final.parent)
        temp.unlink(missing_ok=True)
        with suppress(FileNotFoundError):  # an old one, discarded meanwhile; its user looks again
            self._stamps.write(digest, final.lstat())
        return StoredBlob(digest=digest, size_bytes=size_bytes)

    def _name(self, temp: Path, final: Path, digest: Digest, size_bytes: int) -> bool:
        """Link; False if what had the name was discarded before it could be looked at."""
        try:
            os.link(temp, final, follow_symlinks=False)
        except FileExistsError:
            try:
                same = os.path.samestat(temp.lstat(), final.lstat())
            except FileNotFoundError:
                return False
            if not same and not self._holds(digest, size_bytes):
                temp.replace(final)  # what is there is damaged, what is new was just hashed
        return True

    def _holds(self, digest: Digest, size_bytes: int) -> bool:
        """Whether the blob is there and whole."""
        try:
            self.check(digest, size_bytes, Depth.UNCHANGED)
        except (IntegrityError, NotFound):
            return False
        return True

    def _link_out(self, digest: Digest, source: int, path: Path) -> bool:
        before = os.fstat(source)
        try:
            os.link(self._path(digest), path, follow_symlinks=False)
        except OSError as error:
            if error.errno in _NO_LINK:
                return False
            raise
        # Linking changed the file's change time and nothing else: let the stamp follow.
        if self._stamps.vouches(digest, before):
            self._stamps.write(digest, os.fstat(source))
        return True


@contextmanager
def _partial(path: Path) -> Iterator[tuple[int, Path]]:
    """A temporary sibling of `path`."""
    partial = path.with_name(f".{secrets.token_hex(8)}.partial")
    fd = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        yield fd, partial
    finally:
        os.close(fd)
        partial.unlink(missing_ok=True)


@contextmanager
def _source(path: Path) -> Iterator[tuple[int, os.stat_result]]:
    """Open a regular file that is no symbolic link."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidInput(
            f"cannot take {path} into the registry: {error.strerror}",
            hint="it must be a readable regular file, not a symbolic link or a device",
            reference="source-file-unusable",
        ) from error
    try:
        stat = os.fstat(fd)
        if not modes.S_ISREG(stat.st_mode):
            raise InvalidInput(
                f"cannot take {path} into the registry: not a regular file",
                hint="it must be a readable regular file, not a symbolic link or a device",
                reference="source-file-unusable",
            )
        yield fd, stat
    finally:
        os.close(fd)


def _seal(fd: int) -> None:
    os.fchmod(fd, READ_ONLY)
    settle(fd)


def _shape(stat: os.stat_result) -> tuple[int, int]:
    return stat.st_size, stat.st_mtime_ns


def _changed(path: Path, how: str) -> InvalidInput:
    return InvalidInput(
        f"cannot take {path} into the registry: {how}",
        hint="wait until whatever writes that file is done, then run the same command again",
        reference="source-file-changed",
    )


def _missing(digest: Digest) -> NotFound:
    return NotFound(
        f"blob {digest}: not in the store",
        hint="run `enginectl verify` to list what is missing; `enginectl build` rebuilds an engine",
        reference="blob-missing",
    )
