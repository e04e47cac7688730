"""What a step's process and the runner that started it say to each other, line by line.

On standard output, for people and the runner:

    ::phase <name> [<detail>]
    ::progress <done> <total or -> <unit>
    ::note <text>

On standard error, at most once and last, the error the process ends with; it exits with the same
code:

    ::error {"reference": ..., "message": ..., "hint": ..., "exit_code": ...}

Any other line is log text. A step's entry point is `sys.exit(run_child(act))`; a runner gives each
line of standard output to `relay` and looks for `parse_error` in standard error.
"""

from __future__ import annotations

import json
import re
import sys
import time
import traceback
from typing import TYPE_CHECKING, TextIO

from engine_registry.errors import (
    Conflict,
    CouldNotJudge,
    EngineCIError,
    ExitCode,
    Incompatible,
    IntegrityError,
    InvalidInput,
    JudgedAndRefused,
    NotFound,
    RefusedByPolicy,
    Unavailable,
)
from engine_registry.room import is_full

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_pipeline.progress import Progress

# A terminal redraws often enough twice a second, and a CI log stays readable.
TICK_S = 0.5
_TEXT_LIMIT = 4000

_ERROR_MARK = "::error "
_PROGRESS = re.compile(r"::progress (\d+(?:\.\d+)?) (\d+(?:\.\d+)?|-) ([a-z]{1,20})")
_PHASE = re.compile(r"::phase (\S+)(?: (.*))?")
_NOTE = re.compile(r"::note (.+)")

_BY_EXIT_CODE: dict[ExitCode, type[EngineCIError]] = {
    kind.exit_code: kind
    for kind in (
        EngineCIError,
        InvalidInput,
        JudgedAndRefused,
        CouldNotJudge,
        RefusedByPolicy,
        Incompatible,
        Conflict,
        NotFound,
        Unavailable,
        IntegrityError,
    )
}


class ChildProgress:
    """Progress as protocol lines; updates in between are dropped, so a caller may call often.

    Args:
        stream: where the lines go.
        clock: seconds, monotonic.
        tick_s: least time between two `::progress` lines; the first of a phase and a finished one
            always go out.
    """

    def __init__(
        self,
        stream: TextIO,
        *,
        clock: Callable[[], float] = time.monotonic,
        tick_s: float = TICK_S,
    ) -> None:
        self._stream = stream
        self._clock = clock
        self._tick_s = tick_s
        self._next_at = clock()
        self._last = ""

    def phase(self, name: str, detail: str = "") -> None:
        """Say that a new phase begins."""
        self._next_at = self._clock()
        self._last = ""
        self._write(f"::phase {'-'.join(name.split())} {_one_line(detail)}".rstrip())

    def update(self, done: float, total: float | None, unit: str) -> None:
        """Say how far the phase is, when it is time to."""
        now = self._clock()
        finished = total is not None and done >= total
        if now < self._next_at and not finished:
            return
        line = f"::progress {_number(done)} {'-' if total is None else _number(total)} {unit}"
        if line == self._last:
            return
        self._next_at = now + self._tick_s
        self._last = line
        self._write(line)

    def note(self, text: str) -> None:
        """Say one line worth keeping."""
        self._write(f"::note {_one_line(text)}")

    def _write(self, line: str) -> None:
        self._stream.write(line + "\n")
        self._stream.flush()


def relay(line: str, progress: Progress) -> bool:
    """Hand one line of a child's standard output to `progress`; False if it is plain log text."""
    line = line.rstrip("\r\n")
    if match := _PROGRESS.fullmatch(line):
        done, total, unit = match.groups()
        progress.update(float(done), None if total == "-" else float(total), unit)
    elif match := _PHASE.fullmatch(line):
        progress.phase(match.group(1), match.group(2) or "")
    elif match := _NOTE.fullmatch(line):
        progress.note(match.group(1))
    else:
        return False
    return True


def error_line(error: EngineCIError) -> str:
    """The line that carries `error` to the parent; always one line of ASCII."""
    return _ERROR_MARK + json.dumps(
        {
            "reference": error.name,
            "message": _one_line(error.message),
            "hint": _one_line(error.hint),
            "exit_code": int(error.exit_code),
        }
    )


def parse_error(line: str) -> EngineCIError | None:
    """The error that a line of standard error carries, of the class that belongs to its exit code.

    None for log text, and for a line that only looks like one of ours.
    """
    if not line.startswith(_ERROR_MARK):
        return None
    try:
        value = json.loads(line[len(_ERROR_MARK) :])
        kind = _BY_EXIT_CODE[ExitCode(value["exit_code"])]
        message, hint, reference = value["message"], value["hint"], value["reference"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not all(isinstance(text, str) for text in (message, hint, reference)):
        return None
    return kind(message, hint=hint, reference=reference)


def run_child(
    act: Callable[[Progress], None],
    *,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
) -> int:
    """Run a step's work in this process and give the exit status; errors go out as one line.

    A full disk and exhausted memory are told apart from bugs here, because every step can meet
    them. A bug leaves its traceback above the error line. Somebody who started the step by hand, in
    a terminal, reads what happened and what to do next; a program reads the line.
    """
    out = stdout or sys.stdout
    err = stderr or sys.stderr
    try:
        act(ChildProgress(out))
    except Exception as error:
        ending = _translate(error)
        if ending.exit_code is ExitCode.BUG:
            traceback.print_exc(file=err)
        # A thread of the library may stand in the middle of a line of its log.
        said = f"error[{ending.name}]: {ending.message}\n  next: {ending.hint}"
        err.write("\n" + (said if err.isatty() else error_line(ending)) + "\n")
        err.flush()
        return int(ending.exit_code)
    return int(ExitCode.DONE)


def _translate(error: Exception) -> EngineCIError:
    if isinstance(error, EngineCIError):
        return error
    if isinstance(error, OSError) and is_full(error):
        return Unavailable(
            f"no space left while writing {error.filename or 'the step output'}",
            hint="free space there or choose another workspace, then run the same command again",
            reference="disk-full",
        )
    if isinstance(error, MemoryError):
        return Unavailable(
            "out of host memory",
            hint="free memory or use a larger machine, then run the same command again",
            reference="host-memory-exhausted",
        )
    return EngineCIError(
        f"{type(error).__name__}: {error}",
        hint="report this as a bug, with the traceback above",
    )


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{value:.3f}"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:_TEXT_LIMIT]
