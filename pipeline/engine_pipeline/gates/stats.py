"""Percentiles, how sure they are, and whether a bar is met. Pure, standard library only.

A percentile is an order statistic: the ceil(q·n)-th smallest sample, never interpolated. Its bounds
are order statistics too, from the binomial distribution, which holds for any distribution of
independent samples: an upper bound for p95 at 95 % confidence takes 59 samples, as 0.95^59 < 0.05.
A failed request is a sample of +inf.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

CONFIDENCE = 0.95
# With fewer samples than an upper bound takes, a bar counts as met when at least so many samples
# all lie below half of it; with fewer still nothing is said.
LEAST_SAMPLES = 20
MARGIN = 0.5
# Student's t, one-sided 95 %, for 9 degrees of freedom: the ten slots of `rate`.
SLOTS = 10
_STUDENT_T = 1.833


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


def percentile_estimate(samples: Sequence[float], q: float) -> Estimate:
    """The percentile with bounds; -inf and inf where so few samples give none."""
    ordered = sorted(samples)
    n = len(ordered)
    below = _binomial_cumulative(n, q)
    # P(k-th smallest <= percentile) = P(at least k of n samples lie at or below it).
    low = [k for k in range(1, n + 1) if 1 - below[k - 1] >= CONFIDENCE]
    # P(percentile <= k-th smallest) = P(at most k-1 of n samples lie below it).
    high = [k for k in range(1, n + 1) if below[k - 1] >= CONFIDENCE]
    return Estimate(
        n=n,
        needed=math.ceil(math.log(1 - CONFIDENCE) / math.log(q)),
        value=percentile(ordered, q),
        low=ordered[low[-1] - 1] if low else -math.inf,
        high=ordered[high[0] - 1] if high else math.inf,
        largest=ordered[-1],
    )


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


def _say(value: float, unit: str) -> str:
    return f"{value:.4g} {unit}" if math.isfinite(value) else "beyond measure"
