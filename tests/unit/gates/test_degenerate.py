"""Degenerate answers: real failures are caught, honest answers are not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_pipeline.gates.degenerate import defect

HONEST = [
    "Paris",
    "42",
    "Yes.",
    "👍",
    "12",
    "ha ha ha",
    "no no no no no",
    "Buffalo buffalo Buffalo buffalo buffalo buffalo Buffalo buffalo",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20",
    "- red\n- green\n- blue\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n" + "-" * 60,
    '{"name": "Ann", "age": 31, "tags": ["a", "b", "a", "b"]}',
    "东京是日本的首都,人口很多。",
    "Row, row, row your boat, gently down the stream. Merrily, merrily, merrily, merrily.",
    "naïve café — “quotes”, tabs\tand\nlines \u200b",
    "The answer is <b>bold</b>, <s>struck</s> and `code`.",
    # 50 words of ordinary prose, with the repetition that prose has.
    "The fox went to the river and the river was wide. The fox could not swim, so the fox sat down "
    "by the river and waited. After a while a boat came down the river, and the man in the boat "
    "called to the fox. The fox jumped into the boat and the two of them went on.",
]


@pytest.mark.parametrize("text", HONEST)
@pytest.mark.parametrize("cut", [True, False])
def test_an_honest_answer_is_not_degenerate(text, cut):
    assert defect(text, cut=cut) is None


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("", "empty"),
        ("  \n\t ", "empty"),
        ("...", "empty"),
        ("!!!!!!!!!!!!!!!", "empty"),
        ("\x00\x01ok", "non-text"),
        ("abc��def", "non-text"),
        ("\ue000\ue001\ue002 glyphs", "non-text"),
        ("The answer is 4.<|im_end|>", "control token"),
        ("<|endoftext|>", "control token"),
        ("Fine.</s>", "control token"),
        ("the " * 12, "loop"),
        ("I am here. " * 6, "loop"),
        ("I am a robot and I like tea. " * 4, "loop"),
        ("aaaa" * 30, "loop"),
        ("东京" * 50, "loop"),
        ("/*" * 50 + "x", "loop"),
        (" ".join(f"{n}. the same thing again and again" for n in range(12)), "loop"),
    ],
)
def test_a_degenerate_answer_is_named_by_its_rule(text, rule):
    found = defect(text, cut=False)
    assert found is not None
    assert found.startswith(rule)


@pytest.mark.parametrize("unit", ["red green", "it is what it is and", " ".join("abcdefghij")])
def test_three_whole_units_at_the_end_of_a_cut_answer_are_a_loop(unit):
    three = "I think that " + f"{unit} " * 3
    assert defect(three, cut=True) is not None
    assert defect(three, cut=False) is None
    assert defect("I think that " + f"{unit} " * 2, cut=True) is None


def test_a_loop_is_found_in_the_middle_of_an_answer():
    text = "It began well. " + "and then " * 8 + "it went on to the end of the tale."
    assert "'and then' 8 times in a row" in (defect(text, cut=False) or "")


def test_one_stray_character_in_a_long_answer_is_forgiven():
    assert defect("A long and sound answer about nothing in particular.\ufffd", cut=False) is None


def test_loops_may_be_allowed_but_not_emptiness():
    assert defect("la " * 50, cut=True, loops=False) is None
    assert defect("", cut=False, loops=False) is not None


@given(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=12), st.integers(12, 30))
def test_any_unit_repeated_often_enough_is_degenerate(unit, times):
    assert defect(" ".join(unit * times), cut=False) is not None


@given(st.integers(1, 400))
def test_counting_is_never_a_loop(count):
    assert defect(" ".join(str(n) for n in range(count)), cut=True) is None


@given(st.text(max_size=400), st.booleans())
def test_the_verdict_is_a_bounded_line_or_none(text, cut):
    found = defect(text, cut=cut)
    assert found is None or (0 < len(found) < 300 and len(found.splitlines()) == 1)
