from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_registry.backends.memory import memory_stores
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import TickingClock


@pytest.fixture(params=["memory", "filesystem"])
def registry(request: pytest.FixtureRequest, tmp_path: Path) -> Registry:
    """The same registry over every store."""
    clock = TickingClock()
    if request.param == "memory":
        return Registry(memory_stores(clock), clock)
    opened = open_registry(f"file://{tmp_path}/registry", clock)
    opened.stores.blobs.add_bytes(b"founds it")
    return opened


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where `on_disk` lies."""
    return tmp_path / "registry"


@pytest.fixture
def on_disk(root: Path) -> Iterator[Registry]:
    """A registry in a directory."""
    registry = open_registry(str(root), TickingClock())
    registry.stores.blobs.add_bytes(b"founds it")
    return registry
