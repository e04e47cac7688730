"""Every store adapter against the shared contract."""

from pathlib import Path

import pytest

from engine_registry.backends.filesystem import file_stores
from engine_registry.backends.memory import memory_stores
from engine_registry.store import Stores
from engine_registry.testing.conformance import (
    BlobStoreContract,
    DocumentStoreContract,
    PointerStoreContract,
)
from engine_registry.testing.samples import TickingClock
from engine_registry.testing.trash_conformance import TrashContract


class _Memory:
    @pytest.fixture
    def stores(self) -> Stores:
        return memory_stores(TickingClock())


class _Filesystem:
    @pytest.fixture
    def stores(self, tmp_path: Path) -> Stores:
        stores = file_stores(tmp_path / "registry", TickingClock())
        stores.blobs.add_bytes(b"founds it")
        return stores


class TestMemoryBlobs(_Memory, BlobStoreContract):
    pass


class TestMemoryDocuments(_Memory, DocumentStoreContract):
    pass


class TestMemoryPointers(_Memory, PointerStoreContract):
    pass


class TestFilesystemBlobs(_Filesystem, BlobStoreContract):
    pass


class TestFilesystemDocuments(_Filesystem, DocumentStoreContract):
    pass


class TestFilesystemPointers(_Filesystem, PointerStoreContract):
    pass


class TestMemoryTrash(_Memory, TrashContract):
    pass


class TestFilesystemTrash(_Filesystem, TrashContract):
    pass
