"""Who meets the limits, who is best among them, and who is as good within the noise. Pure.

    1  limits       a contestant is taken only if every limit and every bar of a lane is met
                    (`ruling`)
    2  priorities   one after the other: the best by value stays, and with it everybody who is level
                    with it, since noise alone could explain the difference. Level in cost, speed
                    and what a lane measures is whose interval overlaps the best one's; in quality,
                    who does not lose to it in a sign test over the cases that the two did
                    differently
    3  a tie        if several stay to the end, the evidence does not tell; who leads by value, in
                    the order of the priorities, comes first, and that it is a tie is said
    4  disturbance  times that others on the machine disturbed settle nothing: if the choice rests
                    on them, it is not one

Being level is no order (a may equal b, and b equal c, with a better than c), so places are given by
taking the best, then the best of the rest, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from engine_pipeline.bakeoff.ruling import Ruling, rule
from engine_pipeline.gates.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from engine_pipeline.bakeoff.facts import Facts
    from engine_pipeline.bakeoff.goals import Goal, Limits
    from engine_pipeline.gates.lane_bars import LaneBars


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One priority's say.

    Attributes:
        best: who has the best value.
        kept: who is as good within the noise, the best included.
        dropped: who is not.
    """

    priority: Goal
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
        shaken: whose times the choice rests on though others on the machine disturbed them.
    """

    rulings: tuple[Ruling, ...]
    ranking: tuple[str, ...]
    tied: tuple[str, ...]
    turns: tuple[Turn, ...]
    shaken: tuple[str, ...] = ()

    @property
    def winner(self) -> str | None:
        """Who is recommended; None if nobody meets the limits."""
        return self.ranking[0] if self.ranking else None

    def ruling(self, name: str) -> Ruling:
        """Of one contestant."""
        return next(ruling for ruling in self.rulings if ruling.name == name)


def decide(
    facts: Sequence[Facts],
    limits: Limits,
    optimise: Sequence[Goal],
    lanes: Mapping[str, LaneBars] = MappingProxyType({}),
) -> Decision:
    """The choice among `facts`, which may be empty; each of them has every one of the lanes."""
    rulings = tuple(rule(one, limits, lanes) for one in facts)
    left = [ruling for ruling in rulings if ruling.outcome is Outcome.PASSED]
    ranking: list[str] = []
    tied: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()
    while left:
        best, level, how = _pick(left, optimise)
        if not ranking:
            tied, turns = level, how
        ranking.append(best.name)
        left.remove(best)
    decision = Decision(rulings=rulings, ranking=tuple(ranking), tied=tied, turns=turns)
    return replace(decision, shaken=_shaken(decision, optimise))


def _shaken(decision: Decision, optimise: Sequence[Goal]) -> tuple[str, ...]:
    """Whose disturbed times had a say.

    Nobody's, if letting them off the limits on times changes nothing, and the same one is found
    without a look at a time of theirs.
    """
    pool = [ruling for ruling in decision.rulings if ruling.might_pass]
    if not pool:
        return ()
    best, level, turns = _pick(pool, optimise)
    shaken = {
        name
        for turn in turns
        for name in (*turn.kept, *turn.dropped)
        if decision.ruling(name).is_shaken(turn.priority)
    }
    if (best.name, level) != (decision.winner, decision.tied):
        shaken |= {ruling.name for ruling in pool if ruling.outcome is not Outcome.PASSED}
    return tuple(ruling.name for ruling in decision.rulings if ruling.name in shaken)


def _pick(
    rulings: Sequence[Ruling], optimise: Sequence[Goal]
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
                best=best.name,
                kept=_names(kept),
                dropped=_names(one for one in left if one not in kept),
            )
        )
        left = kept
    winner = min(left, key=lambda one: [one.badness(priority).value for priority in optimise])
    return winner, _names(one for one in left if one is not winner), tuple(turns)


def _names(rulings: Iterable[Ruling]) -> tuple[str, ...]:
    return tuple(ruling.name for ruling in rulings)
