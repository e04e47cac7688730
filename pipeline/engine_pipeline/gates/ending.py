"""How a server ended although nobody asked it to, and what that says of the engine.

says something of the engine     exited, or crashed with a signal of its own making
says nothing of it               killed (as the kernel does when memory runs out), never
                                 started, or its last word is about its host
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.runners.protocol import parse_error
from engine_registry.errors import CouldNotJudge, EngineCIError, ExitCode, JudgedAndRefused

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

SETTLE_S = 1.0
_LOOK_S = 0.02
_LOG_LINES = 20
_LOG_BYTES = 8000
_LINE_CHARS = 300
_KILLED = frozenset({-signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGKILL, 128 + signal.SIGTERM})
# What the guard says of a command that cannot be run, as shells do.
_NOT_STARTED = frozenset({126, 127})
# What a server of this package may end with that is about its host: a runtime that is not
# installed, a port that is taken, memory that is short, a bug.
_ABOUT_THE_HOST = frozenset({ExitCode.INCOMPATIBLE, ExitCode.UNAVAILABLE, ExitCode.BUG})


class DidNotLoad(JudgedAndRefused):
    """Gate zero failed: the server gave up on the engine.

    Attributes:
        log: the last lines it wrote.
    """

    reference = "engine-did-not-load"
    log: tuple[str, ...] = ()


class CouldNotServe(CouldNotJudge):
    """Gate zero is open: the server was killed, could not be started, or did not get ready.

    Attributes:
        log: the last lines it wrote.
    """

    reference = "engine-could-not-be-served"
    log: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a server ended.

    Attributes:
        words: what follows "the server".
        by_itself: it exited or crashed; else something killed it, or it never started.
    """

    words: str
    by_itself: bool


def ending(status: int) -> Ending:
    """What the exit status of a guarded process says."""
    if status in _KILLED:
        name = signal.Signals(abs(status) % 128).name
        return Ending(words=f"was killed by {name}", by_itself=False)
    if status in _NOT_STARTED:
        return Ending(words=f"could not be started (exit code {status})", by_itself=False)
    number = -status if status < 0 else status - 128
    with suppress(ValueError):
        return Ending(words=f"crashed with {signal.Signals(number).name}", by_itself=True)
    return Ending(words=f"exited with code {status}", by_itself=True)


async def settle(gone: Callable[[], str | None]) -> None:
    """Return once `gone` says so, or after SETTLE_S.

    To be awaited after a lost connection: a dying server drops those before its end can be seen.
    """
    deadline = time.monotonic() + SETTLE_S
    while gone() is None and time.monotonic() < deadline:
        await asyncio.sleep(_LOOK_S)


def before_it_was_ready(status: int, log_path: Path) -> DidNotLoad | CouldNotServe:
    """The error that a server which ended while loading stands for.

    A server of this package says why in its last word; of another, only the exit status speaks.
    """
    ended, said = ending(status), last_word(log_path)
    error: DidNotLoad | CouldNotServe
    if said is not None and ended.by_itself:
        kind = CouldNotServe if said.exit_code in _ABOUT_THE_HOST else DidNotLoad
        error = kind(said.message, hint=said.hint, reference=said.name)
    elif ended.by_itself:
        error = DidNotLoad(
            f"the server did not load the engine: {ended.words}",
            hint="read the log's last lines in the report; then `enginectl inspect` the engine",
        )
    else:
        error = CouldNotServe(
            f"the server {ended.words} before it was ready",
            hint="check free memory and the installed backend with `enginectl doctor`",
        )
    error.log = last_lines(log_path)
    return error


def last_word(log_path: Path) -> EngineCIError | None:
    """The error that a server of this package ended with; None if the log has none."""
    found = (parse_error(line) for line in reversed(_tail(log_path)))
    return next((error for error in found if error is not None), None)


def last_lines(log_path: Path) -> tuple[str, ...]:
    """The last lines of a server's log, printable and bounded."""
    lines = ("".join(filter(str.isprintable, line))[:_LINE_CHARS] for line in _tail(log_path))
    return tuple(line for line in lines if line.strip())[-_LOG_LINES:]


def _tail(log_path: Path) -> list[str]:
    try:
        with log_path.open("rb") as stream:
            stream.seek(max(stream.seek(0, os.SEEK_END) - _LOG_BYTES, 0))
            return stream.read().decode(errors="replace").splitlines()
    except OSError:
        return []
