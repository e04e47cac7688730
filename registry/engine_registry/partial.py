"""What is being written, beside the name that it gets when it is whole.

`.<name>.<hex>.partial`, locked (`flock`) by its writer for as long as that lives. Whoever writes
the same name next removes what a killed writer left; where there are no locks it stays.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

# File systems end names at 255 bytes.
_NAME_BYTES = 200
_TOKEN = r"\.[0-9a-f]{16}\.partial"
_TRIES = 16


@contextmanager
def partial_file(path: Path) -> Iterator[Path]:
    """A new, empty file beside `path`; gone when the block ends, unless it was renamed.

    Raises:
        OSError: its directory is not there or not writable.
    """
    with _locked(path, lambda made: made.open("xb").close()) as made:
        yield made


@contextmanager
def partial_directory(path: Path) -> Iterator[Path]:
    """A new, empty directory beside `path`; otherwise as `partial_file`."""
    with _locked(path, lambda made: made.mkdir()) as made:
        yield made


@contextmanager
def _locked(path: Path, make: Callable[[Path], None]) -> Iterator[Path]:
    _sweep(path)
    made, fd = _begin(path, make)
    try:
        yield made
    finally:
        os.close(fd)
        _remove(made)


def _begin(path: Path, make: Callable[[Path], None]) -> tuple[Path, int]:
    for _ in range(_TRIES):
        made = path.with_name(f"{_prefix(path)}.{secrets.token_hex(8)}.partial")
        make(made)
        if (fd := _lock(made)) is not None:
            return made, fd
    raise FileNotFoundError(errno.ENOENT, "removed each time that it was begun", str(path))


def _lock(made: Path) -> int | None:
    """Say that its writer lives; None if it was swept before that could be said."""
    try:
        fd = os.open(made, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    with suppress(OSError):  # no locks here: no sweep can take one either
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    if made.exists():
        return fd
    os.close(fd)
    return None


def _sweep(path: Path) -> None:
    """Remove what killed writers of this name left; never fails."""
    wanted = re.compile(re.escape(_prefix(path)) + _TOKEN)
    with suppress(OSError):
        for entry in list(os.scandir(path.parent)):
            if not wanted.fullmatch(entry.name) or entry.is_symlink():
                continue
            with suppress(OSError):
                fd = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(path.with_name(entry.name))
                finally:
                    os.close(fd)


def _prefix(path: Path) -> str:
    return f".{os.fsdecode(os.fsencode(path.name)[:_NAME_BYTES])}"


def _remove(made: Path) -> None:
    with suppress(OSError):
        if made.is_dir():
            shutil.rmtree(made, ignore_errors=True)
        else:
            made.unlink()
