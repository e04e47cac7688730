"""From a measurement and a price to numbers with intervals."""

from __future__ import annotations

import math

import pytest

from engine_pipeline.bakeoff.facts import Interval, facts_of, wilson
from engine_pipeline.bakeoff.file import Price
from tests.bakeoff_world import bars, case, lane, measured, performance


def test_cost_of_a_machine_is_its_hour_over_the_tokens_of_an_hour():
    # 8 tokens in 100 + 7 * 10 = 170 ms: 47.06 tokens/s, 169,412 an hour.
    made = facts_of("a", measured(), Price(per_hour=2.0))
    assert made.cost(made.steps[0]).value == pytest.approx(2.0 / (8 / 0.170 * 3600 / 1e6), rel=1e-4)


def test_cost_by_the_token_counts_prompts_at_the_loads_own_lengths():
    price = Price(per_million_output_tokens=6.0, per_million_input_tokens=1.0)
    made = facts_of("a", measured(), price)
    # 24 prompt tokens for 8 of the answer.
    assert made.cost(made.steps[0]) == Interval(low=9.0, value=9.0, high=9.0)


def test_a_server_that_sends_no_usage_has_no_cost_where_prompts_are_charged():
    speed = performance()
    blind = speed.model_copy(
        update={
            "samples": tuple(s.model_copy(update={"prompt_tokens": None}) for s in speed.samples)
        }
    )
    price = Price(per_million_output_tokens=6.0, per_million_input_tokens=1.0)
    made = facts_of("a", measured(steps=(blind,)), price)
    assert math.isinf(made.cost(made.steps[0]).value)


def test_nothing_costs_nothing_and_not_an_unknown_amount():
    made = facts_of("a", measured(), Price(per_hour=0.0))
    assert made.cost(made.steps[0]) == Interval(low=0.0, value=0.0, high=0.0)


def test_cases_that_must_pass_are_named_when_they_do_not():
    suite = measured().suites[0].model_copy(update={"cases": (case(0, passed=False, must=True),)})
    assert facts_of("a", measured(suites=(suite,)), None).failed_must == ("case-0",)


def test_a_case_in_quarantine_counts_nowhere():
    left_out = case(1, passed=False, must=True).model_copy(update={"counts": False})
    suite = measured().suites[0].model_copy(update={"cases": (case(0), left_out)})
    made = facts_of("a", measured(suites=(suite,)), None)
    assert (made.scores, made.most_score, made.failed_must) == ((1.0,), 1.0, ())


@pytest.mark.parametrize(
    ("foreign_cpu", "said"),
    [(None, None), (0.25, None), (0.26, "others used 26% of this machine's processor time")],
)
def test_who_shared_the_processor_beyond_a_quarter_is_disturbed(foreign_cpu, said):
    found = facts_of("a", measured(foreign_cpu=foreign_cpu), None).disturbed
    assert (found or "").partition(",")[0] == (said or "")


def test_a_gpu_that_was_slowed_down_for_half_of_the_requests_disturbs():
    hot = performance().model_copy(update={"disturbed": 60})
    made = facts_of("a", measured(steps=(hot,)), None)
    assert made.disturbed is not None
    assert "GPU" in made.disturbed
    one = lane()
    [at] = one.steps
    in_a_lane = one.model_copy(update={"steps": (at.model_copy(update={"disturbed": 60}),)})
    wanted = {"chat": bars()}
    assert facts_of("a", measured(lanes=(in_a_lane,)), None, wanted).disturbed is not None
    few = performance().model_copy(update={"disturbed": 59})
    assert facts_of("a", measured(steps=(few,)), None).disturbed is None


@pytest.mark.parametrize("n", [1, 10, 200])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.93, 1.0])
def test_the_interval_of_a_score_holds_the_score_and_stays_within_0_and_1(share, n):
    interval = wilson(share, n)
    assert -1e-12 <= interval.low <= interval.value == share <= interval.high <= 1 + 1e-12
    assert interval.high - interval.low > 0


def test_the_interval_is_wilsons():
    # 95 %, 8 of 10: 0.4902 to 0.9433 (Wilson 1927, as in any table of it).
    interval = wilson(0.8, 10)
    assert (round(interval.low, 4), round(interval.high, 4)) == (0.4902, 0.9433)
