from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine_pipeline.spec.hardware import sku_names
from engine_pipeline.spec.load import load_spec, spec_schema
from engine_pipeline.spec.model import BuildSpec
from engine_pipeline.yaml_file import InvalidDocument
from engine_registry.errors import ExitCode, InvalidInput

ROOT = Path(__file__).resolve().parents[3]
SPECS = sorted((ROOT / "build_specs").rglob("*.yaml"))
TEXT = """\
schema_version: 1
model:
  name: tiny
  source: hf://org/tiny
  revision: main
target:
  sku: h100-sxm-80gb
precision:
  weights: fp8
backend:
  kind: trtllm-engine
  version: "1.2.1"
limits:
  max_batch_size: 4
  max_input_tokens: 100
  max_sequence_tokens: 200
  max_batch_tokens: 100
suites: [core]
"""


def loaded(tmp_path: Path, text: str) -> BuildSpec:
    path = tmp_path / "spec.yaml"
    path.write_text(text)
    return load_spec(path)


def problems(tmp_path: Path, text: str) -> list[tuple[int, str, str]]:
    with pytest.raises(InvalidDocument) as caught:
        loaded(tmp_path, text)
    assert caught.value.name == "spec-invalid"
    assert caught.value.exit_code == ExitCode.INVALID
    return [(p.line, p.path, p.text) for p in caught.value.problems]


def test_a_spec_is_read_with_its_defaults(tmp_path: Path) -> None:
    spec = loaded(tmp_path, TEXT)
    assert spec.name == "tiny/h100-sxm-80gb-fp8"
    assert spec.precision.kv_cache == "fp16"
    assert spec.target.parallelism.world_size == 1


@pytest.mark.parametrize(
    ("old", "new", "line", "path", "says"),
    [
        ("weights: fp8", "weights: fp6", 9, "precision.weights", "allowed: fp16, bf16, fp8, int8"),
        ("precision:", "presicion:", 8, "presicion", "did you mean precision?"),
        ("revision: main", "revision: 1.10", 5, "model.revision", "want text"),
        ("revision: main", "revision: --upload-pack=x", 5, "model.revision", "found"),
        ("hf://org/tiny", "hf://tiny", 4, "model.source", "want: `hf://org/repo`"),
        ("hf://org/tiny", "hf://org/tiny/x", 4, "model.source", "want: `hf://org/repo`"),
        ("hf://org/tiny", "https://org/tiny", 4, "model.source", "want: `hf://org/repo`"),
        ("hf://org/tiny", "hf://datasets/o/d", 4, "model.source", "is a dataset"),
        ("name: tiny", "name: Tiny Model", 3, "model.name", "lower-case letters"),
        ("max_batch_size: 4", 'max_batch_size: "4"', 14, "limits.max_batch_size", "an integer"),
        ("max_batch_size: 4", "max_batch_size: yes", 14, "limits.max_batch_size", "an integer"),
        ("max_batch_size: 4", "max_batch_size: 0", 14, "limits.max_batch_size", "at least 1"),
        ("_tokens: 200", "_tokens: 100", 15, "limits", "leaves no room for an answer"),
        ("suites: [core]", "suites: []", 18, "suites", "a list of at least 1"),
        ("suites: [core]", "suites: core", 18, "suites", "want a list"),
        ('version: "1.2.1"', "version: 1.2", 12, "backend.version", "want text"),
        ("schema_version: 1", "schema_version: 2", 1, "schema_version", "found 2, allowed: 1"),
    ],
)
def test_a_wrong_field_is_named_with_line_key_path_and_what_is_allowed(
    tmp_path: Path, old: str, new: str, line: int, path: str, says: str
) -> None:
    assert old in TEXT
    found = problems(tmp_path, TEXT.replace(old, new))
    named = [text for number, where, text in found if (number, where) == (line, path)]
    assert named, found
    assert says in named[0]


def test_a_missing_section_says_what_it_is_for(tmp_path: Path) -> None:
    text = TEXT.replace("precision:\n  weights: fp8\n", "")
    assert problems(tmp_path, text) == [
        (1, "precision", "missing; want: how weights and KV cache are stored")
    ]


@pytest.mark.parametrize("place", ["model:\n  name: {}", "serving:\n  key: {}", "suites: [{}]"])
def test_a_token_in_a_spec_is_refused_and_not_repeated(tmp_path: Path, place: str) -> None:
    token = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
    path = tmp_path / "spec.yaml"
    path.write_text(place.format(token))
    with pytest.raises(InvalidDocument) as caught:
        load_spec(path)
    error = caught.value
    assert "access token" in error.message
    assert token not in f"{error.message} {error.hint} {error.problems}"


def test_the_schema_is_valid_and_describes_every_field() -> None:
    schema = spec_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["$schema"].startswith("https://json-schema.org/")
    blocks = {**schema["$defs"], "BuildSpec": schema}
    blank = [
        f"{name}.{key}"
        for name, block in blocks.items()
        for key, value in block.get("properties", {}).items()
        if not value.get("description") and name != "Parallelism"
    ]
    assert not blank
    assert schema["$defs"]["TargetSpec"]["properties"]["sku"]["enum"] == list(sku_names())


def test_the_schema_agrees_with_the_loader(tmp_path: Path) -> None:
    import ruamel.yaml

    read = ruamel.yaml.YAML(typ="safe", pure=True).load
    validator = jsonschema.Draft202012Validator(spec_schema())
    assert validator.is_valid(read(TEXT))
    for old, new in (
        ("weights: fp8", "weights: fp6"),
        ("name: tiny", "name: Tiny"),
        ("suites: [core]", "suites: []"),
        ("  sku: h100-sxm-80gb", "  sku: h100"),
        ("schema_version: 1", "schema_version: 1\nwhat: 1"),
    ):
        assert not validator.is_valid(read(TEXT.replace(old, new))), new


@pytest.mark.parametrize("path", SPECS, ids=lambda p: p.stem)
def test_the_specs_of_this_repository_load_and_are_named_after_what_they_say(path: Path) -> None:
    spec = load_spec(path)
    assert f"{path.parent.name}/{path.stem}" == spec.name


def test_this_repository_has_specs() -> None:
    assert len(SPECS) >= 3


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = [
    *("schema_version", "model", "target", "precision", "backend", "limits", "calibration"),
    *("serving", "suites", "name", "source", "revision", "files", "allow_code", "sku", "weights"),
    *("parallelism", "kind", "version", "image", "options", "max_batch_size", "samples"),
]


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(st.sampled_from(FIELDS), JSON | st.dictionaries(st.sampled_from(FIELDS), JSON))
)
@example({"backend": {"options": {"": {}}}})
@example({"model": {"files": [None]}, "serving": {"\x00": 1}})
def test_any_value_is_a_spec_or_refused_with_a_place(
    tmp_path_factory: pytest.TempPathFactory, value: dict[str, Any]
) -> None:
    # JSON is YAML, so this reaches behind the parser.
    path = tmp_path_factory.mktemp("s") / "spec.yaml"
    path.write_text(json.dumps(value))
    with pytest.raises(InvalidInput) as caught:
        load_spec(path)
    assert caught.value.message.startswith(f"{path}:1: ")


@settings(max_examples=120, deadline=None)
@given(
    st.integers(0, len(TEXT)),
    st.integers(0, 12),
    st.text(st.sampled_from("abc:-[]{}'\"#&*!|>%\n\t 019.~"), max_size=6),
)
def test_a_damaged_spec_is_a_spec_or_refused_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, at: int, cut: int, put: str
) -> None:
    path = tmp_path_factory.mktemp("s") / "spec.yaml"
    path.write_text(TEXT[:at] + put + TEXT[at + cut :])
    refused = None
    try:
        assert isinstance(load_spec(path), BuildSpec)
    except InvalidInput as error:
        refused = error
    if refused is not None:
        assert refused.name == "spec-invalid"
        assert refused.message.startswith(f"{path}:")
