"""The bill of materials of an engine, held against the official schema of CycloneDX 1.6."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from engine_pipeline.spec.lock import BuildLock, LockedSource
from engine_pipeline.trust.bom import ml_bom
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.manifest import EMPTY_DESCRIPTOR, engine_manifest, file_layer
from engine_registry.record import Actor, Platform, Record

ROOT = Path(__file__).resolve().parents[3]
LOCKS = sorted((ROOT / "build_specs").glob("*/*.lock.json"))
ENGINE = Digest.of(b"engine")
MANIFEST = engine_manifest(
    EMPTY_DESCRIPTOR,
    [
        file_layer("model.gguf", Digest.of(b"m"), 98_362_432),
        file_layer("tokenizer/tokenizer.json", Digest.of(b"t"), 7),
    ],
)
VALIDATOR = JsonStrictValidator(SchemaVersion.V1_6)


def record(lock: BuildLock) -> Record:
    return Record(
        engine=ENGINE,
        build_key=Digest.of(b"key"),
        spec=lock.spec.name,
        model=lock.spec.model.name,
        target=lock.spec.target.sku,
        kind=str(lock.spec.backend.kind),
        precision=str(lock.spec.precision.weights),
        platform=Platform(sku=lock.spec.target.sku, runtime={"server": "1.0"}),
        lock=lock.digest,
        provenance=Digest.of(b"provenance"),
        size_bytes=MANIFEST.size_bytes,
        built_by=Actor(name="a", proved_by="test"),
        built_at=datetime(2026, 11, 1, 12, tzinfo=UTC),
    )


def bom_of(lock: BuildLock) -> bytes:
    return ml_bom(ENGINE, MANIFEST, record(lock), lock, tool_version="0.1.0")


def read_lock(path: Path) -> BuildLock:
    return BuildLock.model_validate_json(path.read_bytes())


def calibrated() -> BuildLock:
    lock = read_lock(LOCKS[0])
    data = LockedSource(
        source="hf://datasets/org/calibration", revision="c" * 40, files=lock.source.files[:1]
    )
    return lock.model_copy(update={"calibration": data})


@pytest.mark.parametrize("path", LOCKS, ids=lambda path: path.stem)
def test_every_lock_of_this_repository_gives_a_valid_document(path):
    assert VALIDATOR.validate_str(bom_of(read_lock(path)).decode()) is None


def test_the_schema_would_find_a_mistake():
    broken = json.loads(bom_of(calibrated()))
    broken["metadata"]["component"]["modelCard"]["modelParameters"]["datasets"][0]["type"] = 7
    assert VALIDATOR.validate_str(json.dumps(broken)) is not None


def test_engine_files_and_inputs_are_named_by_their_digests():
    lock = calibrated()
    text = bom_of(lock).decode()
    assert VALIDATOR.validate_str(text) is None
    bom = json.loads(text)
    engine = bom["metadata"]["component"]
    assert engine["type"] == "machine-learning-model"
    assert engine["hashes"] == [{"alg": "SHA-256", "content": ENGINE.hex}]
    assert [part["name"] for part in engine["components"]] == [
        "model.gguf",
        "tokenizer/tokenizer.json",
    ]
    found = {component["bom-ref"]: component for component in bom["components"]}
    want = [item.digest.hex for item in lock.source.files]
    assert [part["hashes"][0]["content"] for part in found["model"]["components"]] == want
    assert found["calibration"]["type"] == "data"
    assert engine["modelCard"]["modelParameters"]["datasets"] == [{"ref": "calibration"}]
    assert {f"tool:{name}" for name in lock.tools} <= set(found)
    assert set(bom["dependencies"][0]["dependsOn"]) == set(found)


def test_the_same_engine_has_the_same_document_in_canonical_form():
    once, again = bom_of(calibrated()), bom_of(calibrated())
    assert once == again
    assert canonical_json(json.loads(once)) == once
