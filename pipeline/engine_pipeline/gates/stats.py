"""Percentiles, how sure they are, and whether a bar is met. Pure, standard library only.

A percentile is an order statistic: the ceil(q·n)-th smallest sample, never interpolated. Its bounds
are order statistics too, from the binomial distribution, which holds for any distribution of
independent samples: an upper bound for p95 at 95 % confidence takes 59 samples, as 0.95^59 < 0.05.
A failed request is a sample of +inf.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

CONFIDENCE = 0.95
# With fewer samples than an upper bound takes, a bar counts as met when at least so many samples
# all lie below half of it; with fewer still nothing is said.
LEAST_SAMPLES = 20
MARGIN = 0.5
# Student's t, one-sided 95 %, for 9 degrees of freedom: the ten slots of `rate`.
SLOTS = 10
_STUDENT_T = 1.833
# Where the normal approximation of the binomial distribution is as good as the distribution.
_NORMAL_FROM = 5000
_NORMAL_95 = 1.645
# As many as a load may have.
MOST_MORE = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A measured value with one-sided 95 % bounds; infinite where a bound cannot be given.

    Attributes:
        n: samples, failures among them.
        needed: how many samples an upper bound takes.
        largest: the largest sample; infinite for rates.
    """

    n: int
    needed: int
    value: float
    low: float
    high: float
    largest: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Whether a bar is met, and the rule that decided."""

    outcome: Outcome
    why: str


def percentile(samples: Sequence[float], q: float) -> float:
    """The ceil(q·n)-th smallest sample.

    Raises:
        ValueError: no samples, or `q` outside (0, 1].
    """
    if not samples or not 0 < q <= 1:
        msg = f"percentile {q} of {len(samples)} samples"
        raise ValueError(msg)
    return sorted(samples)[_rank(q, len(samples)) - 1]


def _rank(q: float, n: int) -> int:
    # 0.95 * 20 is 19.000000000000000355 in exact arithmetic and 19.0 in floats; the rounding keeps
    # the rank from jumping where the product is a whole number.
    return max(math.ceil(round(q * n, 9)), 1)


def percentile_estimate(
    samples: Sequence[float], q: float, independent: int | None = None
) -> Estimate:
    """The percentile with bounds; -inf and inf where so few samples give none.

    Args:
        samples: at least one.
        q: within (0, 1).
        independent: of how many independent things the samples are; gaps between tokens are as
            many as there are tokens, and tell no more of each other than the answers that they
            belong to. None: each sample is one.
    """
    ordered = sorted(samples)
    n = len(ordered)
    m = n if independent is None else max(min(independent, n), 1)
    low, high = _bound_ranks(m, q)
    return Estimate(
        n=m,
        needed=math.ceil(math.log(1 - CONFIDENCE) / math.log(q)),
        value=percentile(ordered, q),
        low=-math.inf if low is None else ordered[(low - 1) * n // m],
        high=math.inf if high is None else ordered[-(-high * n // m) - 1],
        largest=ordered[-1],
    )


@lru_cache(maxsize=64)
def _bound_ranks(n: int, q: float) -> tuple[int | None, int | None]:
    """Which of `n` ordered samples bound the percentile from below and from above."""
    if n > _NORMAL_FROM:
        half = _NORMAL_95 * math.sqrt(n * q * (1 - q))
        return max(math.floor(n * q - half), 1), min(math.ceil(n * q + half) + 1, n)
    below = _binomial_cumulative(n, q)
    # P(k-th smallest <= percentile) = P(at least k of n samples lie at or below it).
    low = [k for k in range(1, n + 1) if 1 - below[k - 1] >= CONFIDENCE]
    # P(percentile <= k-th smallest) = P(at most k-1 of n samples lie below it).
    high = [k for k in range(1, n + 1) if below[k - 1] >= CONFIDENCE]
    return (low[-1] if low else None), (high[0] if high else None)


def share_estimate(hits: int, n: int) -> Estimate:
    """The share of `n` independent trials that were hits, with bounds.

    Exact (Clopper and Pearson) up to _NORMAL_FROM trials, Wilson's beyond, where they agree.

    Raises:
        ValueError: no trials, or more hits than trials.
    """
    if not 0 <= hits <= n or n == 0:
        msg = f"{hits} hits of {n}"
        raise ValueError(msg)
    value = hits / n
    if n > _NORMAL_FROM:
        z = _NORMAL_95
        middle, scale = (value + z * z / (2 * n)) / (1 + z * z / n), z / (1 + z * z / n)
        half = scale * math.sqrt(value * (1 - value) / n + z * z / (4 * n * n))
        low, high = middle - half, middle + half
    else:
        alpha = 1 - CONFIDENCE
        # The share under which so many hits, or more, would be as rare as alpha; and fewer.
        low = _solve(lambda p: 1 - _at_most(hits - 1, n, p) > alpha) if hits else 0.0
        high = _solve(lambda p: _at_most(hits, n, p) <= alpha) if hits < n else 1.0
    return Estimate(n=n, needed=n, value=value, low=max(low, 0.0), high=min(high, 1.0), largest=1.0)


def _at_most(k: int, n: int, p: float) -> float:
    return _binomial_cumulative(n, p)[k]


def _solve(holds: Callable[[float], bool]) -> float:
    """The least p in (0, 1) for which `holds`, which does from some p on."""
    low, high = 1e-12, 1 - 1e-12
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _binomial_cumulative(n: int, q: float) -> list[float]:
    """P(at most k of n successes) for k = 0..n, each success having probability `q`."""
    total = 0.0
    cumulative = []
    for k in range(n + 1):
        ways = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
        total += math.exp(ways + k * math.log(q) + (n - k) * math.log1p(-q))
        cumulative.append(min(total, 1.0))
    return cumulative


def rate(amounts: Sequence[float], slot_s: float) -> Estimate:
    """What flows per second, from the amounts of SLOTS equal slots of time (batch means).

    Raises:
        ValueError: another number of slots, or a slot without length.
    """
    if len(amounts) != SLOTS or slot_s <= 0:
        msg = f"{len(amounts)} slots of {slot_s} s, want {SLOTS} of more than 0 s"
        raise ValueError(msg)
    rates = [amount / slot_s for amount in amounts]
    mean = math.fsum(rates) / SLOTS
    spread = math.sqrt(math.fsum((item - mean) ** 2 for item in rates) / (SLOTS - 1))
    half = _STUDENT_T * spread / math.sqrt(SLOTS)
    return Estimate(n=SLOTS, needed=SLOTS, value=mean, low=mean - half, high=mean + half)


def at_most(estimate: Estimate, bar: float, unit: str) -> Judgement:
    """Whether a percentile is at most `bar`.

    Met when its upper bound is, missed when its lower bound is not; with fewer samples than an
    upper bound takes, met when LEAST_SAMPLES or more all lie below MARGIN of the bar. Otherwise
    inconclusive.
    """
    n = estimate.n
    low, high = _say(estimate.low, unit), _say(estimate.high, unit)
    if estimate.low > bar:
        return Judgement(outcome=Outcome.FAILED, why=f"lower 95 % bound {low} is above the bar")
    if estimate.high <= bar:
        return Judgement(outcome=Outcome.PASSED, why=f"upper 95 % bound {high} is within the bar")
    if n >= estimate.needed:
        why = f"95 % bounds {low} to {high} lie on both sides of the bar"
        return Judgement(outcome=Outcome.INCONCLUSIVE, why=why)
    if n >= LEAST_SAMPLES and estimate.largest <= MARGIN * bar:
        why = f"all {n} samples are within half of the bar (largest {_say(estimate.largest, unit)})"
        return Judgement(outcome=Outcome.PASSED, why=why)
    why = f"{n} samples give no upper bound ({estimate.needed} do), nor all within half of the bar"
    return Judgement(outcome=Outcome.INCONCLUSIVE, why=why)


def at_least(estimate: Estimate, bar: float, unit: str) -> Judgement:
    """Whether a rate is at least `bar`: met if its lower bound is, missed if its upper is not."""
    low, high = _say(estimate.low, unit), _say(estimate.high, unit)
    if estimate.low >= bar:
        return Judgement(outcome=Outcome.PASSED, why=f"lower 95 % bound {low} is within the bar")
    if estimate.high < bar:
        return Judgement(outcome=Outcome.FAILED, why=f"upper 95 % bound {high} is below the bar")
    why = f"95 % bounds {low} to {high} lie on both sides of the bar"
    return Judgement(outcome=Outcome.INCONCLUSIVE, why=why)


def more_requests(estimate: Estimate, bar: float, made: int) -> int | None:
    """About how many requests besides the `made` ones settle an open bar, if all are alike.

    Bounds close in with the root of the number of samples, so what they have to come nearer by is
    known. None where no number of them is known to do, such as a bar on the very value measured, or
    a percentile that is beyond measure.
    """
    value = estimate.value
    apart = abs(bar - value)
    if math.isinf(estimate.high) and value <= bar:
        return max(estimate.needed - estimate.n, 1)
    # The bound that is on the other side of the bar: of a value that meets it, the worse one.
    width = estimate.high - value if value < bar else value - estimate.low
    if not math.isfinite(apart) or not math.isfinite(width) or apart == 0:
        return None
    more = made * ((width / apart) ** 2 - 1)
    return max(math.ceil(more), 1) if more <= MOST_MORE else None


def settled_by(estimate: Estimate, bar: float, made: int) -> str:
    """The same in words, for whoever reads why a bar is open."""
    if math.isinf(estimate.value):
        return "see to the failed requests: with so many of them it is beyond measure"
    more = more_requests(estimate, bar, made)
    if more is None:
        return f"not even {MOST_MORE:,} more requests are sure to settle it"
    at_least = "at least" if math.isinf(estimate.high) else "about"
    return f"{at_least} {more:,} more requests would settle it, if they are like these"


def _say(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}" if math.isfinite(value) else "beyond measure"
