"""Two engines under the same load in the same hour: how much slower is one, and does it matter?

A round is two runs of one load, one of each engine, on one device, each on a fresh server; the
order turns from round to round (A B, B A, …), so that what drifts falls on both alike. Each round
gives one number per metric, the logarithm of candidate over live. Rounds are what is independent,
so bounds come from resampling rounds; requests within a run only make each round sharper.

    passed         the upper bound is below the smallest change worth catching
    failed         otherwise, the lower bound is above 1: it is slower, and maybe by that much
    inconclusive   neither

So the same engine fails as rarely as the policy says, and one that is slower by the smallest change
passes as rarely as the policy says; in between, either verdict is right. Pure.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from statistics import median
from typing import TYPE_CHECKING

from engine_pipeline.gates import stats
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired_result import Comparison, PairedRound, PairedRun, Side
from engine_pipeline.gates.paired_stats import (
    degrees_of_freedom,
    standard_error,
    student_t,
    trimmed_mean,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.paired_bars import PairedBars

# A request that failed on one side stands for a hundred times: beyond any bar, and yet finite.
_BEYOND = math.log(100.0)
# Two events that come in one read are 0 apart: at least a microsecond.
_LEAST_MS = 0.001
_MOST_MORE = 1000
_LEAST_ROUNDS = 3
_OPEN = Outcome.INCONCLUSIVE

RULE = (
    "a round does not count when, during either of its runs, others used more than {share:.0%} of "
    "the machine's processor time, a GPU was slowed down by heat, a power brake or a fault, or "
    "when a request of the live engine failed; the times that were measured are not looked at"
)


def rule(bars: PairedBars) -> str:
    """Which rounds do not count, in words."""
    return RULE.format(share=bars.max_foreign_cpu)


def why_dropped(runs: tuple[PairedRun, PairedRun], bars: PairedBars) -> str | None:
    """Why a round does not count; None if it does.

    The rule looks at the machine and at whether the baseline worked, never at times, so dropping a
    round favours neither engine.
    """
    for run in runs:
        if run.foreign_cpu is not None and run.foreign_cpu > bars.max_foreign_cpu:
            return (
                f"others used {run.foreign_cpu:.0%} of the processor time during the run of the "
                f"{run.side} engine, at most {bars.max_foreign_cpu:.0%} counts as quiet"
            )
        if run.slowed is not None:
            return f"a GPU was slowed down during the run of the {run.side} engine: {run.slowed}"
        if run.unreached:
            return f"{run.unreached} requests never reached the {run.side} engine: {_kinds(run)}"
        if run.side is Side.LIVE and run.failed:
            return f"requests of the live engine failed: {_kinds(run)}"
    return None


def _kinds(run: PairedRun) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(run.failed.items()))


def compare(rounds: Sequence[PairedRound], bars: PairedBars) -> tuple[Comparison, ...]:
    """The verdict on every metric from the rounds that count.

    Throughput is not among them: more tokens per second make up for no latency.
    """
    found = []
    for metric in bars.changes:
        ratios = [log_ratio(metric, made) for made in rounds]
        known = [ratio for ratio in ratios if ratio is not None]
        if rounds and not known:
            found.append(_not_measured(metric, bars))
        else:
            found.append(compare_metric(metric, known, bars))
    return tuple(found)


def _not_measured(metric: str, bars: PairedBars) -> Comparison:
    return Comparison(
        metric=metric,
        rounds=0,
        ratio=None,
        low=None,
        high=None,
        deviation=None,
        smallest_change=bars.changes[metric],
        outcome=Outcome.ERRORED,
        reason="not measured in any round: a server sends no usage, so tokens cannot be counted",
    )


def log_ratio(metric: str, made: PairedRound) -> float | None:
    """How much longer the candidate took in one round, as a logarithm; None if not measured.

    Of two percentiles, such as `ttft_p95_ms`. A request of the candidate that failed counts as a
    hundred times as long as anything.
    """
    mine = _percentile(metric, made.run(Side.CANDIDATE))
    theirs = _percentile(metric, made.run(Side.LIVE))
    if mine is None or theirs is None:
        return None
    if math.isinf(mine):
        return _BEYOND
    ratio = math.log(max(mine, _LEAST_MS) / max(theirs, _LEAST_MS))
    return max(-_BEYOND, min(_BEYOND, ratio))


def _percentile(metric: str, run: PairedRun) -> float | None:
    series, _, rest = metric.rpartition("_p")
    values = run.ttft_ms if series == "ttft" else run.tpot_ms
    if len(values) < len(run.ttft_ms):
        return None
    failures = [math.inf] * sum(run.failed.values())
    samples = [*values, *failures]
    return stats.percentile(samples, int(rest.removesuffix("_ms")) / 100) if samples else None


def compare_metric(metric: str, log_ratios: Sequence[float], bars: PairedBars) -> Comparison:
    """The verdict on one metric.

    The stated error rates are shared out evenly over all looks, and false alarms over all
    comparisons that could raise one.
    """
    n = len(log_ratios)
    smallest = bars.changes[metric]
    if n < _LEAST_ROUNDS:
        return _too_few(metric, log_ratios, bars)
    middle, error = trimmed_mean(log_ratios), standard_error(log_ratios)
    worse = math.log1p(smallest)
    low, high = _bounds(middle, error, n, bars)
    outcome = _outcome(low, high, worse)
    more_rounds = _more_rounds(middle, error, n, worse, bars) if outcome is _OPEN else None
    return Comparison(
        metric=metric,
        rounds=n,
        ratio=round(math.exp(middle), 4),
        low=round(math.exp(low), 4),
        high=round(math.exp(high), 4),
        deviation=round(error * math.sqrt(n), 4),
        smallest_change=smallest,
        outcome=outcome,
        reason=_reason(outcome, (middle, low, high), smallest, n, more_rounds),
        more_rounds=more_rounds,
        log_ratios=tuple(round(value, 5) for value in log_ratios),
    )


def _too_few(metric: str, log_ratios: Sequence[float], bars: PairedBars) -> Comparison:
    more = bars.rounds - len(log_ratios)
    return Comparison(
        metric=metric,
        rounds=len(log_ratios),
        ratio=None,
        low=None,
        high=None,
        deviation=None,
        smallest_change=bars.changes[metric],
        outcome=_OPEN,
        reason=f"{len(log_ratios)} rounds tell it, too few to say anything; at least {more} more "
        "are needed",
        more_rounds=more,
        log_ratios=tuple(log_ratios),
    )


def _bounds(middle: float, error: float, n: int, bars: PairedBars) -> tuple[float, float]:
    degrees, looks = degrees_of_freedom(n), len(bars.looks)
    low = 1 - bars.false_alarm / looks / len(bars.changes)
    high = 1 - bars.miss / looks
    most = _BEYOND  # a bound beyond every ratio says as much as one without end
    return (
        max(middle - student_t(low, degrees) * error, -most),
        min(middle + student_t(high, degrees) * error, most),
    )


def _outcome(low: float, high: float, worse: float) -> Outcome:
    if high < worse:
        return Outcome.PASSED
    return Outcome.FAILED if low > 0 else _OPEN


def _more_rounds(middle: float, error: float, n: int, worse: float, bars: PairedBars) -> int | None:
    """How many more rounds settle it; each brings the bounds closer."""

    def settled(more: int) -> bool:
        shrunk = error * math.sqrt(n / (n + more))
        return _outcome(*_bounds(middle, shrunk, n + more, bars), worse) is not _OPEN

    if not settled(_MOST_MORE):
        return None
    return bisect_left(range(_MOST_MORE), True, key=settled)


def _reason(
    outcome: Outcome, ratio: tuple[float, float, float], smallest: float, n: int, more: int | None
) -> str:
    middle, low, high = (math.exp(value) for value in ratio)
    found = f"{middle:.3f} × live ({low:.3f} to {high:.3f}, {n} rounds)"
    bar = 1 + smallest
    if outcome is Outcome.PASSED:
        why = "slower, by less than is worth catching" if low > 1 else "the upper bound is"
        return f"{found}: {why} below {bar:.3f}" if low <= 1 else f"{found}: {why} ({bar:.3f})"
    if outcome is Outcome.FAILED:
        return f"{found}: slower for sure, and {bar:.3f} is not ruled out"
    cure = (
        f"about {more} more rounds would settle it, if the noise stays what it is"
        if more is not None
        else f"not even {_MOST_MORE} more rounds would settle it: the machine is too noisy"
    )
    return f"{found}: the bounds reach from below 1 to {bar:.3f} and above; {cure}"


def throughput_ratio(rounds: Sequence[PairedRound]) -> float | None:
    """Tokens per second, candidate over live, median over rounds; None if they are not known."""
    ratios = [
        mine / theirs
        for made in rounds
        if (mine := made.run(Side.CANDIDATE).output_tokens_per_s)
        and (theirs := made.run(Side.LIVE).output_tokens_per_s)
    ]
    return round(median(ratios), 4) if ratios else None
