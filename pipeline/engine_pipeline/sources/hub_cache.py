"""What the hub's own cache needs on top: taking turns, and getting rid of a bad file."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine_pipeline.progress import Progress

_LOCK_POLL_S = 0.2
# A name in a snapshot points to a blob, which may point into a store shared by repositories.
_LONGEST_CHAIN = 8


def discard(cached: Path, cache_dir: Path) -> None:
    """Remove `cached` and whatever it points to, as far as that lies in `cache_dir`."""
    root = cache_dir.resolve()
    for _ in range(_LONGEST_CHAIN):
        following = cached.parent / cached.readlink() if cached.is_symlink() else None
        if cached.parent.resolve().is_relative_to(root):
            cached.unlink(missing_ok=True)
        if following is None:
            return
        cached = following


@contextmanager
def turn(cache_dir: Path, name: str, progress: Progress) -> Iterator[None]:
    """Hold the lock `name` of this cache; waits as long as another process has it.

    The lock goes with the process that holds it, however that ends. A cache that cannot be written
    is used without: a download will say what is wrong with it.
    """
    import fcntl

    locks = cache_dir / ".locks" / "engine-ci"
    try:
        locks.mkdir(parents=True, exist_ok=True)
        handle = (locks / f"{name}.lock").open("ab")
    except OSError:
        yield
        return
    with handle:
        said = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not said:
                    progress.note(f"another process downloads {name}: waiting")
                said = True
                time.sleep(_LOCK_POLL_S)
        yield
