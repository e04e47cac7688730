"""A bake-off's file: what is refused, with line and key path, and without showing a secret."""

from __future__ import annotations

from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from ruamel.yaml import YAML

from engine_pipeline.bakeoff.file import REFERENCE, BakeoffFile
from engine_pipeline.bakeoff.schema import bakeoff_schema
from engine_pipeline.yaml_file import InvalidDocument, validated

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "golden_prompts" / "bakeoffs" / "smollm2-cpu.yaml"
GOOD = """\
schema_version: 1
name: demo
contestants:
  - name: ours
    engine: tiny/cpu:1
    price: {per_hour: 0.1}
  - name: theirs
    endpoint:
      url: https://llm.example.com
      model: big
      api_key_env: BIG_KEY
    model_revision: "2026-11"
    chat_template: the vendor's
    price: {per_million_output_tokens: 0.6}
suites: [core]
load: {requests: 60, concurrency: [1, 4], output_tokens: 16}
optimise: [cost, quality]
"""


def problem(tmp_path: Path, text: str) -> str:
    path = tmp_path / "demo.yaml"
    path.write_text(text)
    with pytest.raises(InvalidDocument) as caught:
        validated(path, BakeoffFile, reference=REFERENCE)
    assert caught.value.name == REFERENCE
    return caught.value.message


def test_a_good_file_is_read_whole(tmp_path):
    path = tmp_path / "demo.yaml"
    path.write_text(GOOD)
    file = validated(path, BakeoffFile, reference=REFERENCE)
    assert [one.name for one in file.contestants] == ["ours", "theirs"]
    assert file.load.step(4).concurrency == 4
    assert file.contestants[1].endpoint is not None
    assert file.contestants[1].endpoint.api_key_env == "BIG_KEY"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: ours", "name: theirs", "theirs is given twice"),
        ("engine: tiny/cpu:1", "", "want either engine or endpoint"),
        ("    chat_template: the vendor's\n", "", "state model_revision and chat_template"),
        ("    price: {per_hour: 0.1}\n", "", "optimise names cost: give ours a price"),
        ("per_hour: 0.1", "per_hour: 0.1, per_million_output_tokens: 1", "either per_hour or"),
        ("concurrency: [1, 4]", "concurrency: [4, 1]", "want steps that rise"),
        ("requests: 60", "requests: 3", "cannot keep 4 in flight"),
        ("optimise: [cost, quality]", "optimise: [price]", "allowed: cost, quality, speed"),
        ("suites: [core]", "suites: [core]\nsuites: [core]", "suites"),
        ("https://llm.example.com", "ftp://x", "want http:// or https://"),
        ("per_hour: 0.1", "per_hour: .nan", "per_hour"),
    ],
)
def test_what_does_not_fit_is_refused_with_file_and_line(tmp_path, old, new, said):
    assert old in GOOD
    message = problem(tmp_path, GOOD.replace(old, new))
    assert said in message
    assert "demo.yaml:" in message


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("BIG_KEY", "sk-proj-abcdefghijklmnop0123456789"),
        ("BIG_KEY", "hf_abcdefghijklmnopqrstuvwxyz"),
        ("BIG_KEY", "AKIAABCDEFGHIJKLMNOPQ"),
        ("https://llm", "https://me:sk-proj-abcdefghijklmnop0123456789@llm"),
        ("example.com", "example.com/v1?key=sk-proj-abcdefghijklmnop0123456789"),
        ("example.com", "example.com/sk-proj-abcdefghijklmnop0123456789"),
    ],
)
def test_a_key_in_the_file_is_refused_and_never_shown(tmp_path, old, new):
    message = problem(tmp_path, GOOD.replace(old, new))
    assert "not shown" in message
    assert "abcdef" not in message.lower()


LANES = """\
lanes:
  chat:
    workload:
      name: chat
      prompt_tokens: {kind: fixed, tokens: 20}
      output_tokens: {kind: fixed, tokens: 8}
      arrival: {kind: poisson, rate_per_s: 2}
      requests: 60
    ceilings: {ttft_p95_ms: 900}
"""


def test_a_lane_is_written_as_a_gates_is_and_may_be_what_counts(tmp_path):
    path = tmp_path / "demo.yaml"
    goal = "optimise: [cost, {lane: chat, metric: ttft_p95_ms}]"
    path.write_text(GOOD.replace("optimise: [cost, quality]", goal) + LANES)
    file = validated(path, BakeoffFile, reference=REFERENCE)
    assert [str(goal) for goal in file.optimise] == ["cost", "TTFT p95 of chat"]
    assert file.lanes is not None
    assert file.lanes["chat"].ceilings == {"ttft_p95_ms": 900}


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("{lane: batch, metric: ttft_p95_ms}", "names the lane batch; lanes: chat"),
        ("{lane: chat, metric: ttft}", "no metric ttft; there are ttft_p50_ms"),
        ("{lane: chat, metric: output_tokens_per_s}", "no metric output_tokens_per_s"),
        ("{lane: chat, metric: good_share}", "has no slo to be good by"),
    ],
)
def test_a_priority_that_no_lane_measures_is_refused(tmp_path, goal, said):
    text = GOOD.replace("optimise: [cost, quality]", f"optimise: [{goal}]") + LANES
    assert said in problem(tmp_path, text)


def test_a_limit_on_structured_answers_needs_structured_requests(tmp_path):
    text = GOOD + "limits: {min_structured_share: 0.9}\n"
    assert "needs `structured`" in problem(tmp_path, text)


def test_the_shipped_example_is_valid_and_fits_the_published_schema():
    file = validated(EXAMPLE, BakeoffFile, reference=REFERENCE)
    assert {one.name for one in file.contestants} == {"f16", "int8", "int4"}
    schema = bakeoff_schema()
    Draft202012Validator.check_schema(schema)
    plain = YAML(typ="safe").load(EXAMPLE.read_text())
    Draft202012Validator(schema).validate(plain)
    assert not Draft202012Validator(schema).is_valid({**plain, "unknown": 1})


def test_the_schema_describes_every_field_of_a_contestant():
    contestant = bakeoff_schema()["$defs"]["Contestant"]["properties"]
    undescribed = {name for name in contestant if "description" not in contestant[name]}
    assert undescribed <= {"name"}
    lane = bakeoff_schema()["$defs"]["LaneBars"]["properties"]
    assert all("description" in field for field in lane.values())
