"""Create-once documents, pointers and the inventory over a bucket."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_registry.backends.s3.objects import IF_ABSENT, new_writer
from engine_registry.backends.s3.root import PRIVATE, S3Root
from engine_registry.digest import Digest
from engine_registry.errors import Conflict, DocumentConflict, NotFound, Unavailable
from engine_registry.store import PointerValue, StoredFile

if TYPE_CHECKING:
    from collections.abc import Iterator

_JSON = "application/json"
# How often a refused create may find the object gone: somebody deletes what we look at.
_LOOKS = 3


class S3Documents:
    """The document port: one small PutObject with `If-None-Match: *` each."""

    def __init__(self, root: S3Root) -> None:
        self._root = root
        self._objects = root.objects

    def create(self, name: str, data: bytes) -> bool:
        """See `DocumentStore.create`."""
        self._root.proof()
        writer = new_writer()
        for _ in range(_LOOKS):
            written = self._objects.put(
                name, data, condition=IF_ABSENT, metadata=writer, content_type=_JSON
            )
            if written is not None:
                return True
            held = self._objects.get(name)
            if held is None:
                continue
            if held.data == data:
                # Ours if the reply to an earlier attempt of this call was lost.
                return held.head.metadata.get("writer") == writer["writer"]
            raise DocumentConflict(
                f"{name}: exists with other content: stored {Digest.of(held.data).short}, "
                f"offered {Digest.of(data).short}",
                hint="read what is stored, then decide again",
            )
        raise Unavailable(
            f"{self._objects.address}: {name} is refused as existing, but cannot be read",
            hint="somebody may be deleting it (a lifecycle rule?); run the same command again",
            reference="store-inconsistent",
        )

    def read(self, name: str) -> bytes:
        """See `DocumentStore.read`."""
        held = self._root.beside(lambda: self._objects.get(name))
        if held is None:
            raise NotFound(
                f"{name}: not in the registry at {self._objects.address}",
                hint="run `enginectl list` to list what this registry holds",
                reference="document-missing",
            )
        return held.data

    def exists(self, name: str) -> bool:
        """See `DocumentStore.exists`."""
        self._root.require()
        return self._objects.head(name) is not None

    def children(self, folder: str) -> Iterator[str]:
        """See `DocumentStore.children`."""
        self._root.require()
        cut = len(folder) + 1
        yield from sorted(item.name[cut:] for item in self._objects.children(folder))


class S3Pointers:
    """The pointer port: an object replaced if its ETag is still what was read.

    Most stores derive the ETag from the content, so contents must never repeat; a channel's carry
    the number of their last event.
    """

    def __init__(self, root: S3Root) -> None:
        self._root = root
        self._objects = root.objects

    def read(self, name: str) -> PointerValue | None:
        """See `PointerStore.read`."""
        held = self._root.beside(lambda: self._objects.get(name))
        return None if held is None else PointerValue(data=held.data, version=held.head.etag)

    def swap(self, name: str, expected: str | None, data: bytes) -> str:
        """See `PointerStore.swap`."""
        proof = self._root.proof()
        writer = new_writer()
        condition = IF_ABSENT if expected is None else proof.if_match(expected)
        version = self._objects.put(
            name, data, condition=condition, metadata=writer, content_type=_JSON
        )
        if version is not None:
            return version
        held = self._objects.get(name)
        if held is not None and held.head.metadata.get("writer") == writer["writer"]:
            return held.head.etag  # the reply to an earlier attempt of this call was lost
        found = held.head.etag if held else "absent"
        raise Conflict(
            f"{name}: is at version {found}, expected {expected or 'absent'}",
            hint="read the pointer again, then decide again",
            reference="pointer-moved",
        )


class S3Inventory:
    """Everything below the prefix but what is derived, scratch or discarded."""

    def __init__(self, root: S3Root) -> None:
        self._root = root

    def files(self) -> Iterator[StoredFile]:
        """See `Inventory.files`; sorted by name."""
        self._root.require()
        for item in self._root.objects.below():
            if not item.name.startswith(PRIVATE):
                yield StoredFile(name=item.name, size_bytes=item.size_bytes)
