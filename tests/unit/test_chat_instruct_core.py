"""The suite that the GPU specs name: what it accepts, what it refuses, and that specs can use it.

No engine of these models ran here. The answers below are written in the style of such models: the
short form, and the long form with Markdown around it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_pipeline.gates.check import Answer, judge_all
from engine_pipeline.gates.policy import check_fits
from engine_pipeline.gates.suite_file import load_suite
from engine_pipeline.promote.policy import Policies
from engine_pipeline.spec.load import load_spec
from engine_pipeline.yaml_file import validated
from engine_registry.refs import ProductRef

ROOT = Path(__file__).resolve().parents[2]
SUITE = load_suite(ROOT / "golden_prompts", "chat-instruct-core")
POLICIES = validated(ROOT / "channels.yaml", Policies)
SPECS = sorted(
    path for path in (ROOT / "build_specs").glob("*/*.yaml") if "smollm2" not in path.parent.name
)
CODE = "def add(a, b):\n    return a + b"
TYPED = (
    "Here is the function:\n\n```python\ndef add(a: float, b: float) -> float:\n"
    '    """Return the sum of a and b."""\n    return a + b\n```\n\nCall it with `add(2, 3)`.'
)
ANSWERS = {
    "capital-of-japan": ("Tokyo.", "The capital of Japan is **Tokyo**, its largest city."),
    "symbol-of-gold": ("Au", "The chemical symbol of gold is **Au**, from the Latin aurum."),
    "author-of-hamlet": ("William Shakespeare.", "Hamlet was written by William Shakespeare."),
    "seven-times-eight": ("56", "7 times 8 is **56**."),
    "apples-left": ("21", "24 - 9 = 15 apples, then 15 + 6 = 21. There are **21 apples** left."),
    "night-in-german": (
        "In der Nacht ist es dunkel, weil die Sonne die andere Seite der Erde bescheint.",
        "Nachts ist unsere Seite der Erde von der Sonne abgewandt. Darum kommt das Licht der "
        "Sonne nicht zu uns, und es ist dunkel.",
    ),
    "water-in-french": ("L'eau est froide.", 'The translation is: **"L\'eau est froide."**'),
    "one-word-yes": ("yes", "Yes."),
    "three-colours": ("Red\nOrange\nYellow", "Green\nBlue\nViolet"),
    "steps-of-tea": (
        "1. Boil water.\n2. Put a tea bag into a cup.\n3. Pour the water in.\n4. Wait and drink.",
        "Here is how:\n\n1. **Boil** fresh water\n2. **Warm** the cup\n3. **Steep** the tea",
    ),
    "copy-a-code": ("QX-4471-ZB", "`QX-4471-ZB`"),
    "copy-a-sentence": (
        "The quick brown fox jumps over the lazy dog.",
        'Here it is: "The quick brown fox jumps over the lazy dog."',
    ),
    "no-access-to-my-mail": (
        "I can't read your e-mail.",
        "I'm sorry, but I don't have access to your inbox. Open your mail program to see it.",
    ),
    "json-of-a-person": (
        '{"name": "Ada Lovelace", "born": 1815}',
        '```json\n{\n  "name": "Ada Lovelace",\n  "born": 1815\n}\n```',
    ),
    "json-of-a-list": ("[2, 4, 6]", "```json\n[2, 4, 6]\n```"),
    "code-that-adds": (CODE, TYPED),
    "date-of-the-meeting": ("Oslo", "The next meeting will be in **Oslo**."),
    "price-in-an-order": ("210 euro", "The desk costs **€210**."),
    "name-from-before": (
        "Your name is Ingrid and you live in Bergen.",
        "You told me that your name is **Ingrid** and that you live in **Bergen**, Norway.",
    ),
    "word-in-a-long-text": ("marzipan", 'The password for the gate of aisle 7 is "marzipan".'),
}


def accepts(case, text: str) -> bool:
    verdicts = judge_all(case.checks, Answer(text=text, finish_reason="stop"))
    return all(verdict.passed for verdict in verdicts)


def test_every_case_has_answers_to_be_held_against():
    assert [case.id for case in SUITE.cases] == list(ANSWERS)


@pytest.mark.parametrize("case", SUITE.cases, ids=lambda case: case.id)
def test_a_case_accepts_the_short_and_the_long_form_of_a_right_answer(case):
    assert [text for text in ANSWERS[case.id] if not accepts(case, text)] == []


@pytest.mark.parametrize("case", SUITE.cases, ids=lambda case: case.id)
def test_a_case_refuses_the_answers_to_all_others(case):
    others = [text for name, texts in ANSWERS.items() if name != case.id for text in texts]
    assert [text for text in others if accepts(case, text)] == []


@pytest.mark.parametrize("case", SUITE.cases, ids=lambda case: case.id)
@pytest.mark.parametrize(
    "garbage",
    [
        "",
        " ",
        "the the the the the the the the the the the the",
        "\ufffd\ufffd\x00",
        "!!!!!!!!!!!!",
    ],
)
def test_a_case_refuses_garbage(case, garbage):
    assert not accepts(case, garbage)


@pytest.mark.parametrize(
    ("case", "wrong"),
    [
        ("seven-times-eight", "7 times 8 is 54, or 0.56 hundreds."),
        ("apples-left", "There are 21.5 apples, about 121."),
        ("night-in-german", "It is dark because the sun is on the other side of the earth."),
        ("json-of-a-person", '{"name": "Ada Lovelace", "born": "1815"}'),
        ("json-of-a-list", "[2, 4, 6, 8]"),
        ("copy-a-code", "QX-4417-ZB"),
        ("one-word-yes", "yes, of course"),
        ("three-colours", "Red\nOrange\nBrown"),
    ],
)
def test_an_answer_that_is_nearly_right_is_wrong(case, wrong):
    [found] = [c for c in SUITE.cases if c.id == case]
    assert not accepts(found, wrong)


def test_no_case_has_a_system_message_which_some_templates_refuse():
    assert {m.role for case in SUITE.cases for m in case.messages} <= {"user", "assistant"}


def test_cases_that_must_pass_are_few_and_over_several_themes():
    must = [case for case in SUITE.cases if case.must]
    assert len(must) == len({case.tags[0] for case in must}) == 6


@pytest.mark.parametrize("path", SPECS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_gpu_spec_names_the_suites_that_its_channels_ask_for(path):
    spec = load_spec(path)
    product = ProductRef(spec.model.name, spec.target.sku)
    channels = POLICIES.for_product(product).channels
    assert set(channels) == {"staging", "prod"}
    gates = {name for channel in channels.values() for name in channel.gates}
    assert {POLICIES.gate(name).suite for name in gates} == set(spec.suites)


def test_the_bars_fit_the_suite():
    check_fits(POLICIES.gate("chat-instruct-core"), SUITE)
