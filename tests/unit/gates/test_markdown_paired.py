"""What a report tells people of a comparison with the live engine."""

from __future__ import annotations

import pytest

from engine_pipeline.gates.markdown_paired import HEAD, advice, paired_facts, paired_rows
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired import compare, rule
from engine_pipeline.gates.paired_bars import PairedBars
from engine_pipeline.gates.paired_result import (
    Baseline,
    PairedResult,
    PairedRound,
    PairedRun,
    Side,
)
from engine_registry.digest import Digest

BARS = PairedBars(against="prod")
BASELINE = Baseline(named="m/t/prod", engine=Digest.of(b"live"), release="m/t:3")


def made(number: int, mine: float, theirs: float, dropped: str | None = None) -> PairedRound:
    runs = tuple(
        PairedRun(side=side, load_s=1, foreign_cpu=0, ttft_ms=(ttft,) * 8, tpot_ms=(10.0,) * 8)
        for side, ttft in ((Side.CANDIDATE, mine), (Side.LIVE, theirs))
    )
    return PairedRound(number=number, runs=runs, dropped=dropped)


def result(rounds, outcome: Outcome, **more) -> PairedResult:
    counted = [one for one in rounds if one.dropped is None]
    return PairedResult(
        baseline=BASELINE,
        outcome=outcome,
        reason="as the test says",
        rule=rule(BARS),
        rounds=tuple(rounds),
        comparisons=compare(counted, BARS),
        **more,
    )


def test_a_row_shows_live_candidate_ratio_bounds_bar_and_verdict():
    slow = result([made(n, 120 + n, 100) for n in range(1, 7)], Outcome.FAILED)
    first, *_ = paired_rows(slow)
    row = dict(zip(HEAD, first, strict=True))
    assert (row["metric"], row["live"], row["candidate"]) == ("ttft_p50_ms", "100", "123")
    assert row["ratio"].startswith("1.23")
    assert row["bar"] == "below 1.10"
    assert row["verdict"] == "failed"
    low, _, high = row["bounds"].partition(" to ")
    assert 1 < float(low) < float(high)


def test_dropped_rounds_are_named_with_their_reason_and_do_not_count():
    rounds = [made(n, 100, 100) for n in range(1, 7)] + [made(7, 900, 100, "others were loud")]
    facts = paired_facts(result(rounds, Outcome.PASSED, throughput_ratio=1.02))
    assert facts[0] == f"Live: m/t/prod, engine {BASELINE.engine.short}, release m/t:3."
    assert any(
        text.startswith("Rounds: 6 count, 1 were dropped; a round does not") for text in facts
    )
    assert "Round 7 was dropped: others were loud." in facts
    assert "Tokens per second: 1.020 × live; this decides nothing." in facts


def test_many_dropped_rounds_are_cut_short():
    facts = paired_facts(
        result([made(n, 1, 1, "loud") for n in range(1, 21)], Outcome.INCONCLUSIVE)
    )
    assert sum("was dropped: loud" in text for text in facts) == 12
    assert "And 8 more: see report.json." in facts


@pytest.mark.parametrize("outcome", [Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED])
def test_a_settled_comparison_needs_no_advice(outcome):
    assert advice(result([made(n, 100, 100) for n in range(1, 7)], outcome), 6) is None


def test_an_open_comparison_says_how_many_rounds_to_allow():
    rounds = [made(n, 100 * (1.3 if n % 2 else 0.8), 100) for n in range(1, 9)]
    noisy = result(rounds, Outcome.INCONCLUSIVE)
    most = max(one.more_rounds for one in noisy.comparisons if one.more_rounds)
    assert f"`max_rounds: {8 + most}`" in advice(noisy, 8)
    # So many are allowed already, or more than may be: more of them is no advice.
    assert "max_rounds" not in advice(noisy, 8 + most)


def test_a_comparison_whose_rounds_were_disturbed_asks_for_a_quiet_machine_and_no_more_rounds():
    disturbed = result([made(n, 1, 1, "loud") for n in range(1, 7)], Outcome.INCONCLUSIVE)
    said = advice(disturbed, 6)
    assert "on a quiet machine: 6 of 6 rounds were dropped" in said
    assert "max_rounds" not in said


def test_no_baseline_is_told_as_nobody():
    nobody = PairedResult(
        baseline=Baseline(named="m/t/prod", engine=None, why="nothing is live on m/t/prod"),
        outcome=Outcome.SKIPPED,
        reason="no baseline: nothing is live on m/t/prod",
    )
    assert paired_facts(nobody) == ["Live: nobody (nothing is live on m/t/prod)."]
