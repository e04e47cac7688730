"""The five ways an examination can end, how they combine, and the exit code of each. Pure.

Combining: outcomes are ordered by what they mean for the whole,

    failed > errored > inconclusive > passed > skipped

and the highest one decides. Failed comes first because no further evidence could make it good
again: whoever gets it has an engine to mend, not a machine. Errored hides inconclusive, since what
could not be looked at must be looked at first. Only skipped parts make a whole that was skipped,
which is not a pass either. An empty list means that nothing was examined: that is errored.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from engine_registry.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Iterable


class Outcome(StrEnum):
    """How an examination ended."""

    PASSED = "passed"
    FAILED = "failed"  # judged, and bad
    ERRORED = "errored"  # could not judge: trouble that is not the engine's
    INCONCLUSIVE = "inconclusive"  # judged, and the evidence is too thin
    SKIPPED = "skipped"  # not asked for, with a reason


_RANK = (
    Outcome.SKIPPED,
    Outcome.PASSED,
    Outcome.INCONCLUSIVE,
    Outcome.ERRORED,
    Outcome.FAILED,
)


def combine(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of the whole, given those of its parts; errored if there are none."""
    return max(outcomes, key=_RANK.index, default=Outcome.ERRORED)


def exit_code(outcome: Outcome) -> ExitCode:
    """The exit code of a gate that ended like this; only passed is 0."""
    match outcome:
        case Outcome.PASSED:
            return ExitCode.DONE
        case Outcome.FAILED:
            return ExitCode.REFUSED
        case Outcome.ERRORED | Outcome.INCONCLUSIVE | Outcome.SKIPPED:
            return ExitCode.COULD_NOT_JUDGE
