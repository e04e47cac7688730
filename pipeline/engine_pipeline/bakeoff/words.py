"""What a bake-off says in sentences: whom to take and why, what would change that. Pure."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from typing import TYPE_CHECKING, assert_never

from engine_pipeline.bakeoff.flips import Lever
from engine_pipeline.bakeoff.goals import FLOORS, LaneGoal, Priority, metric_words
from engine_pipeline.bakeoff.say import plain

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine_pipeline.bakeoff.decide import Decision, Turn
    from engine_pipeline.bakeoff.facts import Interval
    from engine_pipeline.bakeoff.file import BakeoffFile
    from engine_pipeline.bakeoff.flips import Flip
    from engine_pipeline.bakeoff.goals import Goal
    from engine_pipeline.bakeoff.ruling import Ruling

_DIGITS = 4
_BARS = {Lever.MAX_TTFT: "TTFT p95 bar", Lever.MAX_TPOT: "TPOT p95 bar"}
_UNITS = {"good_share": " of the requests", "good_per_s": " a second"}
# More evidence than this many times as much, nobody would wait for.
_MOST_TIMES = 100


def recommendation(decision: Decision, file: BakeoffFile) -> str:
    """Whom to take and why, in one sentence."""
    every = [one.name for one in file.contestants]
    judged = {ruling.facts.name for ruling in decision.rulings}
    missing = [name for name in every if name not in judged]
    unheard = f"; {listed(missing)} could not be measured" if missing else ""
    unheard += _shaken(decision)
    if decision.winner is None:
        head = "Not settled" if decision.shaken else "Take none of them"
        return f"{head}: none of {len(every)} is shown to meet every limit{unheard}."
    in_flight = f"with {decision.ruling(decision.winner).step.concurrency} in flight"
    level = (decision.winner, *decision.tied)
    if decision.tied:
        head = f"Too close to call between {listed(level)}"
    elif decision.shaken:
        head = f"Not settled, {decision.winner} leads ({in_flight})"
    else:
        head = f"Take {decision.winner} ({in_flight})"
    parts = [_met(decision, len(every))]
    parts += [_turn(turn, decision, file) for turn in decision.turns]
    if decision.tied:
        parts.append(_more(decision, file))
    return f"{head}: {'; '.join(parts)}{unheard}."


def _shaken(decision: Decision) -> str:
    """Why the times that the choice rests on settle nothing, and what would."""
    if not decision.shaken:
        return ""
    return (
        f"; it rests on times of {listed(decision.shaken)} that something else disturbed: measure "
        "anew with --again on a quiet machine"
    )


def _met(decision: Decision, contestants: int) -> str:
    met = len(decision.ranking)
    if met == contestants:
        return f"all {met} meet every limit"
    if met == 1:
        return f"it is the only one of {contestants} that is shown to meet every limit"
    return f"{met} of {contestants} meet every limit"


def _turn(turn: Turn, decision: Decision, file: BakeoffFile) -> str:
    """What one priority had to say."""
    best = decision.ruling(turn.best)

    def said(name: str) -> str:
        ruling = decision.ruling(name)
        text = f"{name} {_value(ruling, turn.priority, file.currency)}"
        if turn.priority is Priority.QUALITY and name != turn.best:
            lost, gained = ruling.compare_cases(best)
            text += f" ({lost} of {len(best.facts.scores)} cases worse, {gained} better)"
        return text

    level = [name for name in turn.kept if name != turn.best]
    if not turn.dropped:
        every = listed(map(said, (turn.best, *level)))
        return f"in {turn.priority} {every} are level within the noise"
    text = f"in {turn.priority} {said(turn.best)} is better than {listed(map(said, turn.dropped))}"
    return f"{text}, and level with {listed(map(said, level))}" if level else text


def _more(decision: Decision, file: BakeoffFile) -> str:
    """How much more evidence would settle a tie, in what counts first and seems to differ."""
    best = decision.ruling(decision.ranking[0])
    other = decision.ruling(decision.tied[0])
    for priority in file.optimise:
        times = other.more_evidence(best, priority)
        if times > _MOST_TIMES:
            continue
        if priority is Priority.QUALITY:
            have, what = len(best.facts.scores), "cases"
        elif isinstance(priority, LaneGoal):
            have = best.facts.lanes[priority.lane].steps[-1].requests
            what = f"requests in {priority.lane}"
        else:
            have, what = file.load.requests, "requests at a step"
        need = math.ceil(times * have / 10) * 10
        return (
            f"about {need} {what} instead of {have} would tell {best.facts.name} and "
            f"{other.facts.name} apart in {priority}, if they differ as they seem to"
        )
    return "in nothing that counts do they seem to differ by as much as could be shown: take either"


def _value(ruling: Ruling, goal: Goal, currency: str) -> str:
    match goal:
        case Priority.COST:
            return _between(ruling.cost, f" {currency} per million output tokens")
        case Priority.QUALITY:
            return _between(ruling.facts.score, "")
        case Priority.SPEED:
            flow = ruling.step.tokens_per_s
            return "(not measured)" if flow is None else _between(flow, " tokens/s")
        case LaneGoal():
            unit = _UNITS.get(goal.metric, " ms")
            return _between(ruling.facts.in_lane(goal), unit)
        case _:
            assert_never(goal)


def _between(interval: Interval, unit: str) -> str:
    if not math.isfinite(interval.value):
        return "(not known)"
    if interval.low == interval.high:
        return f"at {plain(interval.value)}{unit}"
    high = plain(interval.high) if math.isfinite(interval.high) else "∞"
    return f"at {plain(interval.value)}{unit} ({plain(max(interval.low, 0.0))} to {high})"


def listed(names: Iterable[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def flip_words(flip: Flip, file: BakeoffFile) -> str:
    """One change and what follows from it; the number is rounded away from where it is now."""
    then = _then(flip)
    if flip.lever is Lever.FIRST:
        return f"{flip.first} first: {then}"
    at = rounded(flip.at, up=flip.up)
    if flip.lever is Lever.PRICE:
        price = next(one.price for one in file.contestants if one.name == flip.whose)
        unit = f"{file.currency} {price.unit}" if price else file.currency
        side = "above" if flip.up else "below"
        now = flip.now or 0.0
        by = f", {flip.at / now - 1:+.1%}" if now else ""
        return f"{flip.whose} {side} {at} {unit} (now {now:g}{by}): {then}"
    now_ = "none now" if flip.now is None else f"now {flip.now:g}"
    if flip.lever is Lever.MIN_SCORE:
        bar = f"above {at}" if flip.up else f"of {at} or lower"
        return f"a least score {bar} ({now_}): {then}"
    if flip.lever is Lever.LANE_BAR and flip.metric in FLOORS:
        bar = f"above {at}" if flip.up else f"of {at} or less"
        return f"a least {metric_words(flip.metric)} of {flip.whose} {bar} ({now_}): {then}"
    bar = f"of {at} ms or more" if flip.up else f"below {at} ms"
    if flip.lever is Lever.LANE_BAR:
        return f"a {metric_words(flip.metric)} bar of {flip.whose} {bar} ({now_}): {then}"
    return f"a {_BARS[flip.lever]} {bar} ({now_}): {then}"


def _then(flip: Flip) -> str:
    if flip.winner is None:
        return "nobody meets the limits"
    if flip.tied:
        return f"{flip.winner} leads, too close to call with {listed(flip.tied)}"
    return f"take {flip.winner}"


def rounded(value: float, *, up: bool) -> str:
    """Four digits, rounded so that what is said is past `value`."""
    context = Context(prec=_DIGITS, rounding=ROUND_CEILING if up else ROUND_FLOOR)
    return f"{context.create_decimal(Decimal(value)):f}"
