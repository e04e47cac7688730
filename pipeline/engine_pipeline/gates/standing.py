"""Cases that do not stand still: flaky ones, and those that are in quarantine for it. Pure.

What is told here decides nothing by itself: a flaky case counts with the share that passed, a case
in quarantine does not count until its day, and counts again after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date

    from engine_pipeline.gates.report import CaseResult
    from engine_pipeline.gates.suite import Suite

FLAKY = "flaky cases"
QUARANTINE = "quarantine"
QUARANTINE_OVER = "quarantine over"
_NAMED = 8
_REASON_CHARS = 2000


def standing_findings(cases: Sequence[CaseResult]) -> tuple[Finding, ...]:
    """What is told of cases that passed and failed, that do not count, or count again."""
    held = [case for case in cases if not case.counts]
    over = [case for case in cases if case.counts and case.quarantine is not None]
    flaky = [case for case in cases if case.is_flaky]
    told = (
        (FLAKY, "passed and failed", [flakiness(case) for case in flaky]),
        (QUARANTINE, "asked and shown, not counted", [_held(case) for case in held]),
        (QUARANTINE_OVER, "counted again: mend or renew with a reason", [_over(c) for c in over]),
    )
    return tuple(
        Finding(
            name=name,
            outcome=Outcome.SKIPPED,
            reason=f"{len(lines)} {'case' if len(lines) == 1 else 'cases'} {what}: "
            f"{_joined(lines)}"[:_REASON_CHARS],
        )
        for name, what, lines in told
        if lines
    )


def quarantines_over(suite: Suite, today: date) -> list[str]:
    """The cases of a suite whose quarantine is over, each in words."""
    return [
        f"case {case.id}: its quarantine ended on {held.until} ({held.owner}: {held.reason}); it "
        "counts again"
        for case in suite.cases
        if (held := case.quarantine) is not None and today > held.until
    ]


def flakiness(case: CaseResult) -> str:
    """How often a case passed, and how often it gave its most frequent answer."""
    outcomes = [attempt.outcome for attempt in case.attempts]
    same = "" if case.agreement is None else f", the same answer {case.agreement:.0%} of the time"
    return f"{case.id} passed {outcomes.count(Outcome.PASSED)} of {len(outcomes)} times{same}"


def _held(case: CaseResult) -> str:
    assert case.quarantine is not None
    found = case.quarantine
    return (
        f"{case.id}, {case.outcome} this time, until {found.until} ({found.owner}: {found.reason})"
    )


def _over(case: CaseResult) -> str:
    assert case.quarantine is not None
    return f"{case.id}, {case.outcome}, since {case.quarantine.until} ({case.quarantine.owner})"


def _joined(lines: list[str]) -> str:
    more = f"; and {len(lines) - _NAMED} more" if len(lines) > _NAMED else ""
    return "; ".join(lines[:_NAMED]) + more
