"""The search: which of the changes between good and bad is to blame. Pure.

Changes are applied one after the other, in a fixed order, and the first state that is bad is found
by halving: the change that made it so is the culprit. What is then not known is whether it is bad
by itself, so that is tried last. Eight changes take three tries and that one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Judge = Callable[[tuple[str, ...]], "Verdict"]


class Verdict(StrEnum):
    """What a try showed."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"  # it could not be built, or not be judged


class Alone(StrEnum):
    """Whether a culprit is bad without the changes before it."""

    YES = "yes"
    NO = "no"  # it takes one of the earlier changes too
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The result.

    Attributes:
        suspects: one change; several, if what lies between them could not be judged.
        before: the changes that were in place already when it went bad.
        alone: asked of a single suspect only.
    """

    suspects: tuple[str, ...]
    before: tuple[str, ...]
    alone: Alone


def most_tries(count: int) -> int:
    """Tries that `count` changes take at most, if every one of them can be judged."""
    return (count - 1).bit_length() + (1 if count > 1 else 0)


def blame(changes: Sequence[str], judge: Judge) -> Blame:
    """Find the change to blame.

    Args:
        changes: in the order in which they are applied; with none of them it is good, with all of
            them it is bad.
        judge: builds and judges with exactly these changes.
    """
    good, bad = 0, len(changes)
    unknown: set[int] = set()
    while middle := _nearest_to_middle(good, bad, unknown):
        match judge(tuple(changes[:middle])):
            case Verdict.GOOD:
                good = middle
            case Verdict.BAD:
                bad = middle
            case Verdict.UNKNOWN:
                unknown.add(middle)
    suspects, before = tuple(changes[good:bad]), tuple(changes[:good])
    return Blame(suspects=suspects, before=before, alone=_alone(suspects, before, judge))


def _nearest_to_middle(good: int, bad: int, unknown: set[int]) -> int | None:
    """How many changes to try next; None if nothing between the two is left to be tried."""
    middle = (good + bad) / 2
    left = [count for count in range(good + 1, bad) if count not in unknown]
    return min(left, key=lambda count: (abs(count - middle), count), default=None)


def _alone(suspects: tuple[str, ...], before: tuple[str, ...], judge: Judge) -> Alone:
    if len(suspects) > 1:
        return Alone.UNKNOWN
    if not before:
        return Alone.YES  # it was judged so on the way
    verdicts = {Verdict.BAD: Alone.YES, Verdict.GOOD: Alone.NO, Verdict.UNKNOWN: Alone.UNKNOWN}
    return verdicts[judge(suspects)]
