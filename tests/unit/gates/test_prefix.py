"""Blocks that prompts begin with: which cases, how much of the text, and what starts cold."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from engine_pipeline.gates.differences import Live
from engine_pipeline.gates.html.document import to_html
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.prefix import PrefixBlock, PrefixFile, cold_blocks, measure_prefixes
from engine_pipeline.gates.suite_file import load_suite
from engine_registry.digest import Digest
from tests.unit.gates import report_samples as samples
from tests.unit.gates.test_golden import suite
from tests.unit.gates.test_suite import FACTS_YAML, HEAD_YAML, write

TOOL = {"type": "function", "function": {"name": "time"}}
SYSTEM = "You are brief."


def block(name: str = "desk", **parts: Any) -> PrefixBlock:
    return PrefixBlock.model_validate({"id": name, **parts})


def case(name: str, *messages: tuple[str, str], **changes: Any) -> dict[str, Any]:
    return {
        "id": name,
        "tags": ["t"],
        "messages": [{"role": role, "content": text} for role, text in messages],
        "checks": [{"kind": "not-degenerate"}],
        **changes,
    }


CASES = suite(
    case("plain", ("system", SYSTEM), ("user", "Why is it?")),
    case("documents", ("system", SYSTEM), ("user", "Documents:\nThe sky. Why?")),
    case("tools", ("system", SYSTEM), ("user", "Time?"), tools=[TOOL]),
    case("none", ("user", SYSTEM)),
    case("raw", messages=[], prompt=SYSTEM),
).cases


@pytest.mark.parametrize(
    ("parts", "begun"),
    [
        ({"system": SYSTEM}, {"plain", "documents"}),
        ({"system": SYSTEM, "opening": "Documents:\n"}, {"documents"}),
        ({"system": SYSTEM, "tools": [TOOL]}, {"tools"}),
        ({"system": "You are brief"}, set()),
        ({"opening": "You"}, {"none"}),
    ],
)
def test_a_block_begins_a_prompt_with_its_very_words_or_not_at_all(parts, begun):
    assert {one.id for one in CASES if block(**parts).begins(one)} == begun


def test_coverage_counts_each_prompt_once_under_its_longest_block():
    short, long = block(system=SYSTEM), block("rag", system=SYSTEM, opening="Documents:\n")
    found = measure_prefixes([short, long], CASES[:2])
    assert found is not None
    assert [(one.id, one.cases) for one in found.blocks] == [("desk", 1), ("rag", 1)]
    covered = len(SYSTEM) * 2 + len("Documents:\n")
    total = sum(len(m.content) for one in CASES[:2] for m in one.messages)
    assert found.share == round(covered / total, 4)
    assert found.words.startswith("2 blocks begin 2 of 2 prompts and make ")


def test_a_suite_without_blocks_says_nothing_of_them():
    assert measure_prefixes([], CASES) is None
    assert "prefix blocks" not in to_markdown(samples.report())


def test_a_letter_makes_another_block_and_a_name_does_not():
    assert block(system=SYSTEM).digest == block("other", system=SYSTEM).digest
    assert block(system=SYSTEM).digest != block(system=SYSTEM + " ").digest
    now = measure_prefixes([block(system=SYSTEM), block("new", opening="x")], CASES)
    live = measure_prefixes([block("renamed", system=SYSTEM)], CASES)
    assert cold_blocks(now, live) == ("new",)
    assert cold_blocks(now, now) == ()
    assert cold_blocks(now, None) == ()


def test_the_page_names_blocks_and_what_starts_cold():
    now = samples.report(prefixes=measure_prefixes([block(system=SYSTEM)], CASES))
    before = samples.report(
        engine=b"live", prefixes=measure_prefixes([block(system="Another.")], CASES)
    )
    beside = Live(named="prod", attached=Digest.of(b"x"), report=before)
    page = to_html(now, beside)
    assert "1 block begins 2 of 5 prompts" in page
    assert "Starts cold" in page
    assert "Starts cold" not in to_html(now, Live(named="p", attached=Digest.of(b"x"), report=now))


@pytest.mark.parametrize(
    "blocks",
    [
        [{"id": "empty"}],
        [{"id": "a", "system": "x"}, {"id": "a", "system": "y"}],
        [{"id": "a", "tools": [{"name": "f"}]}],
        [],
    ],
)
def test_blocks_that_say_nothing_or_share_a_name_are_refused(blocks):
    with pytest.raises(ValidationError):
        PrefixFile.model_validate({"schema_version": 1, "prefixes": blocks})


def test_the_file_beside_the_suite_is_in_its_digest_and_its_absence_is_not(tmp_path):
    root = write(tmp_path, suite=f"{HEAD_YAML}cases: [facts.yaml]\n", facts=FACTS_YAML)
    bare = load_suite(root, "demo")
    path = root / "demo" / "prefixes.yaml"
    path.write_text("schema_version: 1\nprefixes: [{id: desk, system: You are brief.}]\n")
    named = load_suite(root, "demo")
    assert named.prefixes == (block(system=SYSTEM),)
    assert named.digest != bare.digest
    assert named.model_copy(update={"prefixes": ()}).digest == bare.digest
