"""Ratios of two engines from rounds, their bounds, and the three verdicts."""

from __future__ import annotations

import math
import random

import pytest

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired import (
    compare,
    compare_metric,
    log_ratio,
    throughput_ratio,
    why_dropped,
)
from engine_pipeline.gates.paired_bars import PairedBars
from engine_pipeline.gates.paired_result import PairedRound, PairedRun, Side
from engine_pipeline.gates.paired_stats import (
    degrees_of_freedom,
    standard_error,
    student_t,
    trimmed_mean,
)

BARS = PairedBars(against="prod")
P50 = "ttft_p50_ms"


def run(side: Side, ttft=(100.0,), tpot=(10.0,), **changes) -> PairedRun:
    fields = {"load_s": 1.0, "foreign_cpu": 0.0, "output_tokens_per_s": 50.0, **changes}
    return PairedRun(side=side, ttft_ms=tuple(ttft), tpot_ms=tuple(tpot), **fields)


def made(mine: PairedRun, theirs: PairedRun, number=1) -> PairedRound:
    return PairedRound(number=number, runs=(theirs, mine))


def noisy(n: int, middle: float, deviation: float, seed=1) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(middle, deviation) for _ in range(n)]


def test_the_ratio_is_that_of_the_two_percentiles_whichever_engine_ran_first():
    slow = run(Side.CANDIDATE, ttft=range(110, 1210, 110), tpot=range(10, 110, 10))
    fast = run(Side.LIVE, ttft=range(100, 1100, 100), tpot=range(10, 110, 10))
    for one in (made(slow, fast), PairedRound(number=1, runs=(slow, fast))):
        assert log_ratio("ttft_p50_ms", one) == pytest.approx(math.log(1.1))
        assert log_ratio("ttft_p95_ms", one) == pytest.approx(math.log(1.1))
        assert log_ratio("tpot_p50_ms", one) == 0


def test_failed_requests_of_the_candidate_stand_above_every_time():
    half = run(Side.CANDIDATE, ttft=(100.0,) * 10, tpot=(10.0,) * 10, failed={"timeout": 1})
    other = run(Side.LIVE, ttft=(100.0,) * 10, tpot=(10.0,) * 10)
    assert log_ratio("ttft_p50_ms", made(half, other)) == 0
    assert log_ratio("ttft_p95_ms", made(half, other)) == pytest.approx(math.log(100))
    none = run(Side.CANDIDATE, ttft=(), tpot=(), failed={"timeout": 8})
    assert log_ratio("tpot_p50_ms", made(none, other)) == pytest.approx(math.log(100))


def test_without_usage_there_is_no_time_per_token():
    mute = run(Side.CANDIDATE, ttft=(100.0, 100.0), tpot=())
    rounds = [made(mute, run(Side.LIVE))] * 6
    assert log_ratio("tpot_p50_ms", rounds[0]) is None
    found = {one.metric: one.outcome for one in compare(rounds, BARS)}
    assert found["tpot_p50_ms"] is Outcome.ERRORED
    assert found["ttft_p50_ms"] is Outcome.PASSED


def test_two_tokens_in_one_read_are_no_division_by_zero():
    one = made(run(Side.CANDIDATE, tpot=(0.0,)), run(Side.LIVE, tpot=(0.0,)))
    assert log_ratio("tpot_p50_ms", one) == 0


def test_throughput_is_reported_and_not_compared():
    rounds = [made(run(Side.CANDIDATE, output_tokens_per_s=100.0), run(Side.LIVE))] * 6
    assert throughput_ratio(rounds) == 2.0
    assert {one.metric for one in compare(rounds, BARS)} == {
        "ttft_p50_ms", "tpot_p50_ms", "ttft_p95_ms", "tpot_p95_ms",
    }  # fmt: skip
    slow = run(Side.CANDIDATE, ttft=(150.0,), output_tokens_per_s=500.0)
    verdicts = {one.metric: one.outcome for one in compare([made(slow, run(Side.LIVE))] * 6, BARS)}
    assert verdicts["ttft_p50_ms"] is Outcome.FAILED
    assert (
        throughput_ratio([made(run(Side.CANDIDATE, output_tokens_per_s=None), run(Side.LIVE))])
        is None
    )


def test_equal_engines_pass_and_clearly_slower_ones_fail():
    assert compare_metric(P50, noisy(12, 0.0, 0.03), BARS).outcome is Outcome.PASSED
    slow = compare_metric(P50, noisy(12, math.log(1.2), 0.03), BARS)
    assert slow.outcome is Outcome.FAILED
    assert 1 < slow.low < slow.ratio < slow.high
    assert slow.ratio == pytest.approx(1.2, abs=0.04)
    assert "slower for sure, and 1.100 is not ruled out" in slow.reason


def test_a_slowdown_that_is_sure_but_too_small_to_matter_passes():
    small = compare_metric(P50, [0.02, 0.021, 0.019, 0.02, 0.02, 0.021], BARS)
    assert small.outcome is Outcome.PASSED
    assert small.low > 1
    assert "slower, by less than is worth catching" in small.reason


def test_a_smaller_change_worth_catching_turns_the_same_rounds_into_a_failure():
    rounds = noisy(12, math.log(1.06), 0.01)
    assert compare_metric(P50, rounds, BARS).outcome is Outcome.PASSED
    strict = BARS.model_copy(update={"smallest_change": 0.05})
    assert compare_metric(P50, rounds, strict).outcome is Outcome.FAILED


def test_an_open_verdict_says_how_many_more_rounds_would_settle_it_and_they_do():
    rounds = noisy(12, 0.02, 0.15)
    thin = compare_metric(P50, rounds, BARS)
    assert thin.outcome is Outcome.INCONCLUSIVE
    assert thin.more_rounds is not None
    assert f"about {thin.more_rounds} more rounds would settle it" in thin.reason
    # As noisy, and as many as were asked for: the same values over and over.
    times = -(-(12 + thin.more_rounds) // 12) + 1
    assert compare_metric(P50, rounds * times, BARS).outcome is not Outcome.INCONCLUSIVE


def test_noise_that_no_number_of_rounds_beats_is_said_to_be_that():
    hopeless = compare_metric(P50, [0.05 + 4, 0.05 - 4] * 3, BARS)
    assert hopeless.outcome is Outcome.INCONCLUSIVE
    assert hopeless.more_rounds is None
    assert "the machine is too noisy" in hopeless.reason


@pytest.mark.parametrize("n", [0, 1, 2])
def test_too_few_rounds_are_open_and_name_how_many_are_missing(n):
    few = compare_metric(P50, [0.0] * n, BARS)
    assert few.outcome is Outcome.INCONCLUSIVE
    assert few.ratio is None
    assert few.more_rounds == BARS.rounds - n


def test_the_same_rounds_give_the_same_verdict_every_time():
    assert compare_metric(P50, noisy(9, 0.01, 0.1), BARS) == compare_metric(
        P50, noisy(9, 0.01, 0.1), BARS
    )


def test_one_spoilt_round_in_six_does_not_move_the_ratio():
    calm = [0.0, 0.01, -0.01, 0.005, -0.005]
    assert abs(trimmed_mean([*calm, 2.0])) < 0.01
    assert compare_metric(P50, [*calm, 2.0], BARS).ratio == pytest.approx(1, abs=0.01)


def test_rounds_are_dropped_for_what_the_machine_did_and_never_for_a_time():
    calm = run(Side.LIVE)
    assert why_dropped((calm, run(Side.CANDIDATE, ttft=(9e9,))), BARS) is None
    loud = why_dropped((calm, run(Side.CANDIDATE, foreign_cpu=0.4)), BARS)
    assert loud == (
        "others used 40% of the processor time during the run of the candidate engine, "
        "at most 25% counts as quiet"
    )
    assert why_dropped((calm, run(Side.CANDIDATE, foreign_cpu=None)), BARS) is None
    lost = run(Side.CANDIDATE, failed={"connect": 2}, unreached=2)
    assert "2 requests never reached the candidate engine" in why_dropped((calm, lost), BARS)
    broken = run(Side.LIVE, failed={"http-500": 1})
    assert "requests of the live engine failed: 1 http-500" in why_dropped(
        (broken, run(Side.CANDIDATE)), BARS
    )
    assert why_dropped((calm, run(Side.CANDIDATE, failed={"http-500": 1})), BARS) is None


@pytest.mark.parametrize(
    # Student's t: critical values of the usual tables, one-sided.
    ("confidence", "degrees", "want"),
    [(0.95, 1, 6.314), (0.95, 9, 1.833), (0.975, 4, 2.776), (0.99, 30, 2.457), (0.995, 10, 3.169)],
)
def test_students_quantiles_are_those_of_the_tables(confidence, degrees, want):
    assert student_t(confidence, degrees) == pytest.approx(want, abs=5e-4)


def test_the_bootstraps_standard_error_is_near_that_of_theory():
    values = noisy(400, 0.0, 1.0)
    # A trimmed mean of normal values has 1.07 times the error of a mean (20 % at either end).
    assert standard_error(values) == pytest.approx(1.07 / 20, rel=0.1)
    assert standard_error([1.0] * 8) == 0
    assert degrees_of_freedom(6) == 3


def test_a_round_during_which_a_board_was_slowed_down_does_not_count_whichever_engine_it_hit():
    calm = run(Side.LIVE)
    hot = run(Side.CANDIDATE, slowed="NVIDIA H100 in 25% of 4 readings (too hot, by the hardware)")
    assert "too hot" in (why_dropped((calm, hot), BARS) or "")
    assert why_dropped((run(Side.LIVE, slowed="x"), run(Side.CANDIDATE)), BARS) is not None
    assert why_dropped((calm, run(Side.CANDIDATE)), BARS) is None
