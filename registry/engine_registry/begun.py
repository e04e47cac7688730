"""Stores of which some reads were begun before anybody asked.

Who reads through them cannot tell: an answer that was begun is given once, to whoever asks for it
first; every other read, and the same one again, goes to the store. After the first write there are
no such answers any more, so nobody decides anew, or looks again, on what was read before it.
"""

from __future__ import annotations

import io
from dataclasses import replace
from typing import TYPE_CHECKING, BinaryIO, TypeVar

from engine_registry.store import Depth

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator
    from pathlib import Path

    from engine_registry.ahead import Ask
    from engine_registry.digest import Digest
    from engine_registry.store import (
        BlobStore,
        DocumentStore,
        Ownership,
        PointerStore,
        PointerValue,
        StoredBlob,
        Stores,
    )

T = TypeVar("T")


class Begun:
    """Reads under way in one registry, for one act.

    Args:
        stores: where they are read from.
        ask: begins them.

    Attributes:
        stores: give the answers.
    """

    def __init__(self, stores: Stores, ask: Ask) -> None:
        self._ask = ask
        self._store = stores
        self._answers = _Answers()
        self.stores = replace(
            stores,
            blobs=_Blobs(stores.blobs, self._answers),
            documents=_Documents(stores.documents, self._answers),
            pointers=_Pointers(stores.pointers, self._answers),
        )

    def pointer(self, name: str) -> Callable[[], PointerValue | None]:
        """Begin to read a pointer; its value, which is still to be given once."""
        return self._begin(("pointer", name), lambda: self._store.pointers.read(name))

    def document(self, name: str) -> None:
        """Begin to read a document."""
        self._begin(("document", name), lambda: self._store.documents.read(name))

    def children(self, folder: str) -> None:
        """Begin to list a folder."""
        self._begin(("children", folder), lambda: list(self._store.documents.children(folder)))

    def blob(self, digest: Digest) -> None:
        """Begin to read a small blob."""

        def read() -> bytes:
            with self._store.blobs.open(digest) as stream:
                return stream.read()

        self._begin(("blob", digest), read)

    def look(self, digest: Digest, size_bytes: int) -> None:
        """Begin to check a blob, at depth `unchanged`."""
        self._begin(
            ("look", digest, size_bytes),
            lambda: self._store.blobs.check(digest, size_bytes, Depth.UNCHANGED),
        )

    def _begin(self, key: Hashable, act: Callable[[], T]) -> Callable[[], T]:
        answer = self._ask(act)
        self._answers.put(key, answer)
        return answer


class _Answers:
    """What was begun and not given yet."""

    def __init__(self) -> None:
        self._held: dict[Hashable, Callable[[], object]] = {}

    def put(self, key: Hashable, answer: Callable[[], object]) -> None:
        self._held[key] = answer

    def take(self, key: Hashable, otherwise: Callable[[], T]) -> T:
        answer = self._held.pop(key, otherwise)
        return answer()  # type: ignore[return-value]  # was begun by the same kind of read

    def forget(self) -> None:
        self._held.clear()


class _Documents:
    """The document port."""

    def __init__(self, store: DocumentStore, answers: _Answers) -> None:
        self._store = store
        self._answers = answers

    def create(self, name: str, data: bytes) -> bool:
        """See `DocumentStore.create`."""
        self._answers.forget()
        return self._store.create(name, data)

    def read(self, name: str) -> bytes:
        """See `DocumentStore.read`."""
        return self._answers.take(("document", name), lambda: self._store.read(name))

    def exists(self, name: str) -> bool:
        """See `DocumentStore.exists`."""
        return self._store.exists(name)

    def children(self, folder: str) -> Iterator[str]:
        """See `DocumentStore.children`."""
        yield from self._answers.take(
            ("children", folder), lambda: list(self._store.children(folder))
        )


class _Pointers:
    """The pointer port."""

    def __init__(self, store: PointerStore, answers: _Answers) -> None:
        self._store = store
        self._answers = answers

    def read(self, name: str) -> PointerValue | None:
        """See `PointerStore.read`."""
        return self._answers.take(("pointer", name), lambda: self._store.read(name))

    def swap(self, name: str, expected: str | None, data: bytes) -> str:
        """See `PointerStore.swap`."""
        self._answers.forget()
        return self._store.swap(name, expected, data)


class _Blobs:
    """The blob port."""

    def __init__(self, store: BlobStore, answers: _Answers) -> None:
        self._store = store
        self._answers = answers

    def add_file(self, path: Path, ownership: Ownership) -> StoredBlob:
        """See `BlobStore.add_file`."""
        self._answers.forget()
        return self._store.add_file(path, ownership)

    def add_bytes(self, data: bytes) -> StoredBlob:
        """See `BlobStore.add_bytes`."""
        self._answers.forget()
        return self._store.add_bytes(data)

    def open(self, digest: Digest) -> BinaryIO:
        """See `BlobStore.open`."""

        def open_now() -> bytes | BinaryIO:
            return self._store.open(digest)

        found = self._answers.take(("blob", digest), open_now)
        return io.BytesIO(found) if isinstance(found, bytes) else found

    def materialise(self, digest: Digest, path: Path) -> None:
        """See `BlobStore.materialise`."""
        self._store.materialise(digest, path)

    def check(self, digest: Digest, size_bytes: int, depth: Depth) -> None:
        """See `BlobStore.check`."""
        if depth is not Depth.UNCHANGED:
            return self._store.check(digest, size_bytes, depth)
        return self._answers.take(
            ("look", digest, size_bytes), lambda: self._store.check(digest, size_bytes, depth)
        )
