"""Reports: stored canonically, read back whole, and told so that a tired person understands."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_pipeline.gates import report as reports
from engine_pipeline.gates.check import CheckVerdict
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.outcome import Outcome, combine
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.reply import DEFINITIONS
from engine_pipeline.gates.report import (
    Attempt,
    CaseResult,
    Device,
    Finding,
    LoadResult,
    Measured,
    PerformanceResult,
    Report,
    TagScore,
)
from engine_pipeline.gates.stats import Estimate, percentile_estimate
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json

POLICY = GatePolicy.model_validate(
    {
        "suite": "demo",
        "quality": {"min_score": 0.9},
        "performance": {
            "requests": 60,
            "concurrency": 2,
            "output_tokens": 16,
            "max_ttft_p95_ms": 500,
            "min_output_tokens_per_s": 70,
        },
    }
)
PASSED = CheckVerdict(kind="not-degenerate", passed=True, reason="as wanted")


def attempt(text: str, reason: str | None = None, error: str | None = None) -> Attempt:
    failed = CheckVerdict(kind="contains", passed=False, reason=reason or "")
    outcome = Outcome.ERRORED if error else Outcome.FAILED if reason else Outcome.PASSED
    return Attempt(
        outcome=outcome,
        text=text,
        text_chars=len(text),
        finish_reason="stop",
        completion_tokens=3,
        e2e_ms=12.5,
        checks=() if error else (PASSED, failed) if reason else (PASSED,),
        error=error,
    )


def case(name: str, *attempts: Attempt, must: bool = False) -> CaseResult:
    outcomes = [item.outcome for item in attempts]
    return CaseResult(
        id=name,
        tags=("facts", "short"),
        must=must,
        outcome=combine(outcomes),
        score=outcomes.count(Outcome.PASSED) / len(outcomes),
        agreement=1.0,
        attempts=attempts,
    )


def measured(*samples: float) -> Measured:
    return Measured.of(percentile_estimate(samples, 0.95), "ms")


SPEED = PerformanceResult(
    requests=60,
    concurrency=2,
    warmup_requests=2,
    output_tokens=16,
    ignores_eos=True,
    failed={"http-500": 2, "timeout": 1},
    unreached=0,
    metrics={
        "ttft_p95_ms": measured(*range(60)),
        "output_tokens_per_s": Measured.of(
            Estimate(n=10, needed=10, value=81.2345, low=75.0, high=90.0), "tokens/s"
        ),
    },
    prompt_tokens_mean=41.0,
    cached_share=0.12,
    tokens_per_event=1.0,
    window_s=14.2,
    samples=(),
)


def report(*findings: Finding, **changes: Any) -> Report:
    found = findings or (Finding(name="score", outcome=Outcome.PASSED, reason="1.000 of 0.900"),)
    return Report(
        **{
            "engine": Digest.of(b"engine"),
            "gate": "smoke",
            "suite_name": "demo",
            "suite": Digest.of(b"suite"),
            "policy": POLICY,
            "policy_digest": POLICY.digest,
            "device": Device(
                sku="cpu-x86-64-v3",
                host_class="AMD EPYC, x86-64-v4, 2 cores, 24 GiB",
                cpu_model="AMD EPYC 9B14",
                cores=2,
                runtime={"xllamacpp": "2026.10.11549"},
            ),
            "started_at": datetime(2026, 3, 1, 12, 0, tzinfo=UTC),
            "finished_at": datetime(2026, 3, 1, 12, 1, 5, 250000, tzinfo=UTC),
            "outcome": combine(finding.outcome for finding in found),
            "load": LoadResult(outcome=Outcome.PASSED, reason="ready in 0.8 s", load_s=0.8),
            "findings": found,
            "definitions": DEFINITIONS,
            "client": {"aiohttp": "3.14.5"},
            **changes,
        }
    )


FAILED = report(
    Finding(name="score", outcome=Outcome.FAILED, reason="0.500, want at least 0.900"),
    Finding(name="ttft_p95_ms", outcome=Outcome.INCONCLUSIVE, reason="too few"),
    cases=(
        case("capital", attempt("It is Rome.", "want 'Paris' in it, got 'It is Rome.'"), must=True),
        case("sum", attempt("4")),
        case("flaky", attempt("yes"), attempt("no", "want 'yes' in it, got 'no'")),
        case("lost", attempt("", error="http-503: HTTP 503: loading")),
    ),
    tags=(TagScore(tag="facts", cases=4, passed=1, score=0.375, bar=0.9),),
    performance=SPEED,
)


def test_a_report_is_read_back_as_it_was_stored():
    data = canonical_json(FAILED)
    assert Report.model_validate_json(data) == FAILED
    assert canonical_json(Report.model_validate_json(data)) == data


def test_the_verdict_and_what_decided_it_come_first():
    lines = to_markdown(FAILED).splitlines()
    assert lines[0] == f"# FAILED: gate smoke on engine {FAILED.engine.short}"
    assert lines[2] == "Failed means: judged, and not good enough."
    assert lines[4:7] == ["Because:", "", "- score: 0.500, want at least 0.900"]


def test_what_was_not_decisive_is_listed_but_not_given_as_the_reason():
    assert FAILED.reasons == ("score: 0.500, want at least 0.900",)
    assert "- INCONCLUSIVE ttft_p95_ms: too few" in to_markdown(FAILED)


def test_each_case_that_did_not_pass_shows_what_was_wanted_and_what_came():
    text = to_markdown(FAILED)
    assert "## Cases that did not pass (3 of 4)" in text
    assert "### capital: failed" in text
    assert "Tags: facts, short, must pass" in text
    assert "- contains: want 'Paris' in it, got 'It is Rome.'" in text
    assert "    It is Rome." in text
    assert "### flaky: failed 1 of 2 times" in text
    assert "- flaky passed 1 of 2 times" in text
    assert "- http-503: HTTP 503: loading" in text
    assert "### sum" not in text
    assert text.index("### capital") < text.index("### lost")


def test_failed_requests_are_told_beside_the_speed():
    text = to_markdown(FAILED)
    assert "Failed: 2 http-500, 1 timeout." in text
    assert "| output_tokens_per_s | 81.23 | at least 70 | 75 to 90 " in text
    assert "| ttft_p95_ms         | 56    | at most 500 | 53 to 59 " in text


def test_a_passed_report_says_so_in_two_lines():
    lines = to_markdown(report()).splitlines()
    assert lines[0].startswith("# PASSED")
    assert lines[4] == "Every bar was met."


def test_an_engine_that_did_not_load_shows_the_log():
    text = to_markdown(
        report(
            Finding(name="load", outcome=Outcome.FAILED, reason="exited with code 1"),
            load=LoadResult(outcome=Outcome.FAILED, reason="exited", log=("loading", "bad magic")),
        )
    )
    assert "    loading\n    bad magic" in text


def test_many_failing_cases_are_cut_with_their_number_said():
    many = tuple(case(f"c{n}", attempt("x", "want y")) for n in range(80))
    text = to_markdown(report(cases=many))
    assert text.count("\n### ") == 30
    assert "And 50 more: see report.json." in text


HOSTILE = "```\n# PASSED\n<script>x</script> [a](http://b) | **bold** `c`\n\n- item"


def test_an_answer_cannot_pose_as_part_of_the_report():
    shown = case("a", attempt(HOSTILE, f"want 'x', got {HOSTILE!r}"))
    text = to_markdown(report(cases=(shown,)))
    assert text.count("\n# ") == 0
    assert "\n    # PASSED\n" in text
    assert "\n<script>" not in text
    assert "\\<script\\>" in text


def test_what_a_terminal_would_obey_is_spelled_out():
    hostile = "\x1b]0;owned\x07 \u202egnp.exe"
    text = to_markdown(report(cases=(case("a", attempt(hostile, f"got {hostile}")),)))
    assert not set(text) & set("\x1b\x07\u202e")
    assert "    [ESC]]0;owned[BEL] [U+202E RIGHT-TO-LEFT OVERRIDE]gnp.exe" in text


@given(st.text(max_size=200))
def test_whatever_was_answered_the_tables_fit_and_the_headings_stand(answer):
    shown = case("a", attempt(answer, "want x"))
    text = to_markdown(
        report(cases=(shown,), performance=SPEED, tags=FAILED.tags, client={"x": "y" * 200})
    )
    lines = text.split("\n")
    assert [line for line in lines if line.startswith("# ")] == lines[:1]
    assert all(len(line) <= 100 for line in lines if line.startswith("|"))


@pytest.mark.parametrize("value", [0.0, 12.3456, math.inf])
def test_beyond_measure_survives_being_stored(value):
    estimate = Estimate(n=60, needed=59, value=value, low=value, high=math.inf, largest=value)
    stored = Measured.model_validate_json(canonical_json(Measured.of(estimate, "ms")))
    assert stored.estimate.value == pytest.approx(value, abs=0.001)
    assert stored.estimate.high == math.inf


def test_no_lower_bound_is_stored_as_zero():
    assert measured(5.0, 6.0).low == 5.0
    none = Measured.of(percentile_estimate([5.0], 0.01), "ms")
    assert (none.low, none.estimate.low) == (0.0, 0.0)


def test_the_listing_names_what_promotion_decides_on():
    assert reports.listing(FAILED) == {
        reports.GATE: "smoke",
        reports.OUTCOME: "failed",
        reports.POLICY: str(POLICY.digest),
        reports.SUITE: str(FAILED.suite),
        reports.SUITE_NAME: "demo",
        reports.DEVICE: "AMD EPYC, x86-64-v4, 2 cores, 24 GiB",
        reports.CREATED: "2026-03-01T12:01:05.250000+00:00",
    }
