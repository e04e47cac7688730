"""Runs an act in a process that dies, without any clean-up, at its n-th step."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

_NAMES = {
    "os.rename",
    "os.symlink",
    "os.link",
    "os.mkdir",
    "os.rmdir",
    "os.remove",
    "os.chmod",
    "os.truncate",
}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_KILLED, _FAILED = 77, 78


def killed_at(
    number: int, act: Callable[[], object], below: Path, *, moves_only: bool = False
) -> bool:
    """Whether `act` was killed before its `number`-th step; False if it ended before that.

    Steps are: a file opened to be written, a name made, moved or removed, below `below`; bytes made
    durable; a connection made. With `moves_only` they are: a name moved, a connection made.
    """
    child = os.fork()
    if child:
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in {0, _KILLED}, f"the act failed by itself at step {number}: {status}"
        return status == _KILLED
    try:
        _count_down(number, str(below), moves_only=moves_only)
        act()
    except BaseException:
        traceback.print_exc()
        os._exit(_FAILED)
    os._exit(0)


def _count_down(number: int, below: str, *, moves_only: bool) -> None:
    left = number

    def step() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os._exit(_KILLED)

    def watch(event: str, args: tuple[object, ...]) -> None:
        names = {"os.rename"} if moves_only else _NAMES
        if event == "socket.connect" or (event in names and _is_below(args)):
            step()
        elif event == "open" and not moves_only and _is_below(args[:1]):
            flags = args[2]
            if isinstance(flags, int) and flags & _WRITES:
                step()

    def _is_below(args: tuple[object, ...]) -> bool:
        return any(
            isinstance(arg, str | bytes | os.PathLike) and os.fsdecode(arg).startswith(below)
            for arg in args
        )

    real = os.fsync

    def fsync(descriptor: int) -> None:
        step()
        real(descriptor)

    if not moves_only:
        os.fsync = fsync
    sys.addaudithook(watch)
