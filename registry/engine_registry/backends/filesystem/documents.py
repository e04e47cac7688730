"""Create-once documents, pointers and the inventory over a directory."""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.backends.filesystem.durable import (
    READ_ONLY,
    ReadFile,
    ensure_dir,
    link_into,
    reading,
    sync_dir,
    write_all,
    writing,
)
from engine_registry.backends.filesystem.root import CACHE, TMP, StoreRoot
from engine_registry.digest import Digest
from engine_registry.errors import Conflict, DocumentConflict, NotFound, Unavailable
from engine_registry.store import PointerValue, StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A swap holds its lock for about two fsyncs; a holder that takes longer is stopped, not slow.
LOCK_TIMEOUT_S = 10.0
_LOCK_POLL_S = 0.005
# Top-level folders whose files are no part of a registry.
SCRATCH = frozenset({TMP, CACHE, "lost+found"})


class FileDocuments:
    """The document port: one read-only file each, created by an exclusive link."""

    def __init__(self, root: StoreRoot) -> None:
        self._root = root

    def create(self, name: str, data: bytes) -> bool:
        """See `DocumentStore.create`."""
        final = self._root.path_of(name)
        self._root.prepare()
        with writing(self._root.path, f"create {name}", len(data)):
            stored = None
            while stored is None:
                if not final.exists() and _link_new(self._root, final, data):
                    return True
                with suppress(FileNotFoundError):  # discarded meanwhile: it is new again
                    stored = final.read_bytes()
            if stored == data:
                sync_dir(final.parent)
                return False
        raise DocumentConflict(
            f"{name}: exists with other content: stored {Digest.of(stored).short}, "
            f"offered {Digest.of(data).short}",
            hint="read what is stored, then decide again",
        )

    def read(self, name: str) -> bytes:
        """See `DocumentStore.read`."""
        self._root.require()
        with reading(self._root.path, f"read {name}"):
            try:
                with ReadFile(self._root.path_of(name)) as stream:
                    return stream.readall()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise NotFound(
                    f"{name}: not in the registry at {self._root.path}",
                    hint="run `enginectl list` to list what this registry holds",
                    reference="document-missing",
                ) from None

    def exists(self, name: str) -> bool:
        """See `DocumentStore.exists`."""
        self._root.require()
        return self._root.path_of(name).is_file()

    def children(self, folder: str) -> Iterator[str]:
        """See `DocumentStore.children`."""
        self._root.require()
        with reading(self._root.path, f"list {folder}"):
            try:
                with os.scandir(self._root.path_of(folder)) as entries:
                    names = [f"{e.name}/" if e.is_dir() else e.name for e in entries]
            except (FileNotFoundError, NotADirectoryError):
                names = []
        yield from sorted(names)


class FilePointers:
    """The pointer port: a file replaced whole, under a lock, if it is still what was expected.

    The version is the digest of the content, so contents must never repeat; a channel's carry the
    number of their last event.
    """

    def __init__(self, root: StoreRoot) -> None:
        self._root = root

    def read(self, name: str) -> PointerValue | None:
        """See `PointerStore.read`."""
        self._root.require()
        with reading(self._root.path, f"read {name}"):
            return _read_pointer(self._root.path_of(name))

    def swap(self, name: str, expected: str | None, data: bytes) -> str:
        """See `PointerStore.swap`."""
        path = self._root.path_of(name)
        self._root.prepare()
        with (
            writing(self._root.path, f"write {name}", len(data)),
            _locked(self._root, name),
        ):
            current = _read_pointer(path)
            found = current.version if current else None
            if found != expected:
                raise Conflict(
                    f"{name}: is at version {found or 'absent'}, expected {expected or 'absent'}",
                    hint="read the pointer again, then decide again",
                    reference="pointer-moved",
                )
            ensure_dir(path.parent)
            with self._root.temporary() as (fd, temp):
                write_all(fd, data)
                os.fchmod(fd, READ_ONLY)
                os.fsync(fd)
                temp.replace(path)
            sync_dir(path.parent)
        return _version(data)


class FileInventory:
    """Everything below the root but `tmp/`, `cache/` and `trash/`."""

    def __init__(self, root: StoreRoot) -> None:
        self._root = root

    def files(self) -> Iterator[StoredFile]:
        """See `Inventory.files`; sorted by name."""
        self._root.require()
        with reading(self._root.path, "list the registry"):
            for name, entry in self._root.walk(SCRATCH | {layout.TRASH}):
                with suppress(FileNotFoundError):  # discarded meanwhile
                    yield StoredFile(name=name, size_bytes=entry.stat().st_size)


def _link_new(root: StoreRoot, final: Path, data: bytes) -> bool:
    """Create `final` whole and durable; False if somebody else did first."""
    ensure_dir(final.parent)
    with root.temporary() as (fd, temp):
        write_all(fd, data)
        os.fchmod(fd, READ_ONLY)
        os.fsync(fd)
        try:
            link_into(temp, final)
        except FileExistsError:
            return False
        sync_dir(final.parent)
    return True


def _version(data: bytes) -> str:
    return Digest.of(data).hex


def _read_pointer(path: Path) -> PointerValue | None:
    try:
        data = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return PointerValue(data=data, version=_version(data))


@contextmanager
def _locked(root: StoreRoot, name: str) -> Iterator[None]:
    """Hold the exclusive lock of one pointer; a killed holder's lock is free at once."""
    folder = root.tmp_dir / "locks"
    ensure_dir(folder)
    path = folder / f"{Digest.of(name.encode()).hex}.lock"
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            _take_lock(fd, name, deadline)
            if _still_named(fd, path):  # else: somebody cleared tmp/ meanwhile
                yield
                return
        finally:
            os.close(fd)


def _take_lock(fd: int, name: str, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Unavailable(
                    f"{name}: locked by another process for over {LOCK_TIMEOUT_S:.0f} s",
                    hint="find the process that hangs (`lsof`), then run the same command again",
                    reference="pointer-locked",
                ) from None
            time.sleep(_LOCK_POLL_S)
        else:
            return


def _still_named(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
