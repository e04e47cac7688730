"""Errors as people and scripts see them: what happened, what to do next, and the exit code."""

from __future__ import annotations

import sys
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from engine_registry.errors import EngineCIError, ExitCode, escaped

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Screen

# What shells report for a process ended by SIGINT and SIGPIPE: 128 + signal number.
_INTERRUPTED = 130
_BROKEN_PIPE = 141


def report(error: BaseException, screen: Screen) -> int:
    """Print `error` to standard error (and as JSON if asked for) and return the exit code."""
    match error:
        case EngineCIError():
            return _say(screen, error.name, error.message, error.hint, error.exit_code)
        case click.exceptions.Exit():
            return error.exit_code
        case click.Abort() | KeyboardInterrupt():
            message = "interrupted; nothing half-done is escaped"
            return _say(screen, "interrupted", message, "run the same command again", _INTERRUPTED)
        case click.ClickException():
            command = (
                error.ctx.command_path
                if isinstance(error, click.UsageError) and error.ctx
                else "enginectl"
            )
            hint = f"see `{command} --help`"
            return _say(screen, "usage", error.format_message(), hint, ExitCode.INVALID)
        case BrokenPipeError():
            sys.stderr.close()
            return _BROKEN_PIPE
        case OSError() if _is_printing(error):
            from engine_pipeline.cli.answer import unwritable

            return report(unwritable(error), screen)
        case SystemExit():
            return error.code if isinstance(error.code, int) else 1
        case _:
            traceback.print_exception(error)
            message = f"{type(error).__name__}: {error}".splitlines()[0]
            hint = "this is a bug of enginectl; report it with the trace above"
            return _say(screen, "unexpected", message, hint, ExitCode.BUG)


def _is_printing(error: OSError) -> bool:
    """Whether it was raised while click itself printed a help text or a version."""
    return traceback.extract_tb(error.__traceback__)[-1].filename == click.utils.__file__


def _say(screen: Screen, reference: str, message: str, hint: str, code: int) -> int:
    colour = sys.stderr.isatty()
    head = click.style("error", fg="red", bold=True) if colour else "error"
    with suppress(OSError):  # nobody hears it; the exit code still says what happened
        click.echo(f"{head}[{reference}]: {escaped(message)}", err=True)
        click.echo(f"  next: {escaped(hint)}", err=True)
    if screen.wants_json:
        detail = {"reference": reference, "message": message, "hint": hint, "exit_code": int(code)}
        screen.print_json({"error": detail})
    return int(code)
