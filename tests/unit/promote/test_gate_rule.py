"""A report that had nobody to compare with, or left a case out, and what has happened since."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta

import pytest

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.promote.findings import deciding_reports
from engine_registry.digest import Digest
from engine_registry.errors import ExitCode
from tests.unit.promote.test_rules import NOW, WANTED, broken, candidate, decide, report

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
    alone = replace(report(Outcome.FAILED), no_baseline=(PROD,), quarantine_ends=date(2020, 1, 1))
    [finding] = decide(evidence=(alone,), live_on={PROD: OTHER}).broken
    assert "failed, want passed" in finding.says


def on(host: str, outcome: Outcome = Outcome.PASSED, *, ago: float, driver: str | None = None):
    made = report(outcome, hours_ago=ago)
    named = Digest.of(f"{host}{driver}{ago}".encode())
    return replace(made, host_class=host, driver=driver, report=named)


def test_a_pass_on_one_machine_hides_no_failure_on_another():
    failed, passed = on("epyc", Outcome.FAILED, ago=3), on("xeon", ago=1)
    [finding] = decide(evidence=(passed, failed)).broken
    assert finding.exit_code is ExitCode.REFUSED
    assert finding.says == (
        f"gate core: report {passed.report.short} passed on xeon, report {failed.report.short} "
        "failed on epyc; want none failed"
    )
    assert "judged_on of gate core" in finding.hint


def test_a_pass_under_one_driver_hides_no_failure_under_another():
    failed = on("h100", Outcome.FAILED, ago=3, driver="570.1")
    [finding] = decide(evidence=(failed, on("h100", ago=1, driver="590.1"))).broken
    assert "failed on h100, driver 570.1" in finding.says


def test_a_failure_is_answered_by_a_later_pass_on_the_same_machine():
    failed = on("h100", Outcome.FAILED, ago=3, driver="590.1")
    assert not broken(decide(evidence=(failed, on("h100", ago=1, driver="590.1"))))
    both = (failed, on("h100", ago=2, driver="590.1"), on("xeon", ago=1))
    assert not broken(decide(evidence=both))


@pytest.mark.parametrize("outcome", [Outcome.ERRORED, Outcome.INCONCLUSIVE])
def test_trouble_on_another_machine_says_nothing_of_the_engine_and_hides_no_failure(outcome):
    trouble, passed = on("epyc", outcome, ago=2), on("xeon", ago=1)
    assert not broken(decide(evidence=(trouble, passed)))
    hidden = on("epyc", Outcome.FAILED, ago=3)
    assert broken(decide(evidence=(hidden, trouble, passed)))


def test_a_report_that_does_not_say_its_driver_is_answered_by_any_later_one_of_its_host():
    silent = on("h100", Outcome.FAILED, ago=3)
    assert not broken(decide(evidence=(silent, on("h100", ago=1, driver="590.1"))))
    assert broken(decide(evidence=(silent, on("h200", ago=1, driver="590.1"))))


def test_reports_of_machines_that_do_not_count_are_not_asked_to_be_signed():
    replaced, passed = on("epyc", ago=3), on("epyc", ago=1)
    other = on("xeon", ago=2)
    reports = deciding_reports(("core",), {"core": WANTED}, (replaced, other, passed))
    assert reports == {"core": (passed.report, other.report)}
