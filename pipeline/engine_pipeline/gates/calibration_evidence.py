"""From what was measured to where a bar should stand, and what it then catches. Pure.

Times and rates: a run to come lies within a prediction interval of those that were made (normal).
Scores: runs of one engine are often alike to the word, and then their deviation says nothing; as
many cases may be lost by chance as so many runs cannot rule out. What a score catches follows from
its number of cases: a drop is a share of cases lost, and which ones is chance (binomial).
Distances from a parent move as builds do, not as runs do: no bar is proposed where runs are alike.
"""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from engine_pipeline.gates.calibration_bars import Bar, Kind, effective
from engine_pipeline.gates.paired_stats import student_t

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.calibration import BarEvidence, ErrorRates, WorthCatching

_ROUNDED = 1000
# One-sided 95 %: what never happened in n runs happens less often than this over n.
_NEVER_SEEN = -math.log(0.05)
_MOST_NEEDED = 100_000


def evidence_of(
    bar: Bar, measured: Sequence[float], rates: ErrorRates, worth: WorthCatching
) -> BarEvidence:
    """Everything that is to be known of one bar, from three runs or more."""
    from engine_pipeline.gates.calibration import BarEvidence

    mean, deviation, n = fmean(measured), stdev(measured), len(measured)
    # A run to come lies within so much of the mean of n runs (prediction interval).
    spread = deviation * math.sqrt(1 + 1 / n)
    within = student_t(1 - rates.false_alarm, n - 1) * spread
    beyond = student_t(1 - rates.miss, n - 1) * spread
    proposed: float | None
    catches: float | None
    now: float | None
    needs: int | None
    if bar.kind is Kind.CASES:
        cases = effective(bar.weights) if bar.weights else float(bar.of)
        within = max(within, lost_by_chance(n, rates.false_alarm) / cases)
        lowest = _down(mean - within)
        proposed = lowest if lowest > 0 else None
        catches = None if proposed is None else _drop_caught(mean, proposed, cases, rates.miss)
        now = None if bar.value is None else _drop_caught(mean, bar.value, cases, rates.miss)
        needs = cases_needed(lost_by_chance(n, rates.false_alarm), worth.drop, rates.miss)
    elif bar.kind is Kind.DISTANCE and deviation == 0:
        proposed = catches = now = needs = None
    else:
        side = -1 if bar.is_floor else 1
        proposed = max(_outwards(mean + side * within, side), 0.0)
        catches = _worse(mean, proposed + side * beyond)
        now = None if bar.value is None else _worse(mean, bar.value + side * beyond)
        needs = _needed(bar.of, catches, worth.change)
    return BarEvidence(
        part=bar.part,
        bar=bar.value,
        mean=round(mean, 4),
        deviation=round(deviation, 4),
        n=n,
        proposed=proposed,
        catches=catches,
        catches_now=now,
        of=bar.of,
        needs=needs,
    )


def lost_by_chance(runs: int, false_alarm: float) -> int:
    """How many cases a bar has to allow for after `runs` runs that were all alike.

    What was not seen once may still happen `_NEVER_SEEN / runs` times a run; the least number that
    is exceeded in at most `false_alarm` of runs (Poisson).
    """
    expected = _NEVER_SEEN / runs
    term = total = math.exp(-expected)
    lost = 0
    while 1 - total > false_alarm:
        lost += 1
        term *= expected / lost
        total += term
    return lost


def cases_needed(allowed: int, drop: float, miss: float) -> int:
    """The fewest cases of which so few are lost after such a drop in at most `miss` of suites."""
    low, high = allowed, _MOST_NEEDED
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if lost_at_most(allowed, middle, drop) <= miss else (middle, high)
    return high


def lost_at_most(lost: int, cases: int, drop: float) -> float:
    """P(at most `lost` of `cases` are lost) where each is with probability `drop`."""
    if lost >= cases:
        return 1.0
    total = 0.0
    for k in range(lost + 1):
        ways = math.lgamma(cases + 1) - math.lgamma(k + 1) - math.lgamma(cases - k + 1)
        total += math.exp(ways + k * math.log(drop) + (cases - k) * math.log1p(-drop))
    return min(total, 1.0)


def _drop_caught(mean: float, bar: float, cases: float, miss: float) -> float:
    """The smallest share of cases lost that a score below `bar` shows in all but `miss`."""
    # What passes now is what can be lost.
    whole = max(math.floor(mean * cases + 1e-9), 1)
    allowed = math.floor((mean - bar) * cases + 1e-9)
    if allowed < 0:
        return 0.0
    if allowed >= whole:
        return 1.0
    low, high = 1e-6, 1 - 1e-6
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (
            (low, middle) if lost_at_most(allowed, whole, middle) <= miss else (middle, high)
        )
    return round(high, 4)


def _worse(mean: float, value: float) -> float | None:
    value = max(value, 0.0)  # a rate cannot fall further
    return round(abs(value - mean) / mean, 4) if mean else None


def _needed(of: int, catches: float | None, change: float) -> int | None:
    """So many requests, if runs differ by their requests alone: four times as many halve noise."""
    if catches is None or not of:
        return None
    return max(math.ceil(of * (catches / change) ** 2), 1)


def _outwards(value: float, side: int) -> float:
    scaled = value * _ROUNDED
    return (math.ceil(scaled) if side > 0 else math.floor(scaled)) / _ROUNDED


def _down(value: float) -> float:
    return math.floor(value * _ROUNDED + 1e-9) / _ROUNDED
