"""Another registry as the origin of a cargo, and the check that every origin's bytes go through."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError

if TYPE_CHECKING:
    from engine_registry.store import Stores


class StoreOrigin:
    """The stores of another registry, as an origin."""

    def __init__(self, stores: Stores) -> None:
        self._blobs = stores.blobs
        self._documents = stores.documents

    def read(self, name: str) -> bytes:
        """See `Origin.read`."""
        return self._documents.read(name)

    def children(self, folder: str) -> list[str]:
        """See `Origin.children`."""
        return list(self._documents.children(folder))

    def open(self, digest: Digest) -> BinaryIO:
        """See `Origin.open`."""
        return self._blobs.open(digest)

    def file(self, digest: Digest) -> Path | None:
        """See `Origin.file`: a store in a directory gives its own file."""
        with self._blobs.open(digest) as stream:
            name = getattr(stream, "name", None)
        path = Path(name) if isinstance(name, str | Path) else None
        return path if path is not None and path.is_file() else None

    def fetch(self, digest: Digest, size_bytes: int, path: Path) -> None:
        """See `Origin.fetch`."""
        self._blobs.materialise(digest, path)
        with path.open("rb") as stream:
            check_arrived(digest, size_bytes, Digest.of_stream(stream), path.stat().st_size)


def check_arrived(digest: Digest, size_bytes: int, found: Digest, found_bytes: int) -> None:
    """Refuse bytes that are not the blob they came as."""
    if (found, found_bytes) != (digest, size_bytes):
        raise IntegrityError(
            f"blob {digest}: {found_bytes:,} bytes arrived with digest {found}, want {digest} and "
            f"{size_bytes:,} bytes",
            hint="run `enginectl verify` where it comes from, and send it again",
            reference="blob-damaged",
        )
