"""Provenance statements."""

import json
from datetime import UTC, datetime

import pytest

from engine_registry.attestation import (
    BuildStatement,
    Material,
    provenance_statement,
    read_statement,
)
from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError

ENGINE = Digest.of(b"engine")
BUILD = BuildStatement(
    build_type="https://example.org/engine-ci/llama-cpp/v1",
    external_parameters={"spec": {"precision": "int8"}},
    materials=(Material(uri="hf://org/repo@abc/model.safetensors", digests={"sha256": "0" * 64}),),
    builder_id="https://example.org/engine-ci",
    invocation_id="run-1",
    started_at=datetime(2026, 3, 1, 12, 0, tzinfo=UTC),
    finished_at=datetime(2026, 3, 1, 12, 5, tzinfo=UTC),
    builder_versions={"engine-ci": "0.1.0"},
    byproducts={"build.log": Digest.of(b"log")},
)


def test_a_statement_has_the_fields_that_in_toto_and_slsa_require() -> None:
    statement = json.loads(provenance_statement(ENGINE, "tiny/cpu", BUILD))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["subject"] == [{"name": "tiny/cpu", "digest": {"sha256": ENGINE.hex}}]
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    definition = statement["predicate"]["buildDefinition"]
    assert definition["buildType"] == BUILD.build_type
    assert definition["externalParameters"] == {"spec": {"precision": "int8"}}
    assert definition["resolvedDependencies"] == [
        {"uri": "hf://org/repo@abc/model.safetensors", "digest": {"sha256": "0" * 64}}
    ]
    details = statement["predicate"]["runDetails"]
    assert details["builder"] == {
        "id": "https://example.org/engine-ci",
        "version": {"engine-ci": "0.1.0"},
    }
    assert details["metadata"] == {
        "invocationId": "run-1",
        "startedOn": "2026-03-01T12:00:00Z",
        "finishedOn": "2026-03-01T12:05:00Z",
    }
    assert details["byproducts"] == [
        {"name": "build.log", "digest": {"sha256": Digest.of(b"log").hex}}
    ]


def test_a_statement_is_a_function_of_its_values() -> None:
    first = provenance_statement(ENGINE, "tiny/cpu", BUILD)
    assert provenance_statement(ENGINE, "tiny/cpu", BUILD) == first


def test_a_statement_reads_back_for_its_own_engine_only() -> None:
    data = provenance_statement(ENGINE, "tiny/cpu", BUILD)
    assert read_statement(data, ENGINE)["runDetails"]["metadata"]["invocationId"] == "run-1"
    with pytest.raises(IntegrityError, match="is about"):
        read_statement(data, Digest.of(b"another engine"))


@pytest.mark.parametrize(
    "change",
    [
        {"predicateType": "https://example.org/sbom/v1"},
        {"_type": "https://in-toto.io/Statement/v0.1"},
        {"predicate": None},
        {"subject": []},
        {"subject": "x"},
    ],
)
def test_a_statement_of_another_kind_is_no_provenance(change: dict[str, object]) -> None:
    statement = json.loads(provenance_statement(ENGINE, "tiny/cpu", BUILD))
    with pytest.raises(IntegrityError) as caught:
        read_statement(json.dumps(statement | change).encode(), ENGINE)
    assert caught.value.name == "provenance-unusable"


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b"null", b"not json"])
def test_what_is_no_statement_is_refused(data: bytes) -> None:
    with pytest.raises(IntegrityError):
        read_statement(data, ENGINE)
