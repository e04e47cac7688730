"""What is known of a blob beyond what the store says of it, kept under `cache/`.

Two kinds: blobs whose bytes were hashed and right although their head proves nothing (copied in by
another tool), and blobs whose bytes were hashed and wrong although their head looks right. Both are
derived: deleting them costs a hash, and a store that refuses to take them works without.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from engine_registry.errors import EngineCIError

if TYPE_CHECKING:
    from engine_registry.backends.s3.checksums import Head
    from engine_registry.backends.s3.objects import Objects
    from engine_registry.digest import Digest

_VERIFIED = "cache/verified"
_DAMAGED = "cache/damaged"


class Stamps:
    """Stamps of one registry, by blob digest."""

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self._damaged: set[str] = set()

    def load(self) -> None:
        """Learn which blobs were found damaged by anybody. Never fails."""
        with suppress(EngineCIError):
            names = [item.name for item in self._objects.children(_DAMAGED)]
            self._damaged.update(name.rpartition("/")[2] for name in names)

    def vouches(self, digest: Digest, head: Head) -> bool:
        """Whether this very object was hashed and right."""
        return self._holds(f"{_VERIFIED}/{digest.hex}", head)

    def condemns(self, digest: Digest, head: Head) -> bool:
        """Whether this very object was hashed and wrong."""
        return digest.hex in self._damaged and self._holds(f"{_DAMAGED}/{digest.hex}", head)

    def write(self, digest: Digest, head: Head) -> None:
        """Remember an object whose bytes were just found right. Never fails."""
        with suppress(EngineCIError):
            self._objects.put(f"{_VERIFIED}/{digest.hex}", _shape(head))

    def condemn(self, digest: Digest, head: Head) -> None:
        """Remember an object whose bytes were just found wrong. Never fails."""
        self._damaged.add(digest.hex)
        with suppress(EngineCIError):
            self._objects.put(f"{_DAMAGED}/{digest.hex}", _shape(head))

    def absolve(self, digest: Digest) -> None:
        """Forget that a blob was damaged: good bytes took its place. Never fails."""
        if digest.hex in self._damaged:
            self._damaged.discard(digest.hex)
            with suppress(EngineCIError):
                self._objects.delete(f"{_DAMAGED}/{digest.hex}")

    def _holds(self, name: str, head: Head) -> bool:
        with suppress(EngineCIError):
            held = self._objects.get(name)
            return held is not None and held.data == _shape(head)
        return False


def _shape(head: Head) -> bytes:
    return json.dumps([head.etag, head.size_bytes, head.last_modified]).encode()
