"""A registry in memory, held to the same contract: for tests and for trying things out."""

from __future__ import annotations

import io
import os
import time
from contextlib import suppress
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO

from engine_registry import layout
from engine_registry.digest import Digest
from engine_registry.documents import seal
from engine_registry.errors import (
    Conflict,
    DocumentConflict,
    IntegrityError,
    InvalidInput,
    NotFound,
)
from engine_registry.record import RegistryInfo
from engine_registry.store import (
    AgedFile,
    Depth,
    Ownership,
    PointerValue,
    StoredBlob,
    StoredFile,
    Stores,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

Files = dict[str, bytes]
_TRASH = f"{layout.TRASH}/"


class Ages:
    """When each name was written, restored or discarded, by a clock of the store's own.

    Args:
        elapsed_s: a clock that counts seconds from anywhere.
    """

    def __init__(self, elapsed_s: Callable[[], float] = time.monotonic) -> None:
        self._elapsed_s = elapsed_s
        self._since: dict[str, float] = {}

    def start(self, name: str) -> None:
        """The name was written now."""
        self._since[name] = self._elapsed_s()

    def of(self, name: str) -> timedelta:
        """How long ago that was; nothing for a name of unknown age."""
        now_s = self._elapsed_s()
        return timedelta(seconds=max(now_s - self._since.get(name, now_s), 0.0))


class MemoryBlobs:
    """The blob port over a dictionary."""

    def __init__(self, files: Files, ages: Ages) -> None:
        self._files = files
        self._ages = ages

    def add_file(self, path: Path, ownership: Ownership) -> StoredBlob:  # noqa: ARG002 always copied
        """See `BlobStore.add_file`."""
        if path.is_symlink() or not path.is_file():
            raise InvalidInput(
                f"cannot take {path} into the registry: not a regular file",
                hint="it must be a readable regular file, not a symbolic link or a device",
                reference="source-file-unusable",
            )
        return self.add_bytes(path.read_bytes())

    def add_bytes(self, data: bytes) -> StoredBlob:
        """See `BlobStore.add_bytes`."""
        digest = Digest.of(data)
        name = layout.blob(digest)
        if self._files.get(name) != data:
            self._ages.start(name)
            self._files[name] = bytes(data)
        return StoredBlob(digest=digest, size_bytes=len(data))

    def open(self, digest: Digest) -> BinaryIO:
        """See `BlobStore.open`."""
        data = self._files.get(layout.blob(digest))
        if data is None:
            raise NotFound(
                f"blob {digest}: not in the store",
                hint="run `enginectl verify` to list what is missing",
                reference="blob-missing",
            )
        return io.BytesIO(data)

    def materialise(self, digest: Digest, path: Path) -> None:
        """See `BlobStore.materialise`."""
        data = self.open(digest).read()
        if path.exists() or path.is_symlink():
            raise InvalidInput(
                f"cannot write {path}: it exists",
                hint="name a path that does not exist yet",
                reference="path-exists",
            )
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
        with os.fdopen(fd, "wb") as stream:
            stream.write(data)

    def check(self, digest: Digest, size_bytes: int, depth: Depth) -> None:  # noqa: ARG002 hashing is cheap here
        """See `BlobStore.check`."""
        data = self.open(digest).read()
        found = Digest.of(data)
        if len(data) != size_bytes:
            raise IntegrityError(
                f"blob {digest}: holds {len(data):,} bytes, want {size_bytes:,}",
                hint="run `enginectl verify` to list every damaged file",
                reference="blob-damaged",
            )
        if found != digest:
            raise IntegrityError(
                f"blob {digest}: stored bytes have digest {found}, want {digest}",
                hint="run `enginectl verify` to list every damaged file",
                reference="blob-damaged",
            )


class MemoryDocuments:
    """The document port over a dictionary."""

    def __init__(self, files: Files, ages: Ages, lock: Lock) -> None:
        self._files = files
        self._ages = ages
        self._lock = lock

    def create(self, name: str, data: bytes) -> bool:
        """See `DocumentStore.create`."""
        with self._lock:
            stored = self._files.get(name)
            if stored is None:
                self._ages.start(name)
                self._files[name] = data
                return True
        if stored == data:
            return False
        raise DocumentConflict(
            f"{name}: exists with other content: stored {Digest.of(stored).short}, "
            f"offered {Digest.of(data).short}",
            hint="read what is stored, then decide again",
        )

    def read(self, name: str) -> bytes:
        """See `DocumentStore.read`."""
        with suppress(KeyError):
            return self._files[name]
        raise NotFound(
            f"{name}: not in the registry in memory",
            hint="run `enginectl list` to list what this registry holds",
            reference="document-missing",
        )

    def exists(self, name: str) -> bool:
        """See `DocumentStore.exists`."""
        return name in self._files

    def children(self, folder: str) -> Iterator[str]:
        """See `DocumentStore.children`."""
        prefix = f"{folder}/"
        found = set()
        for name in list(self._files):
            if name.startswith(prefix):
                first, slash, _ = name[len(prefix) :].partition("/")
                found.add(first + slash)
        yield from sorted(found)


class MemoryPointers:
    """The pointer port over a dictionary."""

    def __init__(self, files: Files, ages: Ages, lock: Lock) -> None:
        self._files = files
        self._ages = ages
        self._lock = lock

    def read(self, name: str) -> PointerValue | None:
        """See `PointerStore.read`."""
        data = self._files.get(name)
        return None if data is None else PointerValue(data=data, version=Digest.of(data).hex)

    def swap(self, name: str, expected: str | None, data: bytes) -> str:
        """See `PointerStore.swap`."""
        with self._lock:
            current = self.read(name)
            found = current.version if current else None
            if found != expected:
                raise Conflict(
                    f"{name}: is at version {found or 'absent'}, expected {expected or 'absent'}",
                    hint="read the pointer again, then decide again",
                    reference="pointer-moved",
                )
            self._ages.start(name)
            self._files[name] = data
        return Digest.of(data).hex


class MemoryInventory:
    """Every name in the dictionary."""

    def __init__(self, files: Files) -> None:
        self._files = files

    def files(self) -> Iterator[StoredFile]:
        """See `Inventory.files`; sorted by name."""
        for name, data in sorted(self._files.items()):
            if not name.startswith(_TRASH):
                yield StoredFile(name=name, size_bytes=len(data))


class MemoryTrash:
    """The trash port over a dictionary."""

    def __init__(self, files: Files, ages: Ages, lock: Lock) -> None:
        self._files = files
        self._ages = ages
        self._lock = lock

    def aged(self) -> Iterator[AgedFile]:
        """See `Trash.aged`."""
        for name, data in list(self._files.items()):
            yield AgedFile(name=name, size_bytes=len(data), age=self._ages.of(name))

    def discard(self, name: str, min_age: timedelta) -> bool:
        """See `Trash.discard`."""
        with self._lock:
            if name not in self._files or self._ages.of(name) < min_age:
                return False
            self._move(name, layout.trash(name))
            return True

    def restore(self, name: str) -> bool:
        """See `Trash.restore`."""
        with self._lock:
            if layout.trash(name) not in self._files or name in self._files:
                return False
            self._move(layout.trash(name), name)
            return True

    def purge(self, name: str, min_age: timedelta) -> bool:
        """See `Trash.purge`."""
        discarded = layout.trash(name)
        with self._lock:
            if discarded not in self._files or self._ages.of(discarded) < min_age:
                return False
            del self._files[discarded]
            return True

    def _move(self, source: str, target: str) -> None:
        self._ages.start(target)
        self._files[target] = self._files.pop(source)


def memory_stores(
    clock: Callable[[], datetime], files: Files | None = None, ages: Ages | None = None
) -> Stores:
    """The ports of a registry in memory, founded at once.

    Args:
        clock: gives the aware UTC time, for the date in `registry.json`.
        files: name → bytes; pass the same one again to reopen a registry, or to look into it.
        ages: how old they are; pass the same one again with the files.
    """
    held = {} if files is None else files
    since = ages or Ages()
    held.setdefault(layout.REGISTRY, seal(RegistryInfo(created_at=clock())))
    lock = Lock()
    return Stores(
        blobs=MemoryBlobs(held, since),
        documents=MemoryDocuments(held, since, lock),
        pointers=MemoryPointers(held, since, lock),
        inventory=MemoryInventory(held),
        trash=MemoryTrash(held, since, lock),
    )
