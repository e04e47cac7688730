"""What would change the choice: the nearest price, bar and order at which another one wins. Pure.

Nothing here is estimated. Between two neighbouring *turning points* no comparison of `decide` can
change, so each number is moved from turning point to turning point, away from where it is, and the
whole decision is made anew just past each one; the first that ends differently is the answer.

    a price       where the ends or the values of two costs meet
    min_score     each contestant's score
    a p95 bar     the smallest bar that each contestant proves at each step
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from engine_pipeline.bakeoff.decide import decide
from engine_pipeline.bakeoff.file import Limits, Priority
from engine_pipeline.gates import stats

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine_pipeline.bakeoff.decide import Decision
    from engine_pipeline.bakeoff.facts import Facts, Interval
    from engine_pipeline.gates.stats import Estimate

# So far past a turning point the decision is made, relative to it.
PAST = 1e-9
# Scores meet a bar with this much room (`decide.ROUNDING`), so past one is further.
_SCORE_PAST = 1e-6


class Lever(StrEnum):
    """What is moved."""

    PRICE = "price"
    MIN_SCORE = "min_score"
    MAX_TTFT = "max_ttft_p95_ms"
    MAX_TPOT = "max_tpot_p95_ms"
    FIRST = "first priority"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flip:
    """The nearest change of one lever in one direction after which another one wins.

    Attributes:
        whose: of a price, the contestant's; empty otherwise.
        now: the lever's value; None if there is no such bar, and of priorities.
        at: the turning point: just past it `winner` is chosen; of priorities, infinite.
        up: past it means above, else below.
        first: of priorities, the one that comes first then.
        winner: who is chosen then; None if nobody meets the limits.
        tied: level with that one then.
    """

    lever: Lever
    whose: str = ""
    now: float | None
    at: float
    up: bool
    first: Priority | None = None
    winner: str | None
    tied: tuple[str, ...] = ()


def flips(facts: Sequence[Facts], limits: Limits, optimise: Sequence[Priority]) -> tuple[Flip, ...]:
    """Every lever's nearest flips; empty if nothing changes the choice."""
    decision = decide(facts, limits, optimise)
    if decision.winner is None:
        return ()
    return (
        *(_prices(facts, limits, optimise, decision) if Priority.COST in optimise else ()),
        *_score_bars(facts, limits, optimise, decision.winner),
        *_latency_bars(facts, limits, optimise, decision.winner),
        *_orders(facts, limits, optimise, decision.winner),
    )


def at_price(facts: Sequence[Facts], name: str, price: float) -> tuple[Facts, ...]:
    """The same, had `name` this price."""
    return tuple(replace(one, price=price) if one.name == name else one for one in facts)


def _prices(
    facts: Sequence[Facts], limits: Limits, optimise: Sequence[Priority], decision: Decision
) -> Iterable[Flip]:
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
            trial = at_price(facts, name, past)
            then = decide(trial, limits, optimise)
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


def _score_bars(
    facts: Sequence[Facts], limits: Limits, optimise: Sequence[Priority], winner: str
) -> Iterable[Flip]:
    now = limits.min_score
    points = {score for one in facts for score in (one.score.value, one.most_score)}
    for up in (True, False):
        for at in _away(points, now or 0.0, up=up):
            bar = at + _SCORE_PAST if up else at
            if not 0 < bar <= 1:
                continue
            then = decide(facts, limits.model_copy(update={"min_score": bar}), optimise)
            if then.winner != winner:
                yield Flip(
                    lever=Lever.MIN_SCORE,
                    now=now,
                    at=at,
                    up=up,
                    winner=then.winner,
                    tied=then.tied,
                )
                break


def _latency_bars(
    facts: Sequence[Facts], limits: Limits, optimise: Sequence[Priority], winner: str
) -> Iterable[Flip]:
    for lever in (Lever.MAX_TTFT, Lever.MAX_TPOT):
        now = limits.max_ttft_p95_ms if lever is Lever.MAX_TTFT else limits.max_tpot_p95_ms
        points = [
            least
            for one in facts
            for step in one.steps
            if (
                least := _least_bar(
                    step.ttft_p95_ms if lever is Lever.MAX_TTFT else step.tpot_p95_ms
                )
            )
            is not None
        ]
        for up in (True, False):
            for at in _away(points, math.inf if now is None else now, up=up):
                # A bar is met at the turning point itself.
                bar = at if up else at * (1 - PAST)
                trial = limits.model_copy(update={str(lever): bar})
                then = decide(facts, trial, optimise)
                if then.winner != winner:
                    yield Flip(
                        lever=lever, now=now, at=at, up=up, winner=then.winner, tied=then.tied
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


def _orders(
    facts: Sequence[Facts], limits: Limits, optimise: Sequence[Priority], winner: str
) -> Iterable[Flip]:
    """Each other priority put first, the rest in their order."""
    priced = all(one.price is not None for one in facts)
    for first in Priority:
        if first is optimise[0] or (first is Priority.COST and not priced):
            continue
        order = (first, *(other for other in optimise if other is not first))
        then = decide(facts, limits, order)
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
