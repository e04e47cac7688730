"""Who meets the limits, who is best among them, and who is as good within the noise. Pure.

    1  limits       a contestant is taken only if every limit is met. Latency must be met at some
                    step of the load, and that step, the one with most tokens per second among
                    those that meet it, is where its speed and cost are taken.
    2  priorities   one after the other: the best by value stays, and with it everybody who is level
                    with it, since noise alone could explain the difference. Level in cost and speed
                    is whose interval overlaps the best one's; in quality, who does not lose to it
                    in a sign test over the cases that the two did differently
    3  a tie        if several stay to the end, the evidence does not tell; who leads by value, in
                    the order of the priorities, comes first, and that it is a tie is said

Being level is no order (a may equal b, and b equal c, with a better than c), so places are given by
taking the best, then the best of the rest, and so on.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, assert_never

from engine_pipeline.bakeoff.facts import UNKNOWN, Interval
from engine_pipeline.bakeoff.file import Priority
from engine_pipeline.gates import stats
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.parity_stats import sign_test

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine_pipeline.bakeoff.facts import Facts, Step
    from engine_pipeline.bakeoff.file import Limits
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
        reasons: what decided, both sides of it; empty if every limit is met.
        step: where speed and cost are taken; a step that misses a limit if all of them do.
    """

    facts: Facts
    outcome: Outcome
    reasons: tuple[str, ...]
    step: Step

    @property
    def cost(self) -> Interval:
        """Of a million output tokens."""
        return self.facts.cost(self.step)

    def badness(self, priority: Priority) -> Interval:
        """The number that a priority looks at, turned so that less is better."""
        match priority:
            case Priority.COST:
                return self.cost
            case Priority.QUALITY:
                return _negative(self.facts.score)
            case Priority.SPEED:
                flow = self.step.tokens_per_s
                return UNKNOWN if flow is None else _negative(flow)
            case _:
                assert_never(priority)

    def compare_cases(self, other: Ruling) -> tuple[int, int]:
        """How many cases `other` did better, and how many worse, of those that both were asked."""
        pairs = list(zip(self.facts.scores, other.facts.scores, strict=True))
        return sum(a < b for a, b in pairs), sum(a > b for a, b in pairs)

    def is_level(self, best: Ruling, priority: Priority) -> bool:
        """Whether noise alone could explain how far this one is behind `best`."""
        if priority is Priority.QUALITY:
            return sign_test(*self.compare_cases(best)) > _CHANCE
        return self.badness(priority).overlaps(best.badness(priority))

    def more_evidence(self, best: Ruling, priority: Priority) -> float:
        """How many times the evidence would tell the two apart, if they differ as they seem to.

        Bounds close in with the root of the number of samples. Infinite if nothing seems to differ.
        """
        if priority is Priority.QUALITY:
            lost, gained = self.compare_cases(best)
            return _Z * _Z * (lost + gained) / (lost - gained) ** 2 if lost > gained else math.inf
        ours, theirs = self.badness(priority), best.badness(priority)
        apart, width = ours.value - theirs.value, theirs.high - theirs.value + ours.value - ours.low
        return (width / apart) ** 2 if apart > 0 and math.isfinite(width) else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One priority's say.

    Attributes:
        best: who has the best value.
        kept: who is as good within the noise, the best included.
        dropped: who is not.
    """

    priority: Priority
    best: str
    kept: tuple[str, ...]
    dropped: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The choice.

    Attributes:
        rulings: of everybody who was judged, in the order given.
        ranking: those that meet the limits, best first.
        tied: with the winner, to the end; the winner is not among them.
        turns: how the winner was found.
    """

    rulings: tuple[Ruling, ...]
    ranking: tuple[str, ...]
    tied: tuple[str, ...]
    turns: tuple[Turn, ...]

    @property
    def winner(self) -> str | None:
        """Who is recommended; None if nobody meets the limits."""
        return self.ranking[0] if self.ranking else None

    def ruling(self, name: str) -> Ruling:
        """Of one contestant."""
        return next(ruling for ruling in self.rulings if ruling.facts.name == name)


def decide(facts: Sequence[Facts], limits: Limits, optimise: Sequence[Priority]) -> Decision:
    """The choice among `facts`, which may be empty."""
    rulings = tuple(_ruling(one, limits) for one in facts)
    left = [ruling for ruling in rulings if ruling.outcome is Outcome.PASSED]
    ranking: list[str] = []
    tied: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()
    while left:
        best, level, how = _pick(left, optimise)
        if not ranking:
            tied, turns = level, how
        ranking.append(best.facts.name)
        left.remove(best)
    return Decision(rulings=rulings, ranking=tuple(ranking), tied=tied, turns=turns)


def _pick(
    rulings: Sequence[Ruling], optimise: Sequence[Priority]
) -> tuple[Ruling, tuple[str, ...], tuple[Turn, ...]]:
    left = list(rulings)
    turns: list[Turn] = []
    for priority in optimise:
        if len(left) == 1:
            break
        best = min(left, key=lambda one: one.badness(priority).value)
        kept = [one for one in left if one is best or one.is_level(best, priority)]
        turns.append(
            Turn(
                priority=priority,
                best=best.facts.name,
                kept=_names(kept),
                dropped=_names(one for one in left if one not in kept),
            )
        )
        left = kept
    winner = min(left, key=lambda one: [one.badness(priority).value for priority in optimise])
    return winner, _names(one for one in left if one is not winner), tuple(turns)


def _names(rulings: Iterable[Ruling]) -> tuple[str, ...]:
    return tuple(ruling.facts.name for ruling in rulings)


def _negative(interval: Interval) -> Interval:
    return Interval(low=-interval.high, value=-interval.value, high=-interval.low)


def _ruling(facts: Facts, limits: Limits) -> Ruling:
    latency, why, step = _operating_step(facts, limits)
    parts = [(latency, why), *_limits(facts, limits)]
    worst = min((outcome for outcome, _ in parts), key=_WORST_FIRST.index)
    reasons = tuple(reason for outcome, reason in parts if outcome is not Outcome.PASSED)
    return Ruling(facts=facts, outcome=worst, reasons=reasons, step=step)


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
