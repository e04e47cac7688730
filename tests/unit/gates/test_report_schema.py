"""The published schema takes every report, refuses others, and says what fields mean."""

from __future__ import annotations

import json

import jsonschema
import pytest

from engine_pipeline.gates.report_schema import report_schema
from engine_registry.documents import canonical_json
from tests.unit.gates.report_samples import LIVE, MIXED, NASTY

SCHEMA = report_schema()
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)


def test_it_is_a_schema_itself():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("report", [LIVE, MIXED, NASTY])
def test_it_takes_every_stored_report(report):
    VALIDATOR.validate(json.loads(canonical_json(report)))


@pytest.mark.parametrize(
    "change", [{"outcome": "good"}, {"findings": []}, {"surprise": 1}, {"engine": "sha256:short"}]
)
def test_it_refuses_what_is_no_report(change):
    assert list(VALIDATOR.iter_errors({**json.loads(canonical_json(LIVE)), **change}))


def test_fields_are_described_in_the_words_of_the_models():
    assert SCHEMA["description"] == "Everything that one run of one gate found."
    assert "checks saw all" in SCHEMA["$defs"]["Attempt"]["properties"]["text"]["description"]
    assert "last message" in SCHEMA["$defs"]["CaseResult"]["properties"]["asked"]["description"]
