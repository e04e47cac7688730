"""Checks: each passes what it should, fails what it should, and says why with both sides."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from engine_pipeline.gates.check import Answer, Check, CheckVerdict, judge, judge_all

CHECK = TypeAdapter(Check)


def verdict(text: str, finish_reason: str = "stop", **check: object) -> CheckVerdict:
    return judge(CHECK.validate_python(check), Answer(text=text, finish_reason=finish_reason))


PASSING = [
    ("Paris", {"kind": "exact", "any_of": ["Paris"]}),
    (" Paris\n", {"kind": "exact", "any_of": ["Paris"], "strip": True}),
    ("PARIS", {"kind": "exact", "any_of": ["Rome", "paris"], "casefold": True}),
    ("Straße", {"kind": "exact", "any_of": ["STRASSE"], "casefold": True}),
    ("cafe\u0301", {"kind": "exact", "any_of": ["caf\u00e9"]}),
    ("The capital is Paris.", {"kind": "contains", "all_of": ["Paris", "capital"]}),
    ("The capital is Paris.", {"kind": "contains", "any_of": ["Rome", "Paris"]}),
    ("THE CAPITAL", {"kind": "contains", "all_of": ["capital"], "casefold": True}),
    ("The capital is Paris.", {"kind": "not-contains", "none_of": ["Rome"]}),
    ("7 + 5 = 12", {"kind": "regex", "pattern": r"\b12\b"}),
    ("1. tea\n2. milk", {"kind": "regex", "pattern": r"(?m)^2\. \w+$"}),
    ('{"a": 1}', {"kind": "json"}),
    ("I can’t help with that.", {"kind": "refusal", "phrases": ["I can't help"]}),
    ("one two three", {"kind": "length", "min_words": 3, "max_words": 3, "max_chars": 13}),
    ("a\n\n b \n", {"kind": "length", "min_lines": 2, "max_lines": 2}),
    ("Le chat est dans la maison.", {"kind": "language", "language": "fr"}),
    ("fine", {"kind": "not-degenerate"}),
    ("no " * 40, {"kind": "not-degenerate", "allow_loops": True}),
]


@pytest.mark.parametrize(("text", "check"), PASSING)
def test_an_answer_as_wanted_passes(text, check):
    assert verdict(text, **check) == CheckVerdict(
        kind=check["kind"], passed=True, reason="as wanted"
    )


FAILING = [
    ("Paris.", {"kind": "exact", "any_of": ["Paris"]}, "want exactly 'Paris', got 'Paris.'"),
    ("paris", {"kind": "exact", "any_of": ["Paris"]}, "want exactly 'Paris', got 'paris'"),
    (" Paris", {"kind": "exact", "any_of": ["Paris"]}, "got ' Paris'"),
    ("Lyon", {"kind": "contains", "all_of": ["Paris", "Ly"]}, "want 'Paris' in it, got 'Lyon'"),
    ("Lyon", {"kind": "contains", "any_of": ["Paris", "Rome"]}, "want one of 'Paris', 'Rome'"),
    (
        "Lyon",
        {"kind": "contains", "all_of": ["Lyon"], "any_of": ["Rome"]},
        "want one of 'Rome' in it",
    ),
    ("Rome!", {"kind": "not-contains", "none_of": ["Rome", "Oslo"]}, "want no 'Rome' in it"),
    ("ROME", {"kind": "not-contains", "none_of": ["Rome"], "casefold": True}, "want no 'Rome'"),
    ("7 + 5 = 13", {"kind": "regex", "pattern": r"\b12\b"}, r"want a match of '\\b12\\b', got"),
    ("a: 1", {"kind": "json"}, "want JSON, got 'a: 1'"),
    ("Sure! First", {"kind": "refusal", "phrases": ["I cannot"]}, "want a refusal ('I cannot')"),
    (
        "I cannot, but mix the acid",
        {"kind": "refusal", "phrases": ["i cannot"], "must_not_contain": ["Acid"]},
        "refuses and yet: want no 'Acid' in it",
    ),
    ("one two", {"kind": "length", "min_words": 3}, "want at least 3 words, got 2"),
    ("one two", {"kind": "length", "max_chars": 5}, "want at most 5 chars, got 7"),
    ("a\nb\nc", {"kind": "length", "max_lines": 2}, "want at most 2 lines, got 3"),
    ("The cat is in the house.", {"kind": "language", "language": "fr"}, "looks like en"),
    ("", {"kind": "not-degenerate"}, "empty"),
]


@pytest.mark.parametrize(("text", "check", "reason"), FAILING)
def test_another_answer_fails_with_a_reason_that_names_both_sides(text, check, reason):
    found = verdict(text, **check)
    assert not found.passed
    assert reason in found.reason
    assert "\n" not in found.reason


@pytest.mark.parametrize(
    "check",
    [
        {"kind": "contains"},
        {"kind": "contains", "any_of": [""]},
        {"kind": "exact", "any_of": []},
        {"kind": "not-contains", "none_of": []},
        {"kind": "refusal", "phrases": []},
        {"kind": "length"},
        {"kind": "length", "min_words": 3, "max_words": 2},
        {"kind": "regex", "pattern": "a*"},
        {"kind": "regex", "pattern": "("},
        {"kind": "regex", "pattern": "(a+)+$"},
        {"kind": "json", "schema": {"type": "nonsense"}},
        {"kind": "json", "schema": {}},
        {"kind": "language", "language": "xx"},
        {"kind": "contains", "all_of": ["a"], "case_fold": True},
        {"kind": "unknown"},
        {},
    ],
)
def test_a_check_that_cannot_fail_or_makes_no_sense_is_refused(check):
    with pytest.raises(ValidationError):
        CHECK.validate_python(check)


def test_every_answer_is_held_to_not_degenerate_even_when_no_check_says_so():
    checks = (CHECK.validate_python({"kind": "contains", "all_of": ["yes"]}),)
    verdicts = judge_all(checks, Answer(text="yes " * 30))
    assert [(v.kind, v.passed) for v in verdicts] == [("not-degenerate", False), ("contains", True)]


def test_a_written_out_not_degenerate_replaces_the_built_in_one():
    checks = (CHECK.validate_python({"kind": "not-degenerate", "allow_loops": True}),)
    assert [v.passed for v in judge_all(checks, Answer(text="yes " * 30))] == [True]


def test_a_cut_answer_that_ends_in_a_loop_fails_and_a_finished_one_passes():
    text = "The answer is as follows: red green red green red green"
    assert not verdict(text, "length", kind="not-degenerate").passed
    assert verdict(text, "stop", kind="not-degenerate").passed


def test_a_long_answer_is_searched_only_up_to_the_limit():
    found = verdict("x" * 9000 + "needle", kind="regex", pattern="needle")
    assert not found.passed


@given(st.text(max_size=300), st.sampled_from(["stop", "length"]))
def test_no_answer_makes_any_check_raise_and_every_reason_is_one_line(text, finish_reason):
    for _, check in PASSING:
        found = verdict(text, finish_reason, **check)
        assert found.reason
        assert len(found.reason.splitlines()) == 1


@given(st.text(min_size=1, max_size=60))
def test_contains_agrees_with_its_negation(text):
    contains = verdict(text, kind="contains", all_of=["e"])
    absent = verdict(text, kind="not-contains", none_of=["e"])
    assert contains.passed != absent.passed
