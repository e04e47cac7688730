"""A place for a blob between its arrival and its store."""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engine_registry.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def staged(staging_dir: Path | None) -> Iterator[Path]:
    """A name for a new file, which is gone when the block ends.

    Args:
        staging_dir: of the store that will take it in (`Stores.staging_dir`); None: the system's
            directory for temporary files.

    Raises:
        Unavailable: there is no room or no right to write there.
    """
    folder = staging_dir or Path(tempfile.gettempdir())
    name = f"{os.getpid()}-{secrets.token_hex(8)}"
    path = folder / (name if staging_dir else f"enginectl-{name}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield path
    except OSError as error:
        raise Unavailable(
            f"cannot write {path}: {error.strerror or error}",
            hint="make room there (TMPDIR names another place), then run the same command again",
            reference="disk-full",
        ) from error
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def new_file(path: Path) -> Iterator[int]:
    """A new file, open to read and write, locked so that no sweep takes it for a leftover."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with suppress(OSError):  # where there are no locks, nothing is swept
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield fd
    finally:
        os.close(fd)
