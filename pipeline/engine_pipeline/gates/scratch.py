"""A private directory for one run, removed when it ends, or by a later run if this one was killed.

Each directory has a lock file beside it, held while the run lives. The kernel gives a dead
process's locks up, so a lock that can be had marks a directory that nobody uses.
"""

from __future__ import annotations

import fcntl
import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkstemp
from typing import TYPE_CHECKING

from engine_registry.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

_PREFIX = "gate-"
_LOCK = ".lock"


@contextmanager
def scratch(workdir: Path) -> Iterator[Path]:
    """A new, empty directory below `workdir`, gone when the block ends; leftovers are swept first.

    Raises:
        Unavailable: it cannot be made.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        sweep(workdir)
        descriptor, lock_path = _new_lock(workdir)
    except OSError as error:
        raise Unavailable(
            f"cannot make a directory in {workdir}: {error.strerror or error}",
            hint="free space there, or choose another place with --workdir",
            reference="workdir-not-usable",
        ) from error
    directory = lock_path.with_suffix("")
    try:
        directory.mkdir(mode=0o700)
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)
        lock_path.unlink(missing_ok=True)
        os.close(descriptor)


def sweep(workdir: Path) -> None:
    """Remove the directories of runs that are no more."""
    for lock_path in workdir.glob(f"{_PREFIX}*{_LOCK}"):
        try:
            descriptor = os.open(lock_path, os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
            lock_path.unlink(missing_ok=True)
        finally:
            os.close(descriptor)


def _new_lock(workdir: Path) -> tuple[int, Path]:
    """A lock that is held, and its file."""
    while True:
        descriptor, name = mkstemp(prefix=_PREFIX, suffix=_LOCK, dir=workdir)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A sweep may have had it between its creation and our lock: then the file is gone.
            if os.fstat(descriptor).st_nlink:
                return descriptor, Path(name)
        except BlockingIOError:
            pass
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
