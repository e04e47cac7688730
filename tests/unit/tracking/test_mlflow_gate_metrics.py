"""A report as MLflow's metrics: lanes, comparisons and distributions are all there."""

from __future__ import annotations

import pytest

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.parity_result import Parent, ParityMeasures, ParityResult
from engine_pipeline.tracking.mlflow.gate_metrics import gate_curves, gate_metrics
from tests.unit.gates import report_samples as samples


def test_a_lane_has_its_metrics_with_bounds_at_every_step():
    found = gate_metrics(samples.report(lanes=(samples.lane(steps=(1, 4)),)))
    assert found["lane.interactive.at_1.ttft_p50_ms"] == 129.0
    assert found["lane.interactive.at_4.ttft_p50_ms"] == 429.0
    low, high = (found[f"lane.interactive.at_4.ttft_p50_ms.{end}"] for end in ("low", "high"))
    assert low < 429 < high


def test_a_comparison_in_turn_shows_its_ratios_with_bounds_and_its_rounds():
    found = gate_metrics(samples.report(paired=samples.in_turn(slower=1.2)))
    assert found["paired.ttft_p50_ms.ratio"] == pytest.approx(1.2, rel=0.02)
    low, high = (found[f"paired.ttft_p50_ms.ratio.{end}"] for end in ("low", "high"))
    assert low <= found["paired.ttft_p50_ms.ratio"] <= high
    assert found["paired.rounds"] == 8
    assert found["paired.output_tokens_per_s.ratio"] == 0.9


def test_a_comparison_with_a_parent_shows_its_measures_by_parent():
    told = samples.parity("text")
    measured = told.measures.model_copy(update={"kl": 0.02, "top1_agreement": 0.97})
    found = gate_metrics(samples.report(parity=(told.model_copy(update={"measures": measured}),)))
    parity = {key.removeprefix("parity.m-t-fp16."): found[key] for key in found if "parity" in key}
    assert parity == {
        "prompts": 3.0,
        "identical_share": pytest.approx(2 / 3),
        "near_ties_share": 0.0,
        "real_share": pytest.approx(1 / 3),
        "unknown_share": 0.0,
        "prefix_agreement": 0.8,
        "top1_agreement": 0.97,
        "kl": 0.02,
        "drop": pytest.approx(1 / 3),
    }


def test_comparisons_that_found_nothing_say_nothing():
    nobody = ParityResult(parent=Parent(named="prod"), outcome=Outcome.SKIPPED, reason="no live")
    nothing = ParityMeasures(
        unit="tokens", prompts=0, identical=0, near_ties=0, real=0, unknown=0, prefix_agreement=0
    )
    empty = nobody.model_copy(update={"measures": nothing})
    found = gate_metrics(samples.report(parity=(nobody, empty)))
    assert [key for key in found if key.startswith("parity")] == [
        "parity.prod.prompts",
        "parity.prod.prefix_agreement",
    ]


def test_each_stored_latency_has_a_point_for_each_percentile():
    curves = gate_curves(samples.report(performance=samples.speed(100.0)))
    assert sorted(curves) == [f"{name}_ms_by_percentile" for name in ("e2e", "tpot", "ttft")]
    ttft = curves["ttft_ms_by_percentile"]
    assert list(ttft) == list(range(1, 100))
    assert (ttft[50], ttft[95]) == (129.0, 156.0)
    assert curves["e2e_ms_by_percentile"][50] == 387.0


def test_a_curve_ends_where_requests_failed():
    curves = gate_curves(samples.report(performance=samples.speed(100.0, failed=15)))
    assert max(curves["ttft_ms_by_percentile"]) == 75
    nothing = gate_curves(samples.report(performance=samples.speed(100.0, failed=60)))
    assert nothing == {}


def test_lanes_and_both_engines_of_a_comparison_have_curves_of_their_own():
    made = samples.report(lanes=(samples.lane(failed=6),), paired=samples.in_turn(lost=20))
    curves = gate_curves(made)
    assert max(curves["lane.interactive.ttft_ms_by_percentile"]) == 90
    assert max(curves["paired.candidate.ttft_ms_by_percentile"]) == 50
    assert curves["paired.live.ttft_ms_by_percentile"][50] == 118.0
    # Gaps between tokens are stored as percentiles alone.
    assert curves["lane.interactive.itl_ms_by_percentile"] == {50: 9.0, 99: 19.0}
