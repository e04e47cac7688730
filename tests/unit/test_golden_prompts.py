"""The shipped suite: covers its themes, accepts what was recorded, and refuses what was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_pipeline.gates.check import Answer, judge_all
from engine_pipeline.gates.prefix import measure_prefixes
from engine_pipeline.gates.suite_file import load_suite

ROOT = Path(__file__).resolve().parents[2]
SUITE = load_suite(ROOT / "golden_prompts", "smollm2-core")
THEMES = {
    "arithmetic",
    "copying",
    "extraction",
    "facts",
    "format",
    "instruction",
    "json",
    "lists",
    "long-input",
    "multi-turn",
    "non-english",
    "refusal",
}


def accepts(case, text: str) -> bool:
    verdicts = judge_all(case.checks, Answer(text=text, finish_reason="stop"))
    return all(verdict.passed for verdict in verdicts)


def test_there_are_enough_cases_and_every_theme_has_several():
    assert len(SUITE.cases) >= 40
    counts = {theme: sum(theme in case.tags for case in SUITE.cases) for theme in THEMES}
    assert min(counts.values()) >= 3, counts


@pytest.mark.parametrize("case", SUITE.cases, ids=lambda case: case.id)
def test_a_case_accepts_what_the_reference_answered(case):
    assert case.recorded is not None
    assert accepts(case, case.recorded.text)


@pytest.mark.parametrize("case", SUITE.cases, ids=lambda case: case.id)
def test_a_case_refuses_nearly_all_answers_to_other_cases(case):
    others = [c.recorded.text for c in SUITE.cases if c.id != case.id and c.recorded is not None]
    taken = [text for text in others if accepts(case, text)]
    # Two refusals may be worded alike, and the same number can answer two sums.
    allowed = 7 if "refusal" in case.tags else 2
    assert len(taken) <= allowed, taken


@pytest.mark.parametrize("case", SUITE.cases, ids=lambda case: case.id)
@pytest.mark.parametrize(
    "garbage", ["", " ", "the the the the the the the the the the", "\ufffd\ufffd\x00\x01", "."]
)
def test_a_case_refuses_garbage(case, garbage):
    assert not accepts(case, garbage)


def test_cases_that_must_pass_are_few_and_over_several_themes():
    must = [case for case in SUITE.cases if case.must]
    assert 5 <= len(must) <= 12
    assert len({case.tags[0] for case in must}) >= 5


def test_the_goldens_say_that_this_models_template_leaves_the_schemas_of_tools_out():
    """What a product with tools has to know of it; another template would show here at once."""
    assert SUITE.template is not None
    chats = {chat.id: chat for chat in SUITE.template.chats}
    assert chats["tools"].tools
    assert chats["tools"].messages == chats["no-tools"].messages
    assert (chats["tools"].prompt, chats["tools"].tokens) == (
        chats["no-tools"].prompt,
        chats["no-tools"].tokens,
    )
    assert "get_weather" not in (chats["tools"].prompt or "")
    assert "<|im_start|>tool\n" in (chats["tool-result"].prompt or "")


def test_every_prefix_block_that_is_named_begins_several_prompts():
    result = measure_prefixes(SUITE.prefixes, SUITE.cases)
    assert result is not None
    assert {block.id: block.cases for block in result.blocks} == {"repeat": 5, "json-only": 3}
    assert (result.covered, result.cases) == (8, len(SUITE.cases))
