"""What would change the choice: each number is checked by making the decision at it."""

from __future__ import annotations

from typing import Any

import pytest

from engine_pipeline.bakeoff.decide import decide
from engine_pipeline.bakeoff.flips import Flip, Lever, at_price, flips
from engine_pipeline.bakeoff.goals import LaneGoal, Limits, Priority
from engine_pipeline.bakeoff.words import flip_words
from tests.bakeoff_world import bars, facts, file, lane, step

COST, QUALITY, SPEED = Priority.COST, Priority.QUALITY, Priority.SPEED


def found(everything: tuple[Flip, ...], lever: Lever, **wanted: Any) -> list[Flip]:
    return [
        flip
        for flip in everything
        if flip.lever is lever and all(getattr(flip, k) == v for k, v in wanted.items())
    ]


def test_the_winners_price_flips_where_the_intervals_part_and_not_where_values_meet():
    # Both a million tokens at 100 tokens/s ± 5 %: level as long as the intervals overlap, so with
    # nothing but cost to go by the lower value wins, and values meet at a price of 2.
    a, b = facts("a", price=1.0), facts("b", price=2.0)
    [flip] = found(flips([a, b], Limits(), [COST]), Lever.PRICE, whose="a")
    assert (flip.at, flip.up, flip.winner) == (pytest.approx(2.0), True, "b")
    # With quality next, and b better in it, being level is enough for b: from where the ends meet.
    a, b = facts("a", price=1.0, score=0.5), facts("b", price=2.0, score=0.95)
    [flip] = found(flips([a, b], Limits(), [COST, QUALITY]), Lever.PRICE, whose="a")
    assert flip.at == pytest.approx(2.0 * 0.95 / 1.05)


def test_the_others_price_flips_when_lowered_as_far_as_it_takes():
    a, b = facts("a", price=1.0), facts("b", price=2.0)
    [flip] = found(flips([a, b], Limits(), [COST]), Lever.PRICE, whose="b")
    assert (flip.at, flip.up, flip.winner) == (pytest.approx(1.0), False, "b")


def test_a_price_of_nothing_flips_at_a_price_and_not_at_a_multiple():
    a, b = facts("a", price=0.0), facts("b", price=2.0)
    [flip] = found(flips([a, b], Limits(), [COST]), Lever.PRICE, whose="a")
    assert (flip.now, flip.at) == (0.0, pytest.approx(2.0))


def test_of_two_that_cost_nothing_the_first_price_of_all_flips():
    a, b = facts("a", price=0.0), facts("b", price=0.0)
    [flip] = found(flips([a, b], Limits(), [COST]), Lever.PRICE, whose="a")
    assert (flip.at, flip.up, flip.winner, flip.tied) == (0.0, True, "b", ())


def test_a_flip_to_a_tie_is_told_as_one():
    one, two = facts("one", price=1.0), facts("two", price=2.0)
    [flip] = found(flips([one, two], Limits(), [COST]), Lever.PRICE, whose="one")
    assert flip.tied == ("one",)
    assert flip_words(flip, file()).endswith("two leads, too close to call with one")


def test_no_price_flips_what_only_one_can_do():
    only, bad = facts("only", price=9.0), facts("bad", price=1.0, score=0.1)
    assert not found(flips([only, bad], Limits(min_score=0.8), [COST]), Lever.PRICE)


def test_a_higher_bar_on_the_score_takes_the_choice_from_the_cheap_one():
    cheap, fine = facts("cheap", price=1.0, score=0.85), facts("fine", price=5.0, score=0.95)
    everything = flips([cheap, fine], Limits(min_score=0.8), [COST])
    [flip] = found(everything, Lever.MIN_SCORE, up=True)
    assert (flip.at, flip.winner) == (0.85, "fine")


def test_a_lower_bar_on_the_score_lets_the_cheap_one_in():
    cheap, fine = facts("cheap", price=1.0, score=0.6), facts("fine", price=5.0, score=0.95)
    [flip] = found(flips([cheap, fine], Limits(min_score=0.8), [COST]), Lever.MIN_SCORE, up=False)
    assert (flip.at, flip.winner) == (0.6, "cheap")


def test_a_bar_that_nobody_meets_is_told_as_such():
    everything = flips([facts("a", score=0.9)], Limits(min_score=0.8), [COST])
    [flip] = found(everything, Lever.MIN_SCORE, up=True)
    assert (flip.at, flip.winner) == (0.9, None)


def test_the_bars_on_latency_flip_at_the_bound_that_proves_them():
    slow = facts("slow", price=1.0, steps=(step(ttft=200),))
    quick = facts("quick", price=5.0, steps=(step(ttft=100),))
    [flip] = found(flips([slow, quick], Limits(max_ttft_p95_ms=500), [COST]), Lever.MAX_TTFT)
    # The upper bound of the slow one's p95 is 220 ms.
    assert (flip.at, flip.up, flip.winner) == (pytest.approx(220), False, "quick")
    [flip] = found(
        flips([slow, quick], Limits(max_ttft_p95_ms=150), [COST]), Lever.MAX_TTFT, up=True
    )
    assert (flip.at, flip.winner) == (pytest.approx(220), "slow")


def test_a_bar_that_was_never_set_may_be_set():
    slow = facts("slow", price=1.0, steps=(step(tpot=20),))
    quick = facts("quick", price=5.0, steps=(step(tpot=10),))
    [flip] = found(flips([slow, quick], Limits(), [COST]), Lever.MAX_TPOT)
    assert (flip.now, flip.at, flip.winner) == (None, pytest.approx(22), "quick")


def test_another_order_of_the_priorities_is_told():
    cheap, fine = facts("cheap", score=0.5), facts("fine", price=5.0, score=0.95)
    [flip] = found(flips([cheap, fine], Limits(), [COST]), Lever.FIRST)
    assert (flip.first, flip.winner) == (QUALITY, "fine")


def test_without_a_choice_nothing_flips_it():
    assert flips([facts("a", score=0.1)], Limits(min_score=0.9), [COST]) == ()


def test_every_flip_is_the_nearest_one_and_happens_just_past_it():
    contestants = [
        facts("a", price=1.0, score=0.80, steps=(step(rate_=90), step(rate_=200, ttft=300))),
        facts("b", price=1.1, score=0.86, steps=(step(rate_=100), step(rate_=180, ttft=250))),
        facts("c", price=2.0, score=0.95, steps=(step(rate_=150), step(rate_=300, ttft=120))),
    ]
    limits, order = Limits(min_score=0.7), (COST, QUALITY)
    before = decide(contestants, limits, order).winner
    for flip in found(flips(contestants, limits, order), Lever.PRICE):
        assert flip.now is not None
        past = at_price(contestants, flip.whose, flip.at * (1.000001 if flip.up else 0.999999))
        assert decide(past, limits, order).winner == flip.winner != before
        for share in range(1, 50):
            between = flip.now + (flip.at - flip.now) * share / 50
            trial = at_price(contestants, flip.whose, between)
            assert decide(trial, limits, order).winner == before


def test_a_lanes_bars_flip_where_they_are_just_met():
    wanted = bars(slo={"max_ttft_ms": 150}, min_good_share=0.5, ceilings={"ttft_p95_ms": 1500})
    steady = facts("steady", price=9.0, lanes={"chat": lane(wanted=wanted)})
    shaky = facts("shaky", price=1.0, lanes={"chat": lane(slow=20, wanted=wanted)})
    everything = flips([steady, shaky], Limits(), [COST], {"chat": wanted})
    ceiling, floor = found(everything, Lever.LANE_BAR, winner="steady")
    # A third of the cheap one's requests takes a second.
    assert (ceiling.metric, ceiling.at, ceiling.up) == ("ttft_p95_ms", 1000.0, False)
    low = shaky.lanes["chat"].steps[0].metrics["good_share"].estimate.low
    assert (floor.metric, floor.at, floor.up) == ("good_share", low, True)
    named = file(lanes={"chat": wanted.model_dump(mode="json", exclude_none=True)})
    assert flip_words(ceiling, named) == (
        "a TTFT p95 bar of chat below 1000 ms (now 1500): take steady"
    )
    assert flip_words(floor, named).startswith("a least goodput of chat above 0.5")
    strict = wanted.model_copy(update={"min_good_share": 0.9})
    [lowered] = found(
        flips([steady, shaky], Limits(), [COST], {"chat": strict}), Lever.LANE_BAR, winner="shaky"
    )
    assert (lowered.at, lowered.up) == (low, False)


def test_a_lanes_number_put_first_is_an_order_too():
    wanted = bars()
    slow = facts("slow", price=1.0, lanes={"chat": lane(ttft=400, wanted=wanted)})
    quick = facts("quick", price=9.0, lanes={"chat": lane(wanted=wanted)})
    goal = LaneGoal(lane="chat", metric="ttft_p95_ms")
    [flip] = found(flips([slow, quick], Limits(), [COST, goal], {"chat": wanted}), Lever.FIRST)
    assert (flip.first, flip.winner) == (goal, "quick")
    assert flip_words(flip, file()) == "TTFT p95 of chat first: take quick"
