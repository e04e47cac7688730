"""Stores that die at the n-th write, for running a story against every n.

A `SimulatedCrash` is a `BaseException`, so that nothing takes it for an error to handle; once it
was raised every further write raises it too, as in a dead process. Reopen the stores without the
wrapper to look at what was left.
"""

from __future__ import annotations

from contextlib import contextmanager
from enum import StrEnum
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO

from engine_registry.store import Stores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import timedelta
    from pathlib import Path

    from engine_registry.digest import Digest
    from engine_registry.store import (
        AgedFile,
        BlobStore,
        Depth,
        DocumentStore,
        Ownership,
        PointerStore,
        PointerValue,
        StoredBlob,
        Trash,
    )


class SimulatedCrash(BaseException):
    """The process died here."""


class CrashMode(StrEnum):
    """Where in the n-th write the process dies."""

    BEFORE = "before"  # nothing was written
    AFTER = "after"  # the write is durable, its reply was lost
    TORN = "torn"  # half of the bytes lie where the adapter keeps unfinished writes


class FaultPlan:
    """Counts writes and says when to die.

    Args:
        at: number of the write, from 1, at which to die; None: never, only count.
        mode: where in that write.
        tear: leaves half a write behind, as the adapter would; needed for TORN.
    """

    def __init__(
        self,
        at: int | None = None,
        mode: CrashMode = CrashMode.BEFORE,
        tear: Callable[[bytes], None] | None = None,
    ) -> None:
        self.writes = 0
        self.crashed = False
        self._at = at
        self._mode = mode
        self._tear = tear
        self._lock = Lock()

    @contextmanager
    def write(self, data: Callable[[], bytes]) -> Iterator[None]:
        """One write: counted, and fatal if it is the one."""
        with self._lock:
            if self.crashed:
                raise SimulatedCrash("after the crash")
            self.writes += 1
            fatal = self.writes == self._at
            self.crashed = fatal
        if not fatal:
            yield
            return
        if self._mode is CrashMode.TORN and self._tear is not None:
            whole = data()
            self._tear(whole[: len(whole) // 2])
        if self._mode is CrashMode.AFTER:
            yield
        raise SimulatedCrash(f"write {self._at}, {self._mode}")


def faulty(stores: Stores, plan: FaultPlan) -> Stores:
    """The same stores, dying as planned."""
    return Stores(
        blobs=_Blobs(stores.blobs, plan),
        documents=_Documents(stores.documents, plan),
        pointers=_Pointers(stores.pointers, plan),
        inventory=stores.inventory,
        trash=_Trash(stores.trash, plan),
    )


class _Blobs:
    def __init__(self, inner: BlobStore, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan

    def add_file(self, path: Path, ownership: Ownership) -> StoredBlob:
        with self._plan.write(path.read_bytes):
            return self._inner.add_file(path, ownership)

    def add_bytes(self, data: bytes) -> StoredBlob:
        with self._plan.write(lambda: data):
            return self._inner.add_bytes(data)

    def open(self, digest: Digest) -> BinaryIO:
        return self._inner.open(digest)

    def materialise(self, digest: Digest, path: Path) -> None:
        self._inner.materialise(digest, path)

    def check(self, digest: Digest, size_bytes: int, depth: Depth) -> None:
        self._inner.check(digest, size_bytes, depth)


class _Documents:
    def __init__(self, inner: DocumentStore, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan

    def create(self, name: str, data: bytes) -> bool:
        with self._plan.write(lambda: data):
            return self._inner.create(name, data)

    def read(self, name: str) -> bytes:
        return self._inner.read(name)

    def exists(self, name: str) -> bool:
        return self._inner.exists(name)

    def children(self, folder: str) -> Iterator[str]:
        return self._inner.children(folder)


class _Pointers:
    def __init__(self, inner: PointerStore, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan

    def read(self, name: str) -> PointerValue | None:
        return self._inner.read(name)

    def swap(self, name: str, expected: str | None, data: bytes) -> str:
        with self._plan.write(lambda: data):
            return self._inner.swap(name, expected, data)


class _Trash:
    def __init__(self, inner: Trash, plan: FaultPlan) -> None:
        self._inner = inner
        self._plan = plan

    def aged(self) -> Iterator[AgedFile]:
        return self._inner.aged()

    def discard(self, name: str, min_age: timedelta) -> bool:
        with self._plan.write(bytes):
            return self._inner.discard(name, min_age)

    def restore(self, name: str) -> bool:
        with self._plan.write(bytes):
            return self._inner.restore(name)

    def purge(self, name: str, min_age: timedelta) -> bool:
        with self._plan.write(bytes):
            return self._inner.purge(name, min_age)
