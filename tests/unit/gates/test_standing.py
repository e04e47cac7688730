"""Flaky cases are measured and named; quarantine has an owner and an end; tags have weights."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from pydantic import ValidationError

from engine_pipeline.gates.judge import judge_quality, mean_score, tag_scores
from engine_pipeline.gates.junit import to_junit
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired_result import Baseline, PairedResult
from engine_pipeline.gates.parity_result import Parent, ParityResult
from engine_pipeline.gates.policy import GatePolicy, QualityBars
from engine_pipeline.gates.report import Finding
from engine_pipeline.gates.standing import quarantines_over
from engine_pipeline.gates.suite import Case, Quarantine, Suite
from engine_registry.digest import Digest
from tests.unit.gates import report_samples as samples
from tests.unit.gates.test_golden import ask, case, suite
from tests.unit.gates.test_judge import case as result

P, F, E = Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED
HELD = Quarantine(owner="Ada", until=date(2026, 12, 31), reason="trips on dates")


def findings(*cases: Any, **bars: Any) -> dict[str, Finding]:
    return {
        f.name: f
        for f in judge_quality(cases, QualityBars.model_validate({"min_score": 0.9, **bars}))
    }


def test_a_flaky_case_is_measured_and_named_and_counts_as_it_passed():
    found = findings(result(P, F, P), result(P, name="b"))
    assert found["flaky cases"].outcome is Outcome.SKIPPED
    assert found["flaky cases"].reason == "1 case passed and failed: a passed 2 of 3 times"
    assert found["score"].reason.startswith("0.833")


@pytest.mark.parametrize("attempts", [(P, P), (F, F), (P, E), (F, E)])
def test_a_case_that_only_could_not_be_judged_now_and_then_is_not_flaky(attempts):
    assert "flaky cases" not in findings(result(*attempts))


def test_a_case_in_quarantine_is_told_and_does_not_count():
    held = result(F, name="held", must=True, quarantine=HELD, counts=False)
    found = findings(held, result(P, name="b"), min_tag_score={"facts": 1.0})
    assert found["score"].outcome is P
    assert found["score of facts"].outcome is P
    assert "must-pass cases" not in found
    assert found["quarantine"].outcome is Outcome.SKIPPED
    assert found["quarantine"].reason == (
        "1 case asked and shown, not counted: held, failed this time, until 2026-12-31 "
        "(Ada: trips on dates)"
    )


def test_a_suite_that_is_all_in_quarantine_proves_nothing():
    found = findings(result(P, quarantine=HELD, counts=False), min_tag_score={"facts": 0.5})
    assert found["score"].outcome is E
    assert found["score of facts"].outcome is E


def test_a_quarantine_that_is_over_counts_again_and_is_told():
    found = findings(result(F, quarantine=HELD, counts=True))
    assert found["score"].outcome is F
    assert found["quarantine over"].reason == (
        "1 case counted again: mend or renew with a reason: a, failed, since 2026-12-31 (Ada)"
    )


@pytest.mark.parametrize(
    ("today", "counts"),
    [(date(2026, 12, 31), False), (date(2027, 1, 1), True), (None, False)],
)
def test_a_quarantine_holds_up_to_and_with_its_day(today, counts, monkeypatch):
    held = suite(case("a", quarantine=HELD.model_dump(mode="json")), case("b"))
    import tests.unit.gates.test_golden as world

    real = world.ask_suite
    monkeypatch.setattr(world, "ask_suite", lambda *a, **k: real(*a, **k, today=today))
    results, _, _ = ask(held, answer="It is Paris.")
    assert [one.counts for one in results] == [counts, True]
    assert results[0].attempts, "it is asked all the same"


def test_a_quarantine_without_owner_day_or_reason_is_refused():
    whole = HELD.model_dump(mode="json")
    for missing in whole:
        rest = {name: value for name, value in whole.items() if name != missing}
        with pytest.raises(ValidationError):
            Case.model_validate(case("a", quarantine=rest))


def test_a_tag_with_weight_counts_more_and_the_reason_says_so():
    good = result(P, name="b", tags=("facts", "json"))
    bad = result(F)
    assert mean_score([bad, good]) == 0.5
    assert mean_score([bad, good], {"json": 3.0, "facts": 1.0}) == 0.75
    found = findings(bad, good, min_score=0.75, tag_weights={"json": 3.0})
    assert found["score"].outcome is P
    assert found["score"].reason.endswith("(1 of 2 cases passed; weights: json 3)")


def test_open_attempts_are_weighed_like_any_other():
    open_one = result(E, tags=("json",))
    found = findings(open_one, result(P, name="b"), min_score=0.3, tag_weights={"json": 3.0})
    assert found["score"].outcome is E
    found = findings(open_one, result(P, name="b"), min_score=0.2, tag_weights={"json": 3.0})
    assert found["score"].outcome is P


def test_weights_and_quarantines_are_in_the_digests_and_their_absence_is_not():
    bars = {"suite": "demo", "quality": {"min_score": 0.9}}
    weighed = {"suite": "demo", "quality": {"min_score": 0.9, "tag_weights": {"a": 2.0}}}
    assert GatePolicy.model_validate(bars).digest != GatePolicy.model_validate(weighed).digest
    plain, held = suite(case("a")), suite(case("a", quarantine=HELD.model_dump(mode="json")))
    assert isinstance(plain, Suite)
    assert plain.digest != held.digest
    assert str(plain.digest) == (
        "sha256:32741c4a78ff559f44a3d881abf52b8da5bbad9aa048f4b44e2d7d06a71f9e33"
    )


def test_tags_are_scored_over_what_counts():
    held = result(F, name="held", quarantine=HELD, counts=False)
    [score] = tag_scores([held, result(P)], QualityBars(min_score=0.5))
    assert (score.cases, score.passed, score.score) == (1, 1, 1.0)


def test_reports_show_what_is_in_quarantine_and_fail_no_build_over_it():
    held = samples.case("held", samples.attempt("x", F, "want y"))
    held = held.model_copy(update={"quarantine": HELD, "counts": False})
    flaky = samples.case("flaky", samples.attempt("x"), samples.attempt("z", F, "want y"))
    report = samples.report(cases=(held, flaky))
    text = to_markdown(report)
    assert "in quarantine: does not count" in text
    assert "## Flaky cases\n\n- flaky passed 1 of 2 times" in text
    junit = to_junit([report])
    assert '<skipped message="in quarantine, failed: contains: want y" />' in junit
    assert 'failures="1"' in junit


def test_a_suite_names_its_quarantines_that_are_over():
    held = suite(case("a", quarantine=HELD.model_dump(mode="json")), case("b"))
    assert quarantines_over(held, date(2026, 12, 31)) == []
    assert quarantines_over(held, date(2027, 1, 1)) == [
        "case a: its quarantine ended on 2026-12-31 (Ada: trips on dates); it counts again"
    ]


def test_a_report_tells_how_long_it_may_leave_its_cases_out():
    later = HELD.model_copy(update={"until": date(2027, 1, 31)})
    passed = samples.case("a", samples.attempt("x"))
    held = [
        passed.model_copy(update={"id": f"h{n}", "quarantine": quarantine, "counts": counts})
        for n, (quarantine, counts) in enumerate(
            [
                (later, False),
                (HELD, False),
                (HELD.model_copy(update={"until": date(2020, 1, 1)}), True),
            ]
        )
    ]
    assert samples.report(cases=(passed, *held)).quarantine_ends == date(2026, 12, 31)
    assert samples.report(cases=(passed,)).quarantine_ends is None


def test_a_report_names_the_channels_that_it_found_empty():
    live = Baseline(named="m/t/prod", engine=Digest.of(b"live"))
    none = Baseline(named="m/t/prod", engine=None)
    skipped = {"outcome": Outcome.SKIPPED, "reason": "x"}
    alone = ParityResult(parent=Parent(named="m/t/canary"), **skipped)
    # A parent that cannot be found is trouble, and no empty channel.
    missing = ParityResult(parent=Parent(named="m/t-fp16"), outcome=Outcome.ERRORED, reason="x")
    report = samples.report(paired=PairedResult(baseline=none, **skipped), parity=(alone, missing))
    assert report.no_baseline == ("m/t/prod", "m/t/canary")
    assert samples.report(paired=PairedResult(baseline=live, **skipped)).no_baseline == ()
    assert samples.report().no_baseline == ()
