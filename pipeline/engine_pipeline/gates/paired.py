"""Two engines under the same load in the same hour: how much slower is one, and does it matter?

A round is two runs of one workload, one of each engine, on one device, each on a fresh server; the
order turns from round to round (A B, B A, …), so that what drifts falls on both alike. For each
round and metric one number is taken: the logarithm of candidate over live. Rounds are what is
independent, so bounds come from rounds, and requests within a run only make each round sharper.

    passed         the upper bound is below the smallest change worth catching
    failed         otherwise, the lower bound is above 1: it is slower, and maybe by that much
    inconclusive   neither

So the same engine fails as rarely as stated, and one that is slower by the smallest change passes
as rarely as stated; in between, either verdict is right. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from engine_pipeline.gates import stats
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.stats_robust import (
    degrees_of_freedom,
    standard_error,
    student_t,
    trimmed_mean,
)
from engine_registry.documents import Value
from engine_registry.record import Text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.speed_report import Sample
    from engine_pipeline.gates.workload_bars import AgainstLive

# A request that failed on one side stands for a hundred times: beyond any bar, and yet finite.
_BEYOND = math.log(100.0)
_LEAST_MS = 0.001
_MOST_MORE = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """How sure the bounds of one comparison are.

    Attributes:
        low: confidence of the lower bound, which a failure rests on.
        high: confidence of the upper bound, which a pass rests on.
    """

    low: float
    high: float

    @classmethod
    def of(cls, against: AgainstLive, comparisons: int) -> Levels:
        """Shares the stated error rates out evenly over all looks, and false alarms over all
        comparisons that could raise one.
        """
        return cls(
            low=1 - against.false_alarm / against.looks / comparisons,
            high=1 - against.miss / against.looks,
        )


class Comparison(Value):
    """One metric of the candidate against the live engine.

    Attributes:
        level: step of the workload.
        ratio: candidate over live, 1.1 is ten per cent slower, with its bounds.
        deviation: of the rounds' log ratios.
        smallest_change: the smallest share worth catching.
        more_rounds: how many more would settle it, if the noise stays what it is; None if it is
            settled, or if no sensible number would.
        log_ratios: one for each round that counts, in order.
    """

    metric: Text
    level: Text
    rounds: Annotated[int, Field(ge=0)]
    ratio: float | None
    low: float | None
    high: float | None
    deviation: float | None
    smallest_change: float
    outcome: Outcome
    reason: Annotated[str, Field(min_length=1, max_length=2000)]
    more_rounds: int | None = None
    log_ratios: tuple[float, ...] = ()


def log_ratio(metric: str, candidate: Sequence[Sample], live: Sequence[Sample]) -> float | None:
    """How much longer one run of the candidate took than one of the live engine, as a logarithm.

    Request by request for `ttft`, `ttft_open`, `tpot`, `e2e`: the trimmed mean over the requests
    that both runs have, so that long and short prompts never mix; for percentiles, such as
    `ttft_p95_ms`, that of the two percentiles. A request that failed on one side alone counts as
    a hundred times as long there. None if no request can be compared.
    """
    if "_p" not in metric:
        ratios = _request_ratios(f"{metric}_ms", candidate, live)
        return trimmed_mean(ratios) if ratios else None
    series, _, rest = metric.rpartition("_p")
    quantile = int(rest.removesuffix("_ms")) / 100
    mine, theirs = (_percentile(f"{series}_ms", quantile, run) for run in (candidate, live))
    return None if mine is None or theirs is None else _ratio(mine, theirs)


def _request_ratios(field: str, candidate: Sequence[Sample], live: Sequence[Sample]) -> list[float]:
    theirs = {sample.index: _value(field, sample) for sample in live}
    ratios = []
    for sample in candidate:
        mine, other = _value(field, sample), theirs.get(sample.index)
        if mine is not None and other is not None:
            ratio = _ratio(mine, other)
            ratios += [] if ratio is None else [ratio]
    return ratios


def _percentile(field: str, quantile: float, run: Sequence[Sample]) -> float | None:
    values = [value for value in (_value(field, sample) for sample in run) if value is not None]
    return stats.percentile(values, quantile) if values else None


def _value(field: str, sample: Sample) -> float | None:
    """Infinite for a request that failed; None where nothing was measured."""
    if sample.error is not None:
        return math.inf
    stored = {"stall_ms": "longest_gap_ms"}.get(field, field)
    value: float | None = getattr(sample, stored)
    return value


def _ratio(mine: float, theirs: float) -> float | None:
    """None if both failed. Two events that come in one read are 0 apart: at least a microsecond."""
    if math.isinf(mine) and math.isinf(theirs):
        return None
    if math.isinf(mine) or math.isinf(theirs):
        return _BEYOND if math.isinf(mine) else -_BEYOND
    ratio = math.log(max(mine, _LEAST_MS) / max(theirs, _LEAST_MS))
    return max(-_BEYOND, min(_BEYOND, ratio))


def compare(
    metric: str,
    level: str,
    log_ratios: Sequence[float],
    *,
    smallest_change: float,
    sure: Levels,
) -> Comparison:
    """The verdict on one metric from the rounds that count."""
    n = len(log_ratios)
    facts = {"metric": metric, "level": level, "rounds": n, "smallest_change": smallest_change}
    if n < 2 or degrees_of_freedom(n) < 1:
        return Comparison(
            **facts,
            ratio=None,
            low=None,
            high=None,
            deviation=None,
            outcome=Outcome.INCONCLUSIVE,
            reason=f"{n} rounds count, too few to say anything",
            log_ratios=tuple(log_ratios),
        )
    middle, error = trimmed_mean(log_ratios), standard_error(log_ratios)
    worse = math.log1p(smallest_change)
    low, high = _bounds(middle, error, n, sure)
    outcome = _outcome(low, high, worse)
    more = _more_rounds(middle, error, n, worse, sure) if outcome is _OPEN else None
    return Comparison(
        **facts,
        ratio=round(math.exp(middle), 4),
        low=round(math.exp(low), 4),
        high=round(math.exp(high), 4),
        deviation=round(error * math.sqrt(n), 4),
        outcome=outcome,
        reason=_reason(outcome, middle, low, high, smallest_change, n, more),
        more_rounds=more,
        log_ratios=tuple(round(value, 5) for value in log_ratios),
    )


_OPEN = Outcome.INCONCLUSIVE


def _bounds(middle: float, error: float, n: int, sure: Levels) -> tuple[float, float]:
    degrees = degrees_of_freedom(n)
    low = middle - student_t(sure.low, degrees) * error
    return low, middle + student_t(sure.high, degrees) * error


def _outcome(low: float, high: float, worse: float) -> Outcome:
    if high < worse:
        return Outcome.PASSED
    return Outcome.FAILED if low > 0 else _OPEN


def _more_rounds(middle: float, error: float, n: int, worse: float, sure: Levels) -> int | None:
    for more in range(1, _MOST_MORE + 1):
        shrunk = error * math.sqrt(n / (n + more))
        if _outcome(*_bounds(middle, shrunk, n + more, sure), worse) is not _OPEN:
            return more
    return None


def _reason(
    outcome: Outcome,
    middle: float,
    low: float,
    high: float,
    smallest_change: float,
    n: int,
    more: int | None,
) -> str:
    found = (
        f"{math.exp(middle):.3f} × live ({math.exp(low):.3f} to {math.exp(high):.3f}, {n} rounds)"
    )
    bar = 1 + smallest_change
    if outcome is Outcome.PASSED:
        slower = "slower, by less than is worth catching" if low > 0 else "upper bound"
        return f"{found}: {slower}, below {bar:.3f}"
    if outcome is Outcome.FAILED:
        return f"{found}: slower for sure, and {bar:.3f} is not ruled out"
    cure = (
        f"about {more} more rounds would settle it, if the noise stays what it is"
        if more is not None
        else f"no {_MOST_MORE} more rounds would settle it: the machine is too noisy for this bar"
    )
    return f"{found}: the bounds reach from below 1 to above {bar:.3f}; {cure}"
