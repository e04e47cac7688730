"""A report that had nobody to compare with, or left a case out, and what has happened since."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest

from engine_registry.digest import Digest
from tests.unit.promote.test_rules import NOW, broken, candidate, decide, report

PROD = "m/cpu-x86-64-v3/prod"
OTHER = Digest.of(b"another engine")
MINE = candidate().release.content.engine


def test_a_report_without_a_baseline_counts_while_nothing_is_live_there():
    alone = replace(report(), no_baseline=(PROD,))
    assert not broken(decide(evidence=(alone,), live_on={}))
    assert not broken(decide(evidence=(alone,), live_on={"m/cpu-x86-64-v3/staging": OTHER}))


def test_a_report_without_a_baseline_is_no_evidence_once_another_engine_is_live():
    alone = replace(report(), no_baseline=(PROD,))
    decision = decide(evidence=(alone,), live_on={PROD: OTHER})
    assert broken(decision) == ["gates"]
    [finding] = decision.broken
    assert finding.says == (
        f"gate core: report {alone.report.short} passed without a baseline, nothing was live on "
        f"{PROD}; engine {OTHER.short} is live there now and was not compared with"
    )
    assert finding.hint == "run `enginectl gate m/cpu-x86-64-v3:1 --gate core`"


def test_an_engine_that_is_itself_live_needs_no_baseline():
    alone = replace(report(), no_baseline=(PROD,))
    assert not broken(decide(evidence=(alone,), live_on={PROD: MINE}))


def test_a_newer_report_with_a_baseline_is_the_one_that_counts():
    alone = replace(report(hours_ago=2), no_baseline=(PROD,))
    assert not broken(decide(evidence=(alone, report()), live_on={PROD: OTHER}))
    newest_alone = replace(report(hours_ago=0.5), no_baseline=(PROD,))
    assert broken(decide(evidence=(newest_alone, report()), live_on={PROD: OTHER}))


def test_each_channel_of_a_report_is_looked_at():
    alone = replace(report(), no_baseline=("m/cpu-x86-64-v3/canary", PROD))
    assert broken(decide(evidence=(alone,), live_on={PROD: OTHER}))


@pytest.mark.parametrize(("days", "counts"), [(1, True), (0, True), (-1, False)])
def test_a_report_counts_up_to_the_last_day_of_the_quarantines_it_left_out(days, counts):
    ends = (NOW + timedelta(days=days)).date()
    held = replace(report(), quarantine_ends=ends)
    decision = decide(evidence=(held,))
    assert bool(broken(decision)) is not counts
    if not counts:
        assert f"that ended on {ends}, and they count again" in decision.broken[0].says


def test_a_failed_report_is_refused_for_that_and_not_for_its_baseline():
    from engine_pipeline.gates.outcome import Outcome

    alone = replace(report(Outcome.FAILED), no_baseline=(PROD,), quarantine_ends=date(2020, 1, 1))
    [finding] = decide(evidence=(alone,), live_on={PROD: OTHER}).broken
    assert "failed, want passed" in finding.says
