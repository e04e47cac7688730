"""Gate zero: whether a server loaded an engine, and whether what it says then is text. Pure.

Its text counts before its exit status: what an engine kind's servers print is known to the backend
(`Words`), and a server whose ranks died may hang instead of ending.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.ending import CouldNotServe, DidNotLoad
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import Finding, LoadResult
from engine_registry.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine_pipeline.backends.port import Words
    from engine_pipeline.gates.report import CaseResult
    from engine_pipeline.gates.server import Server

# What a known text of a server that gave up may be about besides its engine.
_ABOUT_THE_HOST = frozenset({ExitCode.UNAVAILABLE, ExitCode.BUG})
_REASON_CHARS = 2000
DEGENERATE = "degenerate answers"
_CHECK = "not-degenerate"
_NAMED = 5


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


def judge_degenerate(
    cases: Sequence[CaseResult], under_load: Sequence[CaseResult] = ()
) -> tuple[Finding, ...]:
    """Whether any answer is none at all: empty, not text, going round in circles; see `degenerate`.

    One such answer fails, whatever the score. A case that is meant to repeat itself says so with
    `allow_loops`; one in quarantine counts here as little as anywhere.

    Args:
        cases: of the first pass over the suite; without any there is nothing to say.
        under_load: of the second one, if there was one.
    """
    found = [*_degenerate(cases, ""), *_degenerate(under_load, " under load")]
    answers = sum(
        attempt.error is None
        for case in (*cases, *under_load)
        if case.counts
        for attempt in case.attempts
    )
    if found:
        more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        reason = f"{len(found)} of {answers}, want none: {'; '.join(found[:_NAMED])}{more}"
        outcome = Outcome.FAILED
    elif answers:
        outcome, reason = Outcome.PASSED, f"none of {answers}"
    else:
        outcome, reason = Outcome.SKIPPED, "nothing was answered"
    return (Finding(name=DEGENERATE, outcome=outcome, reason=reason[:_REASON_CHARS]),)


def _degenerate(cases: Sequence[CaseResult], when: str) -> Iterator[str]:
    for case in cases:
        if not case.counts:
            continue
        for attempt in case.attempts:
            verdicts = (one for one in attempt.checks if one.kind == _CHECK and not one.passed)
            yield from (f"{case.id}{when}: {one.reason}" for one in verdicts)
