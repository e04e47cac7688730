import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_registry.backends.memory import memory_stores
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import TickingClock

_MEMORY_BACKED = Path("/dev/shm")


@pytest.fixture
def root() -> Iterator[Path]:
    """Where `on_disk` lies: where fsync is quick, if there is such a place."""
    parent = _MEMORY_BACKED if _MEMORY_BACKED.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="engine-registry-", dir=parent))
    yield folder / "registry"
    shutil.rmtree(folder)


@pytest.fixture
def on_disk(root: Path) -> Registry:
    """A registry in a directory."""
    registry = open_registry(f"file://{root}", TickingClock())
    registry.stores.blobs.add_bytes(b"founds it")
    return registry


@pytest.fixture(params=["memory", "filesystem"])
def registry(request: pytest.FixtureRequest) -> Registry:
    """The same registry over every store."""
    if request.param == "filesystem":
        on_disk: Registry = request.getfixturevalue("on_disk")
        return on_disk
    clock = TickingClock()
    return Registry(memory_stores(clock), clock)
