"""Whether one contestant meets the limits, and where its speed and cost are taken. Pure.

Latency must be met at some step of the load, and that step, the one with most tokens per second
among those that meet it, is where speed and cost are taken. The bars of a lane must be met at each
of its steps, as in a gate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from engine_pipeline.bakeoff.facts import UNKNOWN, Interval
from engine_pipeline.bakeoff.goals import FLOORS, LaneGoal, Priority
from engine_pipeline.gates import stats
from engine_pipeline.gates.lane_judge import judge_lane
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.parity_stats import sign_test

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine_pipeline.bakeoff.facts import Facts, Step
    from engine_pipeline.bakeoff.goals import Goal, Limits
    from engine_pipeline.gates.lane_bars import LaneBars
    from engine_pipeline.gates.stats import Estimate

# Scores are sums of fractions: 0.1 + 0.2 must meet a bar of 0.3.
ROUNDING = 1e-9
_NAMED = 5
# One side of the 95 % that the intervals of cost and speed have.
_CHANCE = 0.025
_Z = 1.959963984540054
# Of parts that must all hold the worst decides, of steps of which one must hold the best.
_WORST_FIRST = (Outcome.FAILED, Outcome.ERRORED, Outcome.INCONCLUSIVE, Outcome.PASSED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ruling:
    """Whether one contestant meets the limits.

    Attributes:
        timeless: the same, had no limit been set on a time.
        reasons: what decided, both sides of it; empty if every limit is met.
        step: where speed and cost are taken; a step that misses a limit if all of them do.
    """

    facts: Facts
    outcome: Outcome
    timeless: Outcome
    reasons: tuple[str, ...]
    step: Step

    @property
    def name(self) -> str:
        """The contestant's."""
        return self.facts.name

    @property
    def might_pass(self) -> bool:
        """Whether it meets the limits, or misses those on times alone, which others disturbed."""
        disturbed = self.facts.disturbed is not None
        return (self.timeless if disturbed else self.outcome) is Outcome.PASSED

    @property
    def cost(self) -> Interval:
        """Of a million output tokens."""
        return self.facts.cost(self.step)

    def badness(self, goal: Goal) -> Interval:
        """The number that a priority looks at, turned so that less is better."""
        match goal:
            case Priority.COST:
                return self.cost
            case Priority.QUALITY:
                return _negative(self.facts.score)
            case Priority.SPEED:
                flow = self.step.tokens_per_s
                return UNKNOWN if flow is None else _negative(flow)
            case LaneGoal():
                found = self.facts.in_lane(goal)
                more_is_better = goal.metric in FLOORS and found is not UNKNOWN
                return _negative(found) if more_is_better else found
            case _:
                assert_never(goal)

    def is_shaken(self, goal: Goal) -> bool:
        """Whether others on the machine may have moved the number that a priority looks at."""
        if self.facts.disturbed is None or goal is Priority.QUALITY:
            return False
        # A price by the token is the price, however long the tokens take.
        return goal is not Priority.COST or self.facts.by_the_hour

    def compare_cases(self, other: Ruling) -> tuple[int, int]:
        """How many cases `other` did better, and how many worse, of those that both were asked."""
        pairs = list(zip(self.facts.scores, other.facts.scores, strict=True))
        return sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)

    def is_level(self, best: Ruling, goal: Goal) -> bool:
        """Whether noise alone could explain how far this one is behind `best`."""
        if goal is Priority.QUALITY:
            return sign_test(*self.compare_cases(best)) > _CHANCE
        return self.badness(goal).overlaps(best.badness(goal))

    def more_evidence(self, best: Ruling, goal: Goal) -> float:
        """How many times the evidence would tell the two apart, if they differ as they seem to.

        Bounds close in with the root of the number of samples. Infinite if nothing seems to differ.
        """
        if goal is Priority.QUALITY:
            lost, gained = self.compare_cases(best)
            return _Z * _Z * (lost + gained) / (lost - gained) ** 2 if lost > gained else math.inf
        ours, theirs = self.badness(goal), best.badness(goal)
        apart, width = ours.value - theirs.value, theirs.high - theirs.value + ours.value - ours.low
        return (width / apart) ** 2 if apart > 0 and math.isfinite(width) else math.inf


def _negative(interval: Interval) -> Interval:
    return Interval(low=-interval.high, value=-interval.value, high=-interval.low)


def rule(facts: Facts, limits: Limits, lanes: Mapping[str, LaneBars]) -> Ruling:
    """Whether a contestant meets the limits and the bars of the lanes."""
    latency, why, step = _operating_step(facts, limits)
    timeless = list(_limits(facts, limits))
    parts = [(latency, why), *_in_lanes(facts, lanes), *timeless]
    return Ruling(
        facts=facts,
        outcome=_worst(parts),
        timeless=_worst(timeless),
        reasons=tuple(reason for outcome, reason in parts if outcome is not Outcome.PASSED),
        step=step,
    )


def _worst(parts: Iterable[tuple[Outcome, str]]) -> Outcome:
    return min((outcome for outcome, _ in parts), key=_WORST_FIRST.index, default=Outcome.PASSED)


def _in_lanes(facts: Facts, lanes: Mapping[str, LaneBars]) -> Iterable[tuple[Outcome, str]]:
    for name, bars in lanes.items():
        for finding in judge_lane(facts.lanes[name], bars):
            yield finding.outcome, f"{finding.name} {finding.reason}"


def _limits(facts: Facts, limits: Limits) -> Iterable[tuple[Outcome, str]]:
    """The limits that hold whatever the load."""
    if (bar := limits.min_score) is not None:
        outcome = _of_bounds(facts.score.value, facts.most_score, bar)
        unsure = facts.most_score - facts.score.value
        open_ = f" (up to {facts.most_score:.3f} if what was not answered were right)"
        yield (
            outcome,
            f"score {facts.score.value:.3f}{open_ if unsure else ''}, want at least {bar:g}",
        )
    if facts.failed_must:
        named = ", ".join(facts.failed_must[:_NAMED])
        more = len(facts.failed_must) - _NAMED
        tail = f" and {more} more" if more > 0 else ""
        yield Outcome.FAILED, f"cases that must pass failed: {named}{tail}"
    elif facts.open_must:
        yield Outcome.ERRORED, f"cases that must pass were not judged: {facts.open_must[0]}"
    if (bar := limits.min_structured_share) is not None:
        share = facts.structured_share or 0.0
        outcome = Outcome.PASSED if share >= bar - ROUNDING else Outcome.FAILED
        yield outcome, f"{share:.0%} of structured answers fit their schema, want {bar:.0%}"


def _of_bounds(least: float, most: float, bar: float) -> Outcome:
    if least >= bar - ROUNDING:
        return Outcome.PASSED
    return Outcome.FAILED if most < bar - ROUNDING else Outcome.ERRORED


def _operating_step(facts: Facts, limits: Limits) -> tuple[Outcome, str, Step]:
    judged = [(*_latency(step, limits), step) for step in facts.steps]
    best = max((outcome for outcome, _, _ in judged), key=_WORST_FIRST.index)
    of_best = [one for one in judged if one[0] is best]
    if best is Outcome.PASSED:
        return max(of_best, key=lambda one: _flow(one[2]))
    # The gentlest load is the one that comes nearest to the limits.
    return of_best[0]


def _flow(step: Step) -> float:
    return -math.inf if step.tokens_per_s is None else step.tokens_per_s.value


def _latency(step: Step, limits: Limits) -> tuple[Outcome, str]:
    at = f"with {step.concurrency} in flight"
    parts = [_below(step.ttft_p95_ms, limits.max_ttft_p95_ms, "TTFT", at)]
    if step.tpot_p95_ms is not None:
        parts.append(_below(step.tpot_p95_ms, limits.max_tpot_p95_ms, "TPOT", at))
    elif limits.max_tpot_p95_ms is not None:
        why = f"TPOT {at} not measured: the server sends no usage to count tokens by"
        parts.append((Outcome.ERRORED, why))
    return min(parts, key=lambda part: _WORST_FIRST.index(part[0]))


def _below(estimate: Estimate, bar: float | None, what: str, at: str) -> tuple[Outcome, str]:
    said = f"{estimate.value:.4g} ms" if math.isfinite(estimate.value) else "beyond measure"
    if bar is None:
        # Every limit is about answers: without any there is no speed to speak of.
        answers = math.isfinite(estimate.value)
        outcome = Outcome.PASSED if answers else Outcome.FAILED
        return outcome, f"{what} p95 {at}: more than one request in twenty failed"
    verdict = stats.at_most(estimate, bar, "ms")
    return verdict.outcome, f"{what} p95 {said} {at}, want at most {bar:g} ms: {verdict.why}"
