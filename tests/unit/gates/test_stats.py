"""Statistics: order statistics by definition, bounds with the coverage they promise, decisions."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_pipeline.gates import stats
from engine_pipeline.gates.outcome import Outcome

SAMPLES = st.lists(st.floats(0, 1e6), min_size=1, max_size=200)
QUANTILES = st.sampled_from([0.5, 0.9, 0.95, 0.99])


@pytest.mark.parametrize(
    ("n", "q", "rank"), [(20, 0.95, 19), (100, 0.95, 95), (60, 0.95, 57), (1, 0.5, 1), (3, 0.5, 2)]
)
def test_a_percentile_is_the_ceil_qn_th_smallest_sample(n, q, rank):
    shuffled = random.Random(n).sample(range(1, n + 1), n)
    assert stats.percentile(shuffled, q) == rank


@given(SAMPLES, QUANTILES)
def test_at_least_that_share_of_the_samples_lies_at_or_below_the_percentile(samples, q):
    value = stats.percentile(samples, q)
    assert value in samples
    at_or_below = sum(sample <= value for sample in samples)
    assert at_or_below >= q * len(samples) - 1e-6
    assert sum(sample < value for sample in samples) < q * len(samples) + 1e-6


@pytest.mark.parametrize(("samples", "q"), [([], 0.5), ([1.0], 0), ([1.0], 1.01)])
def test_a_percentile_of_nothing_is_refused(samples, q):
    with pytest.raises(ValueError, match="percentile"):
        stats.percentile(samples, q)


@given(SAMPLES, QUANTILES)
def test_the_bounds_enclose_the_value(samples, q):
    estimate = stats.percentile_estimate(samples, q)
    assert estimate.low <= estimate.value <= estimate.high
    assert estimate.largest == max(samples)


@pytest.mark.parametrize(
    ("q", "needed"),
    # Published one-sided sample sizes at 95 % confidence.
    [(0.95, 59), (0.99, 299), (0.9, 29), (0.5, 5)],
)
def test_an_upper_bound_takes_as_many_samples_as_the_tables_say(q, needed):
    enough = stats.percentile_estimate([float(n) for n in range(needed)], q)
    short = stats.percentile_estimate([float(n) for n in range(needed - 1)], q)
    assert enough.needed == needed
    assert enough.high == enough.largest
    assert math.isinf(short.high)


def test_both_bounds_hold_for_95_of_100_experiments():
    draw = random.Random(1)
    truth = -math.log(0.05)  # p95 of the exponential distribution
    experiments = 600
    below = above = 0
    for _ in range(experiments):
        estimate = stats.percentile_estimate([draw.expovariate(1) for _ in range(100)], 0.95)
        below += estimate.high < truth
        above += estimate.low > truth
    # 5 % of 600 is 30; 48 is more than three standard deviations above.
    assert below <= 48
    assert above <= 48


def test_failures_push_the_percentile_beyond_measure():
    estimate = stats.percentile_estimate([1.0] * 90 + [math.inf] * 10, 0.95)
    assert math.isinf(estimate.value)
    assert stats.percentile_estimate([1.0] * 97 + [math.inf] * 3, 0.95).value == 1.0


def test_more_samples_than_a_float_factorial_can_hold_are_fine():
    estimate = stats.percentile_estimate([float(n) for n in range(5000)], 0.95)
    assert 4700 < estimate.low < estimate.value < estimate.high < 4800


def judged(samples: list[float], bar: float) -> Outcome:
    return stats.at_most(stats.percentile_estimate(samples, 0.95), bar, "ms").outcome


@pytest.mark.parametrize(
    ("samples", "bar", "outcome"),
    [
        ([100.0] * 59, 100, Outcome.PASSED),
        ([100.0] * 58, 100, Outcome.INCONCLUSIVE),
        ([100.0] * 59, 99, Outcome.FAILED),
        ([100.0] * 20, 200, Outcome.PASSED),  # all within half of the bar
        ([100.0] * 20, 199, Outcome.INCONCLUSIVE),
        ([100.0] * 19, 1000, Outcome.INCONCLUSIVE),
        ([100.0] * 19 + [150.0], 200, Outcome.INCONCLUSIVE),
        ([300.0] * 3, 200, Outcome.FAILED),  # P(all three above p95) is 1 in 8,000
        ([100.0] * 59 + [math.inf], 100, Outcome.INCONCLUSIVE),
        ([100.0] * 90 + [math.inf] * 10, 1e9, Outcome.FAILED),
        ([math.inf] * 5, 1e9, Outcome.FAILED),
        ([100.0] * 57 + [900.0] * 3, 500, Outcome.INCONCLUSIVE),
        ([100.0] * 55 + [900.0] * 5, 500, Outcome.INCONCLUSIVE),  # above the bar, but not surely
    ],
)
def test_a_ceiling_is_met_missed_or_open(samples, bar, outcome):
    assert judged(samples, bar) is outcome


@given(SAMPLES, st.floats(1, 1e6), st.floats(1, 1e6))
def test_a_softer_ceiling_is_never_worse(samples, first, second):
    order = [Outcome.FAILED, Outcome.INCONCLUSIVE, Outcome.PASSED]
    hard, soft = sorted([first, second])
    assert order.index(judged(samples, hard)) <= order.index(judged(samples, soft))


def test_a_rate_has_the_mean_of_its_slots_and_student_bounds():
    estimate = stats.rate([10, 12] * 5, 2.0)
    assert estimate.value == pytest.approx(5.5)
    # Standard deviation of the slots is 0.52705; 1.833 of it over the root of 10 on either side.
    assert estimate.high - estimate.value == pytest.approx(
        1.833 * 0.52705 / math.sqrt(10), rel=1e-4
    )


@pytest.mark.parametrize(("amounts", "slot_s"), [([1.0] * 9, 1.0), ([1.0] * 10, 0.0)])
def test_a_rate_of_wrong_slots_is_refused(amounts, slot_s):
    with pytest.raises(ValueError, match="slots"):
        stats.rate(amounts, slot_s)


@pytest.mark.parametrize(
    ("bar", "outcome"),
    [(5.0, Outcome.PASSED), (5.5, Outcome.INCONCLUSIVE), (6.0, Outcome.FAILED)],
)
def test_a_floor_is_met_missed_or_open(bar, outcome):
    judgement = stats.at_least(stats.rate([10, 12] * 5, 2.0), bar, "tokens/s")
    assert judgement.outcome is outcome
    assert "tokens/s" in judgement.why


@pytest.mark.parametrize(
    ("hits", "n", "low", "high"),
    [
        (60, 60, 0.05 ** (1 / 60), 1.0),  # all of them: the one case with a closed form
        (0, 60, 0.0, 1 - 0.05 ** (1 / 60)),
        (50, 100, 0.4136, 0.5864),  # Clopper and Pearson at 90 %, two-sided
    ],
)
def test_a_share_has_exact_bounds(hits, n, low, high):
    estimate = stats.share_estimate(hits, n)
    assert estimate.value == hits / n
    assert (estimate.low, estimate.high) == pytest.approx((low, high), abs=2e-3)


def test_exact_and_approximate_bounds_of_a_share_meet():
    exact, near = stats.share_estimate(4700, 5000), stats.share_estimate(4701, 5001)
    assert (exact.low, exact.high) == pytest.approx((near.low, near.high), abs=5e-4)


@pytest.mark.parametrize(("hits", "n"), [(1, 0), (2, 1), (-1, 5)])
def test_a_share_of_nothing_is_refused(hits, n):
    with pytest.raises(ValueError, match="hits"):
        stats.share_estimate(hits, n)


def test_samples_that_belong_together_bound_no_more_than_what_they_belong_to():
    pooled = [float(n) for n in range(600)]
    alone = stats.percentile_estimate(pooled, 0.95)
    tenth = stats.percentile_estimate(pooled, 0.95, independent=60)
    assert tenth.value == alone.value
    assert tenth.n == 60
    assert tenth.low < alone.low
    assert tenth.high > alone.high
    assert math.isinf(stats.percentile_estimate(pooled, 0.95, independent=58).high)


def test_bounds_of_many_samples_meet_those_of_fewer():
    exact = stats.percentile_estimate([n / 5000 for n in range(5000)], 0.95)
    near = stats.percentile_estimate([n / 5001 for n in range(5001)], 0.95)
    assert (exact.low, exact.high) == pytest.approx((near.low, near.high), abs=1e-3)


OPEN = stats.Estimate(n=100, needed=59, value=100.0, low=80.0, high=140.0, largest=200.0)


@pytest.mark.parametrize(
    ("bar", "more"),
    [
        # The upper bound is 40 away and has to come within 20: half as far, so four times as many.
        (120.0, 300),
        # The lower bound is 20 away and has to come within 10.
        (90.0, 300),
        (139.9, 1),
        # On the very value: no number of samples tells the two apart.
        (100.0, None),
        (100.001, None),
    ],
)
def test_bounds_that_have_to_come_half_as_near_take_four_times_as_many_requests(bar, more):
    assert stats.more_requests(OPEN, bar, made=100) == more
    said = stats.settled_by(OPEN, bar, made=100)
    wanted = "not even 100,000 more" if more is None else f"about {more} more requests would settle"
    assert said.startswith(wanted)


def test_a_rate_is_settled_by_as_many_times_the_requests_it_was_taken_over():
    measured = stats.Estimate(n=10, needed=10, value=100.0, low=80.0, high=120.0)
    assert stats.more_requests(measured, 90.0, made=60) == 180
    assert stats.more_requests(measured, 110.0, made=60) == 180


def test_too_few_samples_for_a_bound_need_at_least_as_many_as_one_takes():
    few = stats.percentile_estimate([100.0] * 20, 0.95)
    assert stats.more_requests(few, 150.0, made=20) == 39
    assert stats.settled_by(few, 150.0, made=20).startswith("at least 39 more requests")


def test_no_number_is_said_where_failures_put_the_value_beyond_measure():
    lost = stats.percentile_estimate([100.0] * 50 + [math.inf] * 4, 0.95)
    assert stats.settled_by(lost, 150.0, made=54).startswith("see to the failed requests")


def test_as_many_as_are_said_settle_most_of_what_was_open():
    is_open = settled = 0
    for seed in range(60):
        draw = random.Random(seed).lognormvariate
        times = [draw(0, 0.4) for _ in range(100)]
        estimate = stats.percentile_estimate(times, 0.95)
        bar = 1.15 * math.exp(0.4 * 1.645)  # of a true p95
        if stats.at_most(estimate, bar, "ms").outcome is not Outcome.INCONCLUSIVE:
            continue
        more = stats.more_requests(estimate, bar, made=100)
        if more is None or more > 2000:
            continue
        is_open += 1
        times += [draw(0, 0.4) for _ in range(more)]
        again = stats.percentile_estimate(times, 0.95)
        settled += stats.at_most(again, bar, "ms").outcome is not Outcome.INCONCLUSIVE
    assert is_open > 20
    assert settled / is_open > 0.6
