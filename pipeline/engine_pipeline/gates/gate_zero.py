"""Gate zero: what it means that a server loaded an engine, or did not. Pure.

Its text counts before its exit status: what an engine kind's servers print is known to the backend
(`Words`), and a server whose ranks died may hang instead of ending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.ending import CouldNotServe, DidNotLoad
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import LoadResult
from engine_registry.errors import ExitCode

if TYPE_CHECKING:
    from engine_pipeline.backends.port import Words
    from engine_pipeline.gates.server import Server

# What a known text of a server that gave up may be about besides its engine.
_ABOUT_THE_HOST = frozenset({ExitCode.UNAVAILABLE, ExitCode.BUG})
_REASON_CHARS = 2000


def not_ready(
    error: DidNotLoad | CouldNotServe, words: Words, lines: tuple[str, ...]
) -> LoadResult:
    """Of a server that was not ready: what its text says, where that is known, or how it ended.

    Args:
        error: how it ended.
        words: of the engine's kind.
        lines: its log.
    """
    outcome = Outcome.FAILED if isinstance(error, DidNotLoad) else Outcome.ERRORED
    reason = error.message
    if (known := words.load_error("engine", lines)) is not None:
        outcome = Outcome.ERRORED if known.exit_code in _ABOUT_THE_HOST else Outcome.FAILED
        reason = f"{known.message} ({known.name}); {known.hint}; {error.message}"
    return could_not_load(outcome, reason, error.log)


def could_not_load(outcome: Outcome, reason: str, log: tuple[str, ...] = ()) -> LoadResult:
    """Nothing was asked, for this reason."""
    return LoadResult(outcome=outcome, reason=reason[:_REASON_CHARS], log=log)


def loaded(server: Server, warnings: tuple[str, ...]) -> LoadResult:
    """Of a server that was ready, once it has been asked everything.

    Args:
        server: as it is now.
        warnings: what it said against the engine while it loaded it.
    """
    ended = server.ended()
    ready = f"ready in {server.load_s:.1f} s"
    if warnings:
        ready += f", with a warning ({'; '.join(warnings)})"
    if ended is None:
        outcome, reason = Outcome.PASSED, f"{ready}, up to the end"
    else:
        outcome = Outcome.FAILED if ended.by_itself else Outcome.ERRORED
        reason = f"{ready}, but the server {ended.words} while it was asked"
    return LoadResult(
        outcome=outcome,
        reason=reason[:_REASON_CHARS],
        load_s=round(server.load_s, 3),
        log=() if ended is None else server.log(),
        warnings=warnings,
    )
