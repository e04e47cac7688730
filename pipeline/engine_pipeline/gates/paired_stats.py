"""A robust mean of few, noisy values and how sure it is. Pure, standard library only.

The mean of the middle 60 % (20 % trimmed at either end): one round in five may be spoilt without
effect. Its standard error is that of a bootstrap, and its bounds are Student's, as for a trimmed
mean: with n - 2g - 1 degrees of freedom where g values are trimmed at either end (Tukey and
McLaughlin 1963). Percentiles of the bootstrap itself are no bounds here: with a dozen values they
cannot leave the range of the values.
"""

from __future__ import annotations

import math
import random
from functools import lru_cache
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

TRIM = 0.2
RESAMPLES = 500


def trimmed_mean(values: Sequence[float]) -> float:
    """The mean without the smallest and the largest 20 %, rounded down; of at least one value."""
    cut = _trimmed(len(values))
    middle = sorted(values)[cut : len(values) - cut]
    return math.fsum(middle) / len(middle)


def standard_error(values: Sequence[float]) -> float:
    """The standard error of the trimmed mean, by bootstrap; 0 for equal values.

    Resampling is seeded: the same values, in whatever order, give the same error.
    """
    n = len(values)
    ranked = sorted(values)
    kept = n - 2 * _trimmed(n)
    means = [math.fsum(middle(ranked)) / kept for middle in _resamples(n)]
    centre = math.fsum(means) / RESAMPLES
    variance = math.fsum((one - centre) ** 2 for one in means) / (RESAMPLES - 1)
    # A resample varies by (n - 1) / n of what a sample does.
    return math.sqrt(variance * n / (n - 1))


def degrees_of_freedom(n: int) -> int:
    """Of the bounds of a trimmed mean of `n` values."""
    return n - 2 * _trimmed(n) - 1


@lru_cache(maxsize=1024)
def student_t(confidence: float, degrees: int) -> float:
    """The one-sided quantile of Student's distribution, for a confidence from 0.5 to below 1.

    Raises:
        ValueError: the confidence is outside, or there are no degrees of freedom.
    """
    if not 0.5 <= confidence < 1 or degrees < 1:
        msg = f"quantile {confidence} of Student's distribution with {degrees} degrees"
        raise ValueError(msg)
    low, high = 0.0, 1.0
    while _student_below(high, degrees) < confidence:
        low, high = high, high * 2
    for _ in range(60):
        middle = (low + high) / 2
        if _student_below(middle, degrees) < confidence:
            low = middle
        else:
            high = middle
    return high


def _student_below(t: float, degrees: int) -> float:
    """P(T <= t) for t >= 0: the finite series for whole degrees (Abramowitz, Stegun 26.7.3, 4)."""
    angle = math.atan(t / math.sqrt(degrees))
    cosine2 = math.cos(angle) ** 2
    odd = degrees % 2
    term = math.sin(angle) * (math.cos(angle) if odd else 1.0)
    total = 0.0
    for k in range(1, degrees // 2 + 1):
        total += term
        term *= cosine2 * (2 * k / (2 * k + 1) if odd else (2 * k - 1) / (2 * k))
    both = (angle + total) * 2 / math.pi if odd else total
    return (1 + both) / 2


def _trimmed(n: int) -> int:
    return math.floor(TRIM * n)


@lru_cache(maxsize=16)
def _resamples(n: int) -> tuple[Callable[[Sequence[float]], tuple[float, ...]], ...]:
    """Each takes the trimmed middle of one resample out of `n` values that are in order.

    Ranks drawn and put in order name the values of the resample in order, so that no resample
    is sorted again.
    """
    draw = random.Random(n)
    cut = _trimmed(n)
    drawn = (sorted(draw.choices(range(n), k=n))[cut : n - cut] for _ in range(RESAMPLES))
    return tuple(itemgetter(*ranks) for ranks in drawn)
