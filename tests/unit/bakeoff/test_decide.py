"""Who meets the limits, who is best among them, who is level within the noise."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from engine_pipeline.bakeoff.decide import decide
from engine_pipeline.bakeoff.goals import LaneGoal, Limits, Priority
from engine_pipeline.gates.outcome import Outcome
from tests.bakeoff_world import bars, facts, lane, step

COST, QUALITY, SPEED = Priority.COST, Priority.QUALITY, Priority.SPEED


def test_the_cheapest_that_meets_the_limits_wins_and_the_cheaper_one_that_does_not_is_left_out():
    good, better, bad = (
        facts("good", price=2.0),
        facts("better", price=3.0),
        facts("bad", price=1.0, score=0.5),
    )
    decision = decide([bad, better, good], Limits(min_score=0.8), [COST])
    assert decision.ranking == ("good", "better")
    assert decision.ruling("bad").outcome is Outcome.FAILED
    assert decision.ruling("bad").reasons == ("score 0.500, want at least 0.8",)


def test_overlapping_costs_are_a_tie_that_the_next_priority_breaks():
    a = facts("a", price=1.00, score=0.60, cases=1000)
    b = facts("b", price=1.02, score=0.90, cases=1000)
    decision = decide([a, b], Limits(), [COST, QUALITY])
    assert decision.winner == "b"
    assert decision.turns[0].kept == ("a", "b")
    assert decision.turns[1].dropped == ("a",)
    assert decision.tied == ()


def test_a_tie_to_the_end_is_said_and_the_value_decides():
    decision = decide([facts("a", price=1.02), facts("b", price=1.0)], Limits(), [COST])
    assert (decision.winner, decision.tied) == ("b", ("a",))


def test_quality_is_compared_case_by_case_which_tells_what_overlapping_intervals_would_not():
    fine, worse = facts("fine", score=0.96, cases=50), facts("worse", score=0.84, cases=50)
    assert fine.score.overlaps(worse.score)
    # All six cases of difference are the worse one's loss: p = 1/64.
    decision = decide([fine, worse], Limits(), [QUALITY])
    assert (decision.winner, decision.tied) == ("fine", ())
    # Of eight lost and two gained, p is 56/1024, and one side of 95 % is 0.025.
    mixed = replace(worse, name="mixed", scores=(0.0,) * 8 + (1.0,) * 42)
    decision = decide([fine, mixed], Limits(), [QUALITY])
    assert (decision.winner, decision.tied) == ("fine", ("mixed",))


def test_five_lost_cases_are_too_few_and_six_are_enough():
    best = facts("best", score=1.0, cases=100)
    five, six = facts("five", score=0.95, cases=100), facts("six", score=0.94, cases=100)
    assert decide([best, five], Limits(), [QUALITY]).tied == ("five",)
    assert decide([best, six], Limits(), [QUALITY]).tied == ()


def test_the_evidence_that_is_said_to_settle_a_tie_would_settle_it():
    a, b = facts("a", price=1.0), facts("b", price=1.02)
    decision = decide([a, b], Limits(), [COST])
    times = decision.ruling("b").more_evidence(decision.ruling("a"), COST)
    for factor, tied in ((1.1, ()), (0.9, ("b",))):
        steps = (step(noise=0.05 / math.sqrt(times * factor)),)
        more = [facts("a", price=1.0, steps=steps), facts("b", price=1.02, steps=steps)]
        assert decide(more, Limits(), [COST]).tied == tied


def test_no_amount_of_evidence_settles_what_is_equal():
    decision = decide([facts("a"), facts("b")], Limits(), [COST, QUALITY])
    for priority in (COST, QUALITY):
        more = decision.ruling("b").more_evidence(decision.ruling("a"), priority)
        assert more == math.inf


def test_the_order_of_the_priorities_decides():
    cheap = facts("cheap", price=1.0, score=0.7, cases=1000)
    fine = facts("fine", price=2.0, score=0.95, cases=1000)
    assert decide([cheap, fine], Limits(), [COST, QUALITY]).winner == "cheap"
    assert decide([cheap, fine], Limits(), [QUALITY, COST]).winner == "fine"


def test_speed_and_cost_are_taken_where_most_tokens_flow_within_the_limits():
    steps = (
        step(concurrency=1, rate_=100, ttft=100),
        step(concurrency=4, rate_=300, ttft=200),
        step(concurrency=16, rate_=500, ttft=900),
    )
    one = facts("one", steps=steps)
    free = decide([one], Limits(), [SPEED]).ruling("one")
    held = decide([one], Limits(max_ttft_p95_ms=250), [SPEED]).ruling("one")
    assert (free.step.concurrency, held.step.concurrency) == (16, 4)
    assert held.cost.value == pytest.approx(1e6 / 3600 / 300)


def test_a_latency_that_is_missed_at_every_step_is_missed_with_both_sides():
    ruling = decide([facts("a")], Limits(max_ttft_p95_ms=50), [COST]).ruling("a")
    assert ruling.outcome is Outcome.FAILED
    assert ruling.reasons[0].startswith("TTFT p95 100 ms with 1 in flight, want at most 50 ms")


def test_too_few_requests_are_neither_met_nor_missed_and_are_not_recommended():
    few = facts("few", steps=(step(n=10),))
    decision = decide([few], Limits(max_ttft_p95_ms=150), [COST])
    assert decision.ruling("few").outcome is Outcome.INCONCLUSIVE
    assert decision.winner is None


def test_a_server_without_usage_could_not_be_held_to_a_bar_on_tpot():
    one = facts("one", steps=(step(tpot=None),))
    ruling = decide([one], Limits(max_tpot_p95_ms=50), [COST]).ruling("one")
    assert ruling.outcome is Outcome.ERRORED
    assert "no usage" in ruling.reasons[0]


def test_a_contestant_of_which_more_than_one_request_in_twenty_fails_meets_no_limit():
    one = facts("one", steps=(step(ttft=math.inf),))
    ruling = decide([one], Limits(), [QUALITY]).ruling("one")
    assert ruling.outcome is Outcome.FAILED
    assert "more than one request in twenty failed" in ruling.reasons[0]


def test_a_case_that_must_pass_is_a_limit_of_the_suites_own():
    one = facts("one", score=0.99, failed_must=("safety",))
    assert decide([one], Limits(), [QUALITY]).winner is None


def test_answers_that_were_not_judged_are_neither_a_pass_nor_a_miss():
    one = facts("one", score=0.7, most_score=0.9)
    assert decide([one], Limits(min_score=0.8), [QUALITY]).rulings[0].outcome is Outcome.ERRORED
    assert decide([one], Limits(min_score=0.95), [QUALITY]).rulings[0].outcome is Outcome.FAILED


def test_structured_answers_can_be_a_limit():
    one = facts("one", structured_share=0.8)
    assert decide([one], Limits(min_structured_share=0.8), [COST]).winner == "one"
    assert decide([one], Limits(min_structured_share=0.81), [COST]).winner is None


def test_an_unknown_cost_never_beats_a_known_one():
    unknown = facts("unknown", steps=(step(rate_=None),))
    assert decide([unknown, facts("known", price=99.0)], Limits(), [COST]).winner == "known"


def test_nobody_is_chosen_of_nobody():
    assert decide([], Limits(), [COST]).winner is None


SLO = {"slo": {"max_ttft_ms": 150}, "min_good_share": 0.5}


def test_a_bar_of_a_lane_is_a_limit_like_the_others():
    good = facts("good", price=2.0, lanes={"chat": lane(ttft=100)})
    slow = facts("slow", price=1.0, lanes={"chat": lane(ttft=2000)})
    decision = decide([good, slow], Limits(), [COST], {"chat": bars()})
    assert decision.ranking == ("good",)
    [reason] = decision.ruling("slow").reasons
    assert reason.startswith("chat: ttft_p95_ms 2000 ms, want at most 1000: lower 95 % bound")


def test_a_lane_whose_client_was_late_shows_nothing():
    wanted = bars()
    late = facts("late", lanes={"chat": lane(lag_ms=500, wanted=wanted)})
    ruling = decide([late], Limits(), [COST], {"chat": wanted}).ruling("late")
    assert ruling.outcome is Outcome.INCONCLUSIVE
    assert "the client could not keep up" in ruling.reasons[0]


@pytest.mark.parametrize("metric", ["ttft_p95_ms", "good_share", "good_per_s"])
def test_a_number_of_a_lane_can_be_what_counts(metric):
    wanted = bars(**SLO, ceilings={})
    # Of sixty, twenty took a second.
    steady = facts("steady", price=9.0, lanes={"chat": lane(wanted=wanted)})
    shaky = facts("shaky", price=1.0, lanes={"chat": lane(slow=20, wanted=wanted)})
    goal = LaneGoal(lane="chat", metric=metric)
    decision = decide([shaky, steady], Limits(), [goal, COST], {"chat": wanted})
    assert (decision.winner, decision.tied) == ("steady", ())
    assert decision.turns[0].dropped == ("shaky",)
    assert decide([shaky, steady], Limits(), [COST], {"chat": wanted}).winner == "shaky"


def test_what_a_lane_could_not_measure_is_never_better_than_what_it_could():
    wanted = bars()
    silent = lane(wanted=wanted)
    [one] = silent.steps
    metrics = {name: found for name, found in one.metrics.items() if name != "tpot_p95_ms"}
    silent = silent.model_copy(update={"steps": (one.model_copy(update={"metrics": metrics}),)})
    both = [
        facts("silent", price=1.0, lanes={"chat": silent}),
        facts("known", price=9.0, lanes={"chat": lane(wanted=wanted)}),
    ]
    goal = LaneGoal(lane="chat", metric="tpot_p95_ms")
    assert decide(both, Limits(), [goal, COST], {"chat": wanted}).winner == "known"


BUSY = "others used 40% of this machine's processor time"


def test_a_choice_by_disturbed_times_is_none():
    a, b = facts("a", price=1.0), facts("b", price=2.0, disturbed=BUSY)
    for first in (COST, SPEED):
        assert decide([a, b], Limits(), [first, QUALITY]).shaken == ("b",)
    # On a quiet machine the same numbers decide.
    assert decide([a, facts("b", price=2.0)], Limits(), [COST]).shaken == ()


def test_being_level_on_disturbed_times_is_no_evidence_of_being_level():
    a, b = facts("a", disturbed=BUSY), facts("b", score=0.2)
    decision = decide([a, b], Limits(), [COST, QUALITY])
    assert (decision.winner, decision.tied, decision.shaken) == ("a", (), ("a",))


def test_a_lanes_number_is_a_time_too():
    wanted = bars()
    a = facts("a", lanes={"chat": lane(wanted=wanted)}, disturbed=BUSY)
    b = facts("b", lanes={"chat": lane(ttft=500, wanted=wanted)})
    goal = LaneGoal(lane="chat", metric="ttft_p95_ms")
    assert decide([a, b], Limits(), [goal], {"chat": wanted}).shaken == ("a",)


def test_quality_alone_decides_however_busy_the_machine_was():
    fine, worse = facts("fine", disturbed=BUSY), facts("worse", score=0.2, disturbed=BUSY)
    decision = decide([fine, worse], Limits(), [QUALITY, COST])
    assert (decision.winner, decision.shaken) == ("fine", ())


def test_a_price_by_the_token_is_not_disturbed():
    a = facts("a", price=1.0, by_the_hour=False, disturbed=BUSY)
    b = facts("b", price=2.0, by_the_hour=False, disturbed=BUSY)
    assert decide([a, b], Limits(), [COST]).shaken == ()


def test_who_misses_a_limit_on_disturbed_times_alone_might_have_been_the_one():
    fine = facts("fine", score=0.95, steps=(step(ttft=900),), disturbed=BUSY)
    other = facts("other", score=0.5)
    late = Limits(max_ttft_p95_ms=500)
    assert decide([fine, other], late, [QUALITY]).shaken == ("fine",)
    # Nobody else: not refused, not judged.
    alone = decide([fine], late, [QUALITY])
    assert (alone.winner, alone.shaken) == (None, ("fine",))
    # It would have lost by its answers whatever its times, or misses another limit as well.
    worse = facts("worse", score=0.1, steps=(step(ttft=900),), disturbed=BUSY)
    assert decide([worse, other], late, [QUALITY]).shaken == ()
    bad = replace(fine, failed_must=("safety",))
    assert decide([bad, other], late, [QUALITY]).shaken == ()
