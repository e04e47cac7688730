"""From a measurement and a price to the numbers that are compared, each with its interval. Pure.

score    mean over all cases that are not in quarantine, Wilson's interval at 95 %; two contestants
         were asked the same cases, so they are held against each other case by case (`ruling`)
speed    output tokens per second, batch means at 95 % (`gates.stats.rate`)
cost     price over output tokens: the interval of the throughput turned round, or, where tokens
         are charged, none: the price is the price
lanes    as a gate measures them (`gates.lane_metrics`)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from math import fsum
from types import MappingProxyType
from typing import TYPE_CHECKING

from engine_pipeline.gates.lane_judge import too_disturbed
from engine_pipeline.gates.lane_metrics import judged_by
from engine_pipeline.gates.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine_pipeline.bakeoff.file import Price
    from engine_pipeline.bakeoff.goals import LaneGoal
    from engine_pipeline.bakeoff.measured import Measured
    from engine_pipeline.gates.lane_bars import LaneBars
    from engine_pipeline.gates.lane_result import LaneResult
    from engine_pipeline.gates.report import CaseResult, PerformanceResult
    from engine_pipeline.gates.stats import Estimate

# Two-sided 95 %, since two intervals are held against each other.
_Z = 1.959963984540054
_PER_HOUR_S = 3600.0
# What a round of a paired gate may be disturbed by, unless its policy says otherwise.
_MOST_FOREIGN = 0.25
_MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A value and the bounds that it lies between; all infinite if it is not known."""

    low: float
    value: float
    high: float

    def scaled(self, factor: float) -> Interval:
        """Every number times `factor`, which is not negative; nothing costs nothing."""
        if factor == 0:
            return Interval(low=0.0, value=0.0, high=0.0)
        return Interval(low=self.low * factor, value=self.value * factor, high=self.high * factor)

    def overlaps(self, other: Interval) -> bool:
        """Whether noise alone could explain the difference."""
        return self.low <= other.high and other.low <= self.high


UNKNOWN = Interval(low=math.inf, value=math.inf, high=math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One concurrency.

    Attributes:
        ttft_p95_ms, tpot_p95_ms: None if the server sends no usage to count tokens by.
        tokens_per_s: None if it could not be measured.
        unit_cost: of a million output tokens at a price of 1; None without price or throughput.
    """

    concurrency: int
    ttft_p95_ms: Estimate
    tpot_p95_ms: Estimate | None
    tokens_per_s: Interval | None
    unit_cost: Interval | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """One contestant in numbers.

    Attributes:
        scores: of each case, all suites one after the other; everybody was asked the same ones.
        most_score: the score if every attempt that could not be judged had passed.
        failed_must, open_must: cases that must pass and did not, or could not be judged.
        structured_share: None if nothing structured was asked.
        price: `Price.amount`; None if none is stated.
        by_the_hour: that is what it is for, so that slower is dearer.
        lanes: every lane of the file, by name.
        disturbed: what disturbed its times, so that they may say more of that than of itself; None:
            as far as is known, nothing.
    """

    name: str
    scores: tuple[float, ...]
    score: Interval
    most_score: float
    failed_must: tuple[str, ...]
    open_must: tuple[str, ...]
    structured_share: float | None
    price: float | None
    by_the_hour: bool
    steps: tuple[Step, ...]
    lanes: Mapping[str, LaneResult] = field(default_factory=dict)
    disturbed: str | None = None

    def in_lane(self, goal: LaneGoal) -> Interval:
        """What a priority asks of a lane, at its last step; UNKNOWN if it could not be measured."""
        found = self.lanes[goal.lane].steps[-1].metrics.get(goal.metric)
        if found is None:
            return UNKNOWN
        at = found.estimate
        return Interval(low=at.low, value=at.value, high=at.high)

    def cost(self, step: Step | None) -> Interval:
        """Of a million output tokens at a step; UNKNOWN without a price or a throughput."""
        if step is None or step.unit_cost is None or self.price is None:
            return UNKNOWN
        return step.unit_cost.scaled(self.price)


def facts_of(
    name: str,
    measured: Measured,
    price: Price | None,
    lanes: Mapping[str, LaneBars] = MappingProxyType({}),
) -> Facts:
    """The numbers of one contestant.

    Args:
        name: the contestant's.
        measured: what was measured of it.
        price: what it costs.
        lanes: those of the file; what is a good request and a late client, they say.
    """
    cases = [case for suite in measured.suites for case in suite.cases if case.counts]
    scores = tuple(case.score for case in cases)
    least = fsum(scores) / len(scores)
    unjudged = fsum(case.errored / len(case.attempts) for case in cases) / len(cases)
    structured = measured.structured
    return Facts(
        name=name,
        scores=scores,
        score=wilson(least, len(cases)),
        most_score=least + unjudged,
        failed_must=_must(cases, Outcome.FAILED),
        open_must=_must(cases, Outcome.ERRORED),
        structured_share=None if structured is None else structured.valid / structured.requests,
        price=None if price is None else price.amount,
        by_the_hour=price is not None and price.per_hour is not None,
        steps=tuple(_step(speed, price) for speed in measured.steps),
        lanes={
            lane.name: lane.model_copy(
                update={"steps": tuple(judged_by(one, lanes[lane.name]) for one in lane.steps)}
            )
            for lane in measured.lanes
        },
        disturbed=disturbance(measured),
    )


def disturbance(measured: Measured) -> str | None:
    """What disturbed the times, in words; None if nothing is known to."""
    share = measured.foreign_cpu
    if share is not None and share > _MOST_FOREIGN:
        return (
            f"others used {share:.0%} of this machine's processor time, where {_MOST_FOREIGN:.0%} "
            "at most is quiet"
        )
    in_lanes = (step for lane in measured.lanes for step in lane.steps)
    if any(too_disturbed(one.disturbed, one.requests) for one in measured.steps) or any(
        too_disturbed(one.disturbed, one.requests) for one in in_lanes
    ):
        return "its GPU was slowed down by heat or power for half of the requests and more"
    return None


def _must(cases: Sequence[CaseResult], outcome: Outcome) -> tuple[str, ...]:
    return tuple(case.id for case in cases if case.must and case.outcome is outcome)


def wilson(share: float, n: int) -> Interval:
    """The interval of a mean of `n` scores between 0 and 1, as if each were yes or no.

    Scores in between vary less than that, so the interval is never too narrow.
    """
    middle = (share + _Z * _Z / (2 * n)) / (1 + _Z * _Z / n)
    spread = share * (1 - share) / n + _Z * _Z / (4 * n * n)
    half = _Z * math.sqrt(max(spread, 0.0)) / (1 + _Z * _Z / n)
    return Interval(low=min(middle - half, share), value=share, high=max(middle + half, share))


def unit_cost(
    price: Price, tokens_per_s: Interval, input_per_output: float | None
) -> Interval | None:
    """Of a million output tokens if `price.amount` were 1; None if prompts cannot be counted.

    Args:
        price: what is charged for; a price for prompts grows with that for answers.
        tokens_per_s: as measured.
        input_per_output: prompt tokens for each token of an answer.
    """
    if price.per_hour is not None:
        # One unit of money an hour, over the millions of tokens that an hour gives.
        low, value, high = (
            _MILLION / _PER_HOUR_S / rate if rate > 0 else math.inf
            for rate in (tokens_per_s.high, tokens_per_s.value, tokens_per_s.low)
        )
        return Interval(low=low, value=value, high=high)
    charged = 1.0
    if price.input_share:
        if input_per_output is None:
            return None
        charged += price.input_share * input_per_output
    return Interval(low=charged, value=charged, high=charged)


def _step(speed: PerformanceResult, price: Price | None) -> Step:
    flow = speed.metrics.get("output_tokens_per_s")
    tokens_per_s = None
    # A run without a single good answer has a flow of zero: nothing to divide a price by.
    if flow is not None and flow.estimate.value > 0:
        at = flow.estimate
        tokens_per_s = Interval(low=at.low, value=at.value, high=at.high)
    tpot = speed.metrics.get("tpot_p95_ms")
    return Step(
        concurrency=speed.concurrency,
        ttft_p95_ms=speed.metrics["ttft_p95_ms"].estimate,
        tpot_p95_ms=None if tpot is None else tpot.estimate,
        tokens_per_s=tokens_per_s,
        unit_cost=None
        if price is None or tokens_per_s is None
        else unit_cost(price, tokens_per_s, _input_per_output(speed)),
    )


def _input_per_output(speed: PerformanceResult) -> float | None:
    counted = [
        (sample.prompt_tokens, sample.completion_tokens)
        for sample in speed.samples
        if sample.error is None
    ]
    if not counted or any(prompt is None or not tokens for prompt, tokens in counted):
        return None
    prompts = sum(prompt or 0 for prompt, _ in counted)
    return prompts / sum(tokens or 0 for _, tokens in counted)
