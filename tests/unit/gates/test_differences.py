"""Live and candidate side by side, row by row."""

from __future__ import annotations

from engine_pipeline.gates.differences import NoLive, rows
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired_result import Baseline, Comparison, PairedResult
from engine_registry.digest import Digest
from tests.unit.gates.report_samples import BESIDE, LIVE, MIXED, report

NOBODY = NoLive(reason="nothing was live")
ROWS = {row.name: row for row in rows(MIXED, BESIDE)}


def test_every_finding_has_a_row_in_its_order_and_other_metrics_follow():
    named = [finding.name for finding in MIXED.findings]
    assert list(ROWS) == [*named, "ttft_p50_ms"]
    assert ROWS["ttft_p50_ms"].outcome is None


def test_a_latency_is_set_beside_lives_with_bounds_and_bar():
    row = ROWS["ttft_p95_ms"]
    assert (row.live, row.candidate, row.bar) == ("156 ms", "beyond measure", "≤ 500 ms")
    assert row.outcome is Outcome.INCONCLUSIVE
    better = {row.name: row for row in rows(LIVE, BESIDE)}["ttft_p95_ms"]
    assert (better.difference, better.bounds) == ("the same, at another time", "153 to 159 ms")


def test_a_slower_median_is_told_in_words():
    assert (
        ROWS["ttft_p50_ms"].difference == "43% slower, at another time"
    )  # 185 ms, counting those lost, to 129 ms


def test_a_score_tells_how_many_cases_changed():
    row = ROWS["score"]
    assert (row.live, row.candidate, row.bar) == ("1.000", "0.250", "≥ 0.900")
    assert row.difference == "−0.667: 2 worse"
    assert ROWS["score of facts"].bar == "≥ 0.500"


def test_without_a_baseline_no_row_claims_a_difference():
    assert all(row.live is None and row.difference is None for row in rows(MIXED, NOBODY))


def test_what_was_measured_in_turn_has_rows_with_its_bounds():
    paired = PairedResult(
        baseline=Baseline(named="prod", engine=Digest.of(b"live")),
        outcome=Outcome.FAILED,
        reason="slower",
        comparisons=(
            Comparison(
                metric="ttft_p50_ms",
                rounds=6,
                ratio=1.21,
                low=1.1,
                high=1.3,
                deviation=0.02,
                smallest_change=0.1,
                outcome=Outcome.FAILED,
                reason="slower for sure",
            ),
        ),
    )
    found = {row.name: row for row in rows(report(paired=paired), NOBODY)}
    row = found["paired-ttft_p50_ms"]
    assert row.difference == "1.210 × live (1.100 to 1.300)"
    assert (row.outcome, row.bar) == (Outcome.FAILED, "below 1.10 × live")
