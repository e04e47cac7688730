"""Measurements on disk, one file for each contestant under one set of suites and loads.

A file is named by the digest of everything that was measured under, and is written whole or not at
all, so whoever runs a bake-off again goes on where it was. Prices, limits and priorities are no
part of that. Only one bake-off at a time measures with one directory: two would share a machine.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from engine_pipeline.bakeoff.measured import Measured
from engine_pipeline.whole_file import replace_whole
from engine_registry.documents import seal, unseal
from engine_registry.errors import Conflict, IntegrityError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine_registry.digest import Digest

_LOCK = "lock"


@contextmanager
def only_one(workdir: Path) -> Iterator[None]:
    """Make the directory, and keep other bake-offs out of it while the block runs.

    Raises:
        Conflict: another one is at work there.
        Unavailable: it cannot be made.
    """
    try:
        workdir.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(workdir / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise _unusable(workdir, error) from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise Conflict(
            f"another bake-off is measuring with {workdir}; two at once would slow each other",
            hint="wait until it ends, then run the command again",
            reference="bakeoff-running",
        ) from error
    finally:
        os.close(descriptor)


def load_kept(workdir: Path, key: Digest) -> Measured | None:
    """What was measured under this key; None if nothing was.

    Raises:
        IntegrityError: the file is damaged or of another release.
        Unavailable: it cannot be read.
    """
    path = _path(workdir, key)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(workdir, error) from error
    measured, _ = unseal(data, Measured, str(path))
    if measured.key != key:
        raise IntegrityError(
            f"{path}: is of {measured.key.short}, want {key.short}",
            hint="remove the file, then run the command again",
            reference="measurement-of-another",
        )
    return measured


def keep(workdir: Path, measured: Measured) -> None:
    """Store a measurement in place of an earlier one; raises Unavailable."""
    write_whole(_path(workdir, measured.key), seal(measured))


def write_whole(path: Path, data: bytes) -> None:
    """Put `data` into a file, an old one's place or a new one's, all of it or none.

    Raises:
        Unavailable: it cannot be written.
    """
    try:
        replace_whole(path, data)
    except OSError as error:
        raise Unavailable(
            f"{path}: cannot be written: {error.strerror or error}",
            hint="free space or choose another place, then run again: what was measured is kept",
            reference="bakeoff-unwritable",
        ) from error


def _path(workdir: Path, key: Digest) -> Path:
    return workdir / f"{key.hex}.json"


def _unusable(workdir: Path, error: OSError) -> Unavailable:
    return Unavailable(
        f"cannot use {workdir}: {error.strerror or error}",
        hint="free space there, or choose another place with --workdir",
        reference="workdir-not-usable",
    )
