"""A registry in a directory, for one machine or a shared mount. `file_stores` gives the ports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_registry.backends.filesystem.blobs import FileBlobs
from engine_registry.backends.filesystem.documents import (
    FileDocuments,
    FileInventory,
    FilePointers,
)
from engine_registry.backends.filesystem.root import StoreRoot
from engine_registry.backends.filesystem.trash import FileTrash
from engine_registry.store import Stores

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path


def file_stores(path: Path, clock: Callable[[], datetime]) -> Stores:
    """The ports of the registry in directory `path`, which the first write founds."""
    root = StoreRoot(path.absolute(), clock)
    return Stores(
        blobs=FileBlobs(root),
        documents=FileDocuments(root),
        pointers=FilePointers(root),
        inventory=FileInventory(root),
        trash=FileTrash(root),
        staging_dir=root.tmp_dir,
    )


__all__ = ["file_stores"]
