"""What is said where a file or a directory that somebody asked for finds no room on its disk."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from engine_registry.errors import EngineCIError, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
_FULL_NAMES = frozenset({"disk-full", "store-full"})


def is_full(error: OSError | EngineCIError) -> bool:
    """Whether this is the disk's refusal for want of room, or of quota."""
    if isinstance(error, EngineCIError):
        return error.name in _FULL_NAMES
    return error.errno in _FULL


def free_bytes(path: Path) -> int:
    """How many bytes an unprivileged writer can still put on the file system of `path`."""
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize


def disk_full(path: Path, need_bytes: int) -> Unavailable:
    """The error for `path`, which would take `need_bytes` and is gone again."""
    free = free_bytes(path.parent)
    return Unavailable(
        f"cannot write {path}: no room: need {need_bytes:,} bytes, {free:,} are free",
        hint=f"make room on the file system of {path.parent}, then run the same command again",
        reference="disk-full",
    )
