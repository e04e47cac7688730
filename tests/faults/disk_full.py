"""A disk that is full from the n-th write on, or only at it, under the file system adapter."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from threading import Lock

import pytest

from engine_registry.errors import Unavailable

# What takes room: data, directory entries, new files, and the flush that finds there is none.
_CALLS = ("mkdir", "link", "rename", "replace", "write", "pwrite", "ftruncate", "fsync", "open")


class Full(StrEnum):
    """How long, and how much of the write there was room for."""

    FROM_THEN_ON = "from then on"
    ONCE = "once"  # somebody made room at once
    HALF_WRITTEN = "half written"  # there was room for half of it, and for nothing more


class Disk:
    """Counts what takes room and refuses it from call `at` on."""

    def __init__(self, at: int, full: Full) -> None:
        self.calls = 0
        self.refused = 0
        self._at = at
        self._full = full
        self._lock = Lock()

    def wrap(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            if name == "open" and not _creates(arguments):
                return real(*arguments, **options)
            with self._lock:
                self.calls += 1
                number = self.calls
                refuses = number == self._at or (number > self._at and self._full != Full.ONCE)
                first = refuses and not self.refused
                self.refused += refuses
            if not refuses:
                return real(*arguments, **options)
            if first and self._full == Full.HALF_WRITTEN and name in ("write", "pwrite"):
                data = bytes(arguments[1])  # type: ignore[call-overload]
                if len(data) > 1:
                    return real(arguments[0], data[: len(data) // 2], *arguments[2:])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        return call


def _creates(arguments: tuple[object, ...]) -> bool:
    flags = arguments[1] if len(arguments) > 1 else 0
    return isinstance(flags, int) and bool(flags & os.O_CREAT)


@contextmanager
def full_disk(at: int, full: Full) -> Iterator[Disk]:
    disk = Disk(at, full)
    with pytest.MonkeyPatch.context() as patch:
        for name in _CALLS:
            patch.setattr(os, name, disk.wrap(name, getattr(os, name)))
        yield disk


def attempt(act: Callable[[], object], at: int, full: Full) -> tuple[bool, bool]:
    """Act on such a disk; whether it got that far, and whether it was refused for want of room."""
    with full_disk(at, full) as disk:
        try:
            act()
        except Unavailable as error:
            if error.name != "store-full":
                raise
            return True, True
    return bool(disk.refused), False
