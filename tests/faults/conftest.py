import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_MEMORY_BACKED = Path("/dev/shm")


@pytest.fixture
def fast_dir() -> Iterator[Path]:
    """A directory where fsync costs nothing: hundreds of stories run in it."""
    parent = _MEMORY_BACKED if _MEMORY_BACKED.is_dir() else None
    folder = Path(tempfile.mkdtemp(prefix="engine-registry-", dir=parent))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(
    params=[pytest.param(3, id="a-third"), pytest.param(1, id="all", marks=pytest.mark.nightly)]
)
def stride(request: pytest.FixtureRequest) -> int:
    """From one place to die at to the next: by default a third of them, at night all."""
    found: int = request.param
    return found
