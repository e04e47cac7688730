"""Suites: what is refused, what the digest covers, and how they are read from their directory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from engine_pipeline.gates.suite import Case, Recorded, Suite
from engine_pipeline.gates.suite_file import load_suite
from engine_registry.errors import InvalidInput, NotFound

HEAD: dict[str, Any] = {
    "schema_version": 1,
    "name": "demo",
    "owner": "gate-team",
    "description": "A few questions.",
    "model": "smollm2-135m-instruct",
    "reference": {"spec": "smollm2-135m-instruct/cpu-x86-64-v3-fp16", "note": "3 runs, 1 stream"},
    "sampling": {"temperature": 0.0, "top_p": 1.0, "seed": 7, "max_tokens": 32},
}


def case(**changes: Any) -> dict[str, Any]:
    return {
        "id": "capital",
        "tags": ["facts"],
        "messages": [{"role": "user", "content": "Capital of France?"}],
        "checks": [{"kind": "contains", "all_of": ["Paris"]}],
        **changes,
    }


def suite(*cases: dict[str, Any], **changes: Any) -> Suite:
    return Suite.model_validate({**HEAD, "cases": list(cases or (case(),)), **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"checks": []},
        {"tags": []},
        {"tags": ["a", "a"]},
        {"messages": []},
        {"messages": [{"role": "assistant", "content": "Hi"}]},
        {
            "messages": [
                {"role": "user", "content": "a"},
                {"role": "system", "content": "b"},
                {"role": "user", "content": "c"},
            ]
        },
        {"messages": [{"role": "user", "content": ""}]},
        {"messages": [{"role": "tool", "content": "x"}]},
        {"id": "Not A Slug"},
        {"repeats": 0},
        {"repeat": 2},
        {"sampling": {"temperature": 3.0}},
        {"sampling": {"top_k": 1}},
        {"recorded": {"text": "Paris", "agreement": 1.2, "n": 1}},
    ],
)
def test_a_case_that_cannot_be_asked_or_judged_is_refused(changes):
    with pytest.raises(ValidationError):
        Case.model_validate(case(**changes))


def test_a_recorded_answer_that_fails_its_own_checks_is_refused():
    with pytest.raises(ValidationError, match="case capital: its recorded answer fails contains"):
        Case.model_validate(case(recorded={"text": "Rome", "agreement": 1.0, "n": 3}))
    kept = Case.model_validate(case(recorded={"text": "Paris.", "agreement": 1.0, "n": 3}))
    assert kept.recorded == Recorded(text="Paris.", agreement=1.0, n=3)


def test_an_empty_suite_is_refused():
    with pytest.raises(ValidationError):
        Suite.model_validate({**HEAD, "cases": []})


def test_two_cases_with_one_id_are_refused():
    with pytest.raises(ValidationError, match="given twice: capital"):
        suite(case(), case(tags=["other"]))


def test_a_case_changes_only_the_sampling_it_names():
    loaded = suite(case(sampling={"max_tokens": 4}))
    assert loaded.sampling_of(loaded.cases[0]) == loaded.sampling.model_copy(
        update={"max_tokens": 4}
    )


def test_tags_are_listed_once_and_sorted():
    assert suite(case(tags=["b", "a"]), case(id="other", tags=["b"])).tags == ("a", "b")


@pytest.mark.parametrize(
    "changed",
    [
        suite(case(repeats=2)),
        suite(case(must=True)),
        suite(case(checks=[{"kind": "contains", "all_of": ["Paris"], "casefold": True}])),
        suite(case(messages=[{"role": "user", "content": "Capital of France? "}])),
        suite(sampling={**HEAD["sampling"], "seed": 8}),
        suite(case(), case(id="other")),
        suite(case(checks=[{"kind": "json", "schema": {"type": "object"}}])),
    ],
)
def test_every_word_of_a_suite_is_in_its_digest(changed):
    assert changed.digest != suite().digest


def test_the_digest_tells_two_json_schemas_apart():
    first = suite(case(checks=[{"kind": "json", "schema": {"type": "object"}}]))
    second = suite(case(checks=[{"kind": "json", "schema": {"type": "array"}}]))
    assert first.digest != second.digest


HEAD_YAML = """\
schema_version: 1
name: demo
owner: gate-team
description: A few questions.
model: smollm2-135m-instruct
reference:
  spec: smollm2-135m-instruct/cpu-x86-64-v3-fp16
  note: 3 runs, 1 stream
sampling: {temperature: 0, top_p: 1, seed: 7, max_tokens: 32}
"""
FACTS_YAML = """\
cases:
  - id: capital
    tags: [facts]
    messages:
      - {role: user, content: "Capital of France?"}
    checks:
      - {kind: contains, all_of: [Paris]}
"""
SUMS_YAML = FACTS_YAML.replace("capital", "sum").replace("Paris", "'4'")


def write(root: Path, **files: str) -> Path:
    directory = root / "demo"
    directory.mkdir()
    for name, text in files.items():
        (directory / f"{name}.yaml").write_text(text)
    return root


def test_a_suite_is_read_from_its_files(tmp_path):
    root = write(
        tmp_path,
        suite=HEAD_YAML + "cases: [facts.yaml, sums.yaml]",
        facts=FACTS_YAML,
        sums=SUMS_YAML,
    )
    loaded = load_suite(root, "demo")
    assert [item.id for item in loaded.cases] == ["capital", "sum"]
    assert loaded.sampling.max_tokens == 32


def test_moving_a_case_to_another_file_keeps_the_digest(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    sums = SUMS_YAML.removeprefix("cases:\n")
    one = write(tmp_path / "a", suite=HEAD_YAML + "cases: [all.yaml]", all=FACTS_YAML + sums)
    two = write(
        tmp_path / "b", suite=HEAD_YAML + "cases: [x.yaml, y.yaml]", x=FACTS_YAML, y=SUMS_YAML
    )
    assert load_suite(one, "demo").digest == load_suite(two, "demo").digest


@pytest.mark.parametrize(
    ("files", "kind", "message"),
    [
        ({"suite": HEAD_YAML + "cases: []"}, InvalidInput, "cases"),
        ({"suite": HEAD_YAML + "cases: [../x.yaml]"}, InvalidInput, "cases"),
        ({"suite": HEAD_YAML + "cases: [facts.yaml]"}, NotFound, "names facts.yaml"),
        (
            {"suite": HEAD_YAML.replace("demo", "other") + "cases: [facts.yaml]"},
            InvalidInput,
            "says 'other', its directory is 'demo'",
        ),
        (
            {"suite": HEAD_YAML + "cases: [a.yaml, b.yaml]", "a": FACTS_YAML, "b": FACTS_YAML},
            InvalidInput,
            "case id 'capital' is taken by a.yaml",
        ),
        (
            {"suite": HEAD_YAML + "cases: [a.yaml]", "a": FACTS_YAML.replace("all_of", "al_of")},
            InvalidInput,
            "a.yaml",
        ),
        (
            {"suite": HEAD_YAML + "cases: [a.yaml]", "a": FACTS_YAML + FACTS_YAML[7:]},
            InvalidInput,
            "capital",
        ),
        (
            {"suite": HEAD_YAML + "case: [a.yaml]\ncases: [a.yaml]", "a": FACTS_YAML},
            InvalidInput,
            "case",
        ),
    ],
)
def test_a_broken_suite_is_refused_with_the_file_named(tmp_path, files, kind, message):
    with pytest.raises(kind) as caught:
        load_suite(write(tmp_path, **files), "demo")
    assert message in caught.value.message
    assert caught.value.hint


def test_a_missing_suite_lists_those_that_are_there(tmp_path):
    write(tmp_path, suite=HEAD_YAML)
    with pytest.raises(NotFound, match="there are: demo"):
        load_suite(tmp_path, "dema")


def test_a_case_file_that_is_a_link_to_the_outside_is_refused(tmp_path):
    outside = tmp_path / "outside.yaml"
    outside.write_text(FACTS_YAML)
    root = write(tmp_path, suite=HEAD_YAML + "cases: [facts.yaml]")
    (root / "demo" / "facts.yaml").symlink_to(outside)
    with pytest.raises(InvalidInput, match="lies outside"):
        load_suite(root, "demo")
