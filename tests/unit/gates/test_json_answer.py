"""JSON answers: strict parsing, fences, schemas, and no look-ups outside the schema."""

from __future__ import annotations

import socket

import pytest

from engine_pipeline.gates.json_answer import check_schema, defect

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("text", ['{"a": 1}', "[]", " 3 \n", "null", '"x"'])
def test_json_is_accepted(text):
    assert defect(text, None, fenced=False) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{'a': 1}",
        '{"a": 1,}',
        "NaN",
        "[Infinity]",
        '{"a": 1} ok',
        '{"a": 1, "a": 2}',
        "[" * 9999,
    ],
)
def test_what_is_not_json_is_refused(text):
    assert (defect(text, None, fenced=False) or "").startswith("want JSON")


def test_a_fence_is_opened_only_where_it_is_allowed():
    text = 'Here it is:\n```json\n{"name": "Ann", "age": 3}\n```\nDone.'
    assert defect(text, SCHEMA, fenced=True) is None
    assert defect(text, SCHEMA, fenced=False) is not None
    assert defect('{"name": "Ann", "age": 3}', SCHEMA, fenced=True) is None
    assert defect("```\n[1]\n```", None, fenced=True) is None
    assert defect("```json\nnot json\n```", None, fenced=True) is not None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"name": "Ann"}', "'age' is a required property"),
        ('{"name": "Ann", "age": -1}', "$.age: -1 is less than the minimum of 0"),
        ('{"name": 5, "age": 1}', "$.name: 5 is not of type 'string'"),
        ('{"name": "Ann", "age": 1, "x": 1}', "'x' was unexpected"),
    ],
)
def test_a_violation_names_place_and_value(text, reason):
    assert reason in (defect(text, SCHEMA, fenced=False) or "")


def test_2020_12_keywords_count():
    schema = {"prefixItems": [{"const": 1}], "items": False}
    assert defect("[1]", schema, fenced=False) is None
    assert defect("[1, 2]", schema, fenced=False) is not None


def test_a_reference_to_the_web_is_never_followed():
    with socket.socket() as web:
        web.bind(("127.0.0.1", 0))
        web.listen()
        web.setblocking(False)
        schema = {"$ref": f"http://127.0.0.1:{web.getsockname()[1]}/schema.json"}
        assert "refers to something outside itself" in (defect("1", schema, fenced=False) or "")
        with pytest.raises(BlockingIOError):
            web.accept()


def test_a_broken_or_empty_schema_is_refused():
    with pytest.raises(ValueError, match="not a JSON Schema"):
        check_schema({"type": "nonsense"})
    with pytest.raises(ValueError, match="accepts everything"):
        check_schema({})
