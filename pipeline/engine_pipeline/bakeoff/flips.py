"""What would change the choice: the nearest price, bar and order at which another one wins. Pure.

Nothing here is estimated. Between two neighbouring *turning points* no comparison of `decide` can
change, so each number is moved from turning point to turning point, away from where it is, and the
whole decision is made anew just past each one; the first that ends differently is the answer.

    a price       where the ends or the values of two costs meet
    min_score     each contestant's score
    a p95 bar     the smallest bar that each contestant proves at each step
    a lane's bar  the same, or the largest where more is better; only bars that are set are moved
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING

from engine_pipeline.bakeoff.decide import decide
from engine_pipeline.bakeoff.goals import (
    FLOORS,
    Goal,
    LaneGoal,
    Limits,
    Priority,
    lane_limits,
    with_bar,
)
from engine_pipeline.gates import stats

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from engine_pipeline.bakeoff.decide import Decision
    from engine_pipeline.bakeoff.facts import Facts, Interval
    from engine_pipeline.gates.lane_bars import LaneBars
    from engine_pipeline.gates.stats import Estimate

# So far past a turning point the decision is made, relative to it.
PAST = 1e-9
# Scores meet a bar with this much room (`ruling.ROUNDING`), so past one is further.
_SCORE_PAST = 1e-6


class Lever(StrEnum):
    """What is moved."""

    PRICE = "price"
    MIN_SCORE = "min_score"
    MAX_TTFT = "max_ttft_p95_ms"
    MAX_TPOT = "max_tpot_p95_ms"
    LANE_BAR = "lane bar"
    FIRST = "first priority"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """The nearest change of one lever in one direction after which another one wins.

    Attributes:
        whose: of a price, the contestant's; of a lane's bar, the lane's; empty otherwise.
        metric: of a lane's bar, what it is on; empty otherwise.
        now: the lever's value; None if there is no such bar, and of priorities.
        at: the turning point: just past it `winner` is chosen; of priorities, infinite.
        up: past it means above, else below.
        first: of priorities, the one that comes first then.
        winner: who is chosen then; None if nobody meets the limits.
        tied: level with that one then.
    """

    lever: Lever
    whose: str = ""
    metric: str = ""
    now: float | None
    at: float
    up: bool
    first: Goal | None = None
    winner: str | None
    tied: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Question:
    """Everything that a decision is made from."""

    facts: Sequence[Facts]
    limits: Limits
    optimise: Sequence[Goal]
    lanes: Mapping[str, LaneBars]

    def decide(self) -> Decision:
        return decide(self.facts, self.limits, self.optimise, self.lanes)

    def with_limit(self, name: str, bar: float) -> _Question:
        return replace(self, limits=self.limits.model_copy(update={name: bar}))

    def with_lane_bar(self, lane: str, metric: str, bar: float) -> _Question:
        changed = with_bar(self.lanes[lane], metric, bar)
        return replace(self, lanes={**self.lanes, lane: changed})


def flips(
    facts: Sequence[Facts],
    limits: Limits,
    optimise: Sequence[Goal],
    lanes: Mapping[str, LaneBars] = MappingProxyType({}),
) -> tuple[Flip, ...]:
    """Every lever's nearest flips; empty if nothing changes the choice."""
    now = _Question(facts=facts, limits=limits, optimise=optimise, lanes=lanes)
    decision = now.decide()
    if decision.winner is None:
        return ()
    return (
        *(_prices(now, decision) if Priority.COST in optimise else ()),
        *_score_bars(now, decision.winner),
        *_latency_bars(now, decision.winner),
        *_lane_bars(now, decision.winner),
        *_orders(now, decision.winner),
    )


def at_price(facts: Sequence[Facts], name: str, price: float) -> tuple[Facts, ...]:
    """The same, had `name` this price."""
    return tuple(replace(one, price=price) if one.name == name else one for one in facts)


def _prices(now: _Question, decision: Decision) -> Iterable[Flip]:
    """The winner's price raised; each other one's lowered."""
    for name in decision.ranking:
        ruling = decision.ruling(name)
        price, unit = ruling.facts.price, ruling.step.unit_cost
        if price is None or unit is None:
            continue
        up = name == decision.winner
        others = [decision.ruling(other).cost for other in decision.ranking if other != name]
        for at in _away(_meetings(unit, others), price, up=up):
            # Past a price of nothing is any price at all.
            past = at * (1 + PAST if up else 1 - PAST) or PAST
            then = replace(now, facts=at_price(now.facts, name, past)).decide()
            if then.winner != decision.winner and (up or then.winner == name):
                yield Flip(
                    lever=Lever.PRICE,
                    whose=name,
                    now=price,
                    at=at,
                    up=up,
                    winner=then.winner,
                    tied=then.tied,
                )
                break


def _meetings(unit: Interval, others: Iterable[Interval]) -> Iterable[float]:
    """The prices at which a cost of `unit` for each 1 of price meets an end or value of another."""
    for other in others:
        for theirs, ours in (
            (other.high, unit.low),
            (other.low, unit.high),
            (other.value, unit.value),
        ):
            if ours > 0 and math.isfinite(theirs) and math.isfinite(ours):
                yield theirs / ours


def _away(points: Iterable[float], start: float, *, up: bool) -> list[float]:
    """Turning points beyond `start`, nearest first."""
    beyond = {point for point in points if (point >= start if up else point <= start)}
    return sorted(beyond, reverse=not up)


def _score_bars(now: _Question, winner: str) -> Iterable[Flip]:
    bar = now.limits.min_score
    points = {score for one in now.facts for score in (one.score.value, one.most_score)}
    for up in (True, False):
        for at in _away(points, bar or 0.0, up=up):
            moved = at + _SCORE_PAST if up else at
            if not 0 < moved <= 1:
                continue
            then = now.with_limit("min_score", moved).decide()
            if then.winner != winner:
                yield Flip(
                    lever=Lever.MIN_SCORE,
                    now=bar,
                    at=at,
                    up=up,
                    winner=then.winner,
                    tied=then.tied,
                )
                break


def _latency_bars(now: _Question, winner: str) -> Iterable[Flip]:
    for lever in (Lever.MAX_TTFT, Lever.MAX_TPOT):
        bar = now.limits.max_ttft_p95_ms if lever is Lever.MAX_TTFT else now.limits.max_tpot_p95_ms
        points = [
            least
            for one in now.facts
            for step in one.steps
            if (
                least := _least_bar(
                    step.ttft_p95_ms if lever is Lever.MAX_TTFT else step.tpot_p95_ms
                )
            )
            is not None
        ]
        for up in (True, False):
            for at in _away(points, math.inf if bar is None else bar, up=up):
                # A bar is met at the turning point itself.
                then = now.with_limit(str(lever), at if up else at * (1 - PAST)).decide()
                if then.winner != winner:
                    yield Flip(
                        lever=lever, now=bar, at=at, up=up, winner=then.winner, tied=then.tied
                    )
                    break


def _least_bar(estimate: Estimate | None) -> float | None:
    """The smallest bar that the estimate meets, by the rule of `stats.at_most`; None if none."""
    if estimate is None:
        return None
    bars = [estimate.high]
    if stats.LEAST_SAMPLES <= estimate.n < estimate.needed:
        bars.append(estimate.largest / stats.MARGIN)
    least = min(bars)
    return least if math.isfinite(least) and least > 0 else None


def _lane_bars(now: _Question, winner: str) -> Iterable[Flip]:
    for lane, metric, bar in lane_limits(now.lanes):
        is_floor = metric in FLOORS
        found = [
            measured.estimate
            for one in now.facts
            for step in one.lanes[lane].steps
            if (measured := step.metrics.get(metric)) is not None
        ]
        # A floor is met up to the lower bound.
        points = [one.low if is_floor else _least_bar(one) for one in found]
        known = [point for point in points if point is not None and point > 0]
        for up in (True, False):
            for at in _away(known, bar, up=up):
                # Met at the turning point itself: beyond it when it gets harder.
                past = at if up is not is_floor else at * (1 + PAST if up else 1 - PAST)
                then = now.with_lane_bar(lane, metric, past).decide()
                if then.winner != winner:
                    yield Flip(
                        lever=Lever.LANE_BAR,
                        whose=lane,
                        metric=metric,
                        now=bar,
                        at=at,
                        up=up,
                        winner=then.winner,
                        tied=then.tied,
                    )
                    break


def _orders(now: _Question, winner: str) -> Iterable[Flip]:
    """Each other priority put first, the rest in their order."""
    priced = all(one.price is not None for one in now.facts)
    named = [goal for goal in now.optimise if isinstance(goal, LaneGoal)]
    for first in (*Priority, *named):
        if first == now.optimise[0] or (first is Priority.COST and not priced):
            continue
        order = (first, *(other for other in now.optimise if other != first))
        then = replace(now, optimise=order).decide()
        if then.winner != winner:
            yield Flip(
                lever=Lever.FIRST,
                now=None,
                at=math.inf,
                up=True,
                first=first,
                winner=then.winner,
                tied=then.tied,
            )
