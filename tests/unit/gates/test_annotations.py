"""GitHub annotations: one line each, escaped, the most important first; a summary that fits."""

from __future__ import annotations

import re

from engine_pipeline.gates.annotations import (
    SHOWN_OF_A_KIND,
    SUMMARY_LIMIT_BYTES,
    summary,
    workflow_commands,
)
from engine_pipeline.gates.outcome import Outcome
from tests.unit.gates.report_samples import MIXED, NASTY, attempt, case, finding, report

COMMAND = re.compile(r"::(error|warning) title=([^:,\n]*)::([^\r\n]*)")


def test_failures_are_errors_and_open_questions_warnings():
    assert workflow_commands([MIXED]) == [
        "::error title=smoke%3A Score%2C all cases failed"
        "::0.500, want at least 0.900 (1 of 3 cases passed)",
        "::error title=smoke%3A Cases that must pass failed::capital of 1 failed, want all passed",
        "::error title=smoke%3A case capital failed::contains: want 'Paris' in it",
        "::error title=smoke%3A case sum failed::contains: want '4' in it, got '5'",
        "::warning title=smoke%3A Time to first token%2C p95 too little evidence"
        "::95 %25 bounds lie on both sides of the bar",
        "::warning title=smoke%3A Time per further token%2C p95 could not judge"
        "::not measured: the server sends no usage",
        "::warning title=smoke%3A case lost could not judge::http-503: HTTP 503: loading",
    ]


def test_a_passed_gate_annotates_nothing():
    assert workflow_commands([report()]) == []


def test_a_hostile_answer_cannot_add_a_command():
    lines = workflow_commands([NASTY])
    assert len(lines) == 6
    for line in lines:
        assert COMMAND.fullmatch(line)
        assert "\n" not in line
        assert "\x1b" not in line
    assert "%0A" not in "".join(lines)


def test_github_shows_ten_of_a_kind_so_the_last_says_how_many_are_left():
    many = tuple(case(f"c{n}", attempt("x", Outcome.FAILED, "want y")) for n in range(40))
    lines = workflow_commands([report(finding("score", Outcome.FAILED, "0.0"), cases=many)])
    assert len(lines) == SHOWN_OF_A_KIND
    assert lines[-1].startswith("::error title=32 more::")


def test_ten_are_all_shown():
    many = tuple(case(f"c{n}", attempt("x", Outcome.FAILED, "want y")) for n in range(9))
    lines = workflow_commands([report(finding("score", Outcome.FAILED, "0.0"), cases=many)])
    assert len(lines) == 10
    assert "more" not in lines[-1]


def test_a_summary_that_fits_is_left_alone():
    assert summary("# passed\n", 0) == "# passed\n"
    whole = "x" * 99 + "\n"
    assert summary(whole, SUMMARY_LIMIT_BYTES - 100) == whole


def test_a_summary_that_does_not_fit_ends_with_a_whole_line_and_says_so():
    text = "# failed\n" + "ünïcödé line\n" * 200_000
    cut = summary(text, 1000)
    assert 1000 + len(cut.encode()) <= SUMMARY_LIMIT_BYTES
    kept, said = cut.split("\nCut here: ")
    assert text.startswith(kept)
    assert kept.endswith(" line\n")
    assert said == "a job summary holds 1 MiB. The whole report is in the registry.\n"


def test_a_summary_that_is_full_gets_nothing():
    assert summary("# failed\n", SUMMARY_LIMIT_BYTES) == ""
