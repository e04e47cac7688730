"""The ports a registry stands on.

Each method's docstring is its contract; the shared suite in `engine_registry.testing.conformance`
holds every adapter to it. Names are slash-separated, made by `layout`. Every write is durable when
the call returns and nothing half-written is ever visible under a final name. Adapters raise only
`EngineCIError`s: `NotFound`, `Conflict`, `IntegrityError`, or `Unavailable` (transient, full disk,
no permission).

The first write founds a registry (`registry.json`). Until then every read of documents, blobs and
pointers raises `NotFound`, reference `registry-missing`, so that a mistyped address is never taken
for an empty registry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, Protocol

from engine_registry.errors import Incompatible

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta
    from pathlib import Path

    from engine_registry.digest import Digest


class Ownership(StrEnum):
    """What becomes of a source file that is put into a store."""

    KEPT = "kept"  # the caller keeps using the file: the store takes its own bytes
    # The caller promises never to write it again under any of its names: it may be linked and is
    # made read-only. It stays where it is.
    GIVEN = "given"


class Depth(StrEnum):
    """How hard to look at stored bytes."""

    UNCHANGED = "unchanged"  # present, right size, untouched since last hashed; else hash
    FULL = "full"  # hash every byte again


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBlob:
    """A blob that is in the store, whole and durable."""

    digest: Digest
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PointerValue:
    """A pointer's bytes and the opaque version to swap against."""

    data: bytes
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One stored name of any kind, and how many bytes it holds."""

    name: str
    size_bytes: int


class BlobStore(Protocol):
    """Bytes named by their own SHA-256.

    Adding the same bytes twice is a no-op; adding them where the stored copy is damaged puts the
    good bytes in its place.
    """

    def add_file(self, path: Path, ownership: Ownership) -> StoredBlob:
        """Take a regular file in, hashing what is stored, not what was read earlier.

        A symbolic link, a device or a file that changes size while read is refused
        (`InvalidInput`). Interrupted at any point, no blob is visible.
        """
        ...

    def add_bytes(self, data: bytes) -> StoredBlob:
        """Take small bytes in (manifests, configs, reports)."""
        ...

    def open(self, digest: Digest) -> BinaryIO:
        """Open a blob to read, unchecked. Raises NotFound."""
        ...

    def materialise(self, digest: Digest, path: Path) -> None:
        """Put a read-only copy or link of the blob at `path`, which must not exist. Unchecked.

        Raises NotFound; `path` is whole or absent afterwards.
        """
        ...

    def check(self, digest: Digest, size_bytes: int, depth: Depth) -> None:
        """Confirm that the stored bytes are whole.

        Raises:
            NotFound: no such blob.
            IntegrityError: wrong size or wrong digest; names both sides.
        """
        ...


class DocumentStore(Protocol):
    """Small create-once documents."""

    def create(self, name: str, data: bytes) -> bool:
        """Create `name`; True if this call created it, False if equal bytes were there already.

        Of any number of concurrent creators exactly one creates.

        Raises:
            DocumentConflict: the document exists with other bytes, which stay.
        """
        ...

    def read(self, name: str) -> bytes:
        """The document's bytes. Raises NotFound."""
        ...

    def exists(self, name: str) -> bool:
        """Whether the document is there; strongly consistent with `create`."""
        ...

    def children(self, folder: str) -> Iterator[str]:
        """Names directly below `folder`, sorted; folders end in `/`. Empty if absent."""
        ...


class PointerStore(Protocol):
    """Small mutable values that change by compare-and-swap only."""

    def read(self, name: str) -> PointerValue | None:
        """The value and its version; None if never written."""
        ...

    def swap(self, name: str, expected: str | None, data: bytes) -> str:
        """Replace the value if its version is still `expected` (None: absent); the new version.

        Raises:
            Conflict: reference `pointer-moved`; nothing has changed.
        """
        ...


class Inventory(Protocol):
    """What a verification has to look at; the acts never list everything."""

    def files(self) -> Iterator[StoredFile]:
        """Every stored blob, document, pointer and foreign file.

        Derived and temporary ones are left out, and so is what was discarded.
        """
        ...


class AgedFile(NamedTuple):
    """One stored name, its size, and how long ago it was written, restored or discarded."""

    name: str
    size_bytes: int
    age: timedelta


class Trash(Protocol):
    """Removal in two steps: out of sight, then gone. Only garbage collection removes anything.

    A discarded `name` lies at `layout.trash(name)`: no reader and no writer finds it under its own
    name any more, `DocumentStore.read` and `children` do below `trash/`. Ages are told by the
    store's own clock, never by the caller's, and are never negative. Each step is atomic; repeating
    one is a no-op, whoever took it.
    """

    def aged(self) -> Iterator[AgedFile]:
        """Every file that `Inventory.files` gives and every discarded one, in any order."""
        ...

    def discard(self, name: str, min_age: timedelta) -> bool:
        """Put `name` into the trash, in place of what was discarded there under that name.

        False, and nothing happened, if it is not there or was written less than `min_age` ago; a
        store may also leave it for as long as there is something to be purged under that name.
        """
        ...

    def restore(self, name: str) -> bool:
        """Take `name` out of the trash; False if it is not there.

        What meanwhile was written under that name stays, and then the discarded bytes do too.
        """
        ...

    def purge(self, name: str, min_age: timedelta) -> bool:
        """Remove discarded bytes for good; False if there are none discarded that long ago."""
        ...


class NoTrash:
    """The trash of a store from which nothing can be removed yet."""

    def aged(self) -> Iterator[AgedFile]:
        """See `Trash.aged`; always refused."""
        raise _cannot_remove()

    def discard(self, name: str, min_age: timedelta) -> bool:  # noqa: ARG002
        """See `Trash.discard`; always refused."""
        raise _cannot_remove()

    def restore(self, name: str) -> bool:  # noqa: ARG002
        """See `Trash.restore`: nothing was ever discarded."""
        return False

    def purge(self, name: str, min_age: timedelta) -> bool:  # noqa: ARG002
        """See `Trash.purge`; always refused."""
        raise _cannot_remove()


def _cannot_remove() -> Incompatible:
    return Incompatible(
        "nothing can be removed from this kind of store: everything in it is kept",
        hint="collect garbage in a registry on a file system or in a bucket, and let no rule of "
        "this store expire anything in it",
        reference="store-cannot-remove",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """The ports of one registry, as an adapter hands them out.

    Attributes:
        staging_dir: where to write a file that will be GIVEN to `add_file`, so that it can be
            linked in; what lies there unlocked is swept. None: anywhere is as good.
        hashes_on_the_way: `materialise` refuses bytes that do not have the blob's digest.
        is_far: every call waits for an answer over a network.
    """

    blobs: BlobStore
    documents: DocumentStore
    pointers: PointerStore
    inventory: Inventory
    trash: Trash = field(default_factory=NoTrash)
    staging_dir: Path | None = None
    hashes_on_the_way: bool = False
    is_far: bool = False
