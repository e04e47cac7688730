"""An engine's bill of materials as CycloneDX 1.6 with a model card. Pure; canonical JSON.

Source: cyclonedx.org/docs/1.6/json, ECMA-424. Everything comes from the lock, the manifest and the
record, so the same engine always has the same document. Licences are left out: a lock pins licence
files like any other file and does not know what they say.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

from engine_registry.documents import canonical_json

if TYPE_CHECKING:
    from engine_pipeline.spec.lock import BuildLock, LockedSource
    from engine_registry.digest import Digest
    from engine_registry.manifest import Manifest
    from engine_registry.record import Record

_SCHEMA: Final = "http://cyclonedx.org/schema/bom-1.6.schema.json"
# Serial numbers are UUIDs of engine digests below this name: one document per engine.
_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "urn:engine-ci:bom:1")
Json = dict[str, Any]


def ml_bom(
    engine: Digest, manifest: Manifest, record: Record, lock: BuildLock, *, tool_version: str
) -> bytes:
    """The document.

    Args:
        engine: manifest digest, which names the engine in it.
        manifest: the engine's files.
        record: one build that gave it.
        lock: what that build read.
        tool_version: of engine-ci.
    """
    components = [_source("model", "machine-learning-model", lock.source)]
    if lock.calibration is not None:
        components.append(_source("calibration", "data", lock.calibration))
    if lock.image is not None:
        components.append(
            {
                "type": "container",
                "bom-ref": "image",
                "name": lock.image.reference.partition("@")[0],
                "version": str(lock.image.digest),
                "hashes": _hashes(lock.image.digest),
            }
        )
    components += [
        {"type": "application", "bom-ref": f"tool:{name}", "name": name, "version": version}
        for name, version in sorted(lock.tools.items())
    ]
    document = {
        "$schema": _SCHEMA,
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, str(engine))}",
        "version": 1,
        "metadata": {
            "timestamp": record.built_at.isoformat().replace("+00:00", "Z"),
            "tools": {
                "components": [
                    {"type": "application", "name": "engine-ci", "version": tool_version}
                ]
            },
            "component": _engine(engine, manifest, record, lock),
        },
        "components": components,
        "dependencies": [
            {"ref": "engine", "dependsOn": [component["bom-ref"] for component in components]}
        ],
    }
    return canonical_json(document)


def _engine(engine: Digest, manifest: Manifest, record: Record, lock: BuildLock) -> Json:
    found = {
        "type": "machine-learning-model",
        "bom-ref": "engine",
        "name": f"{record.model}/{record.target}",
        "version": str(engine),
        "description": f"Inference engine of {lock.spec.name}",
        "hashes": _hashes(engine),
        "modelCard": _model_card(lock),
        "components": [
            _file(
                f"engine:{layer.title}", layer.title or str(layer.digest), layer.digest, layer.size
            )
            for layer in manifest.layers
        ],
    }
    platform = record.platform
    facts = {
        "build-key": str(record.build_key),
        "kind": record.kind,
        "precision": record.precision,
        "sku": platform.sku,
        "tokenizer": str(lock.tokenizer.digest),
        "lock": str(record.lock),
        "provenance": str(record.provenance),
        **{f"runtime:{name}": version for name, version in sorted(platform.runtime.items())},
    }
    found["properties"] = _properties(facts)
    return found


def _model_card(lock: BuildLock) -> Json:
    spec = lock.spec
    parameters: Json = {
        "task": "text-generation",
        "architectureFamily": "transformer",
        "inputs": [{"format": "text"}],
        "outputs": [{"format": "text"}],
    }
    if lock.calibration is not None:
        parameters["datasets"] = [{"ref": "calibration"}]
    limits = spec.limits.model_dump(mode="json")
    return {
        "bom-ref": "model-card",
        "modelParameters": parameters,
        "properties": _properties({f"limits:{name}": str(value) for name, value in limits.items()}),
    }


def _source(ref: str, kind: str, source: LockedSource) -> Json:
    name = source.source.partition("://")[2]
    found: Json = {
        "type": kind,
        "bom-ref": ref,
        "name": name[-255:],
        "version": source.revision,
        "components": [
            _file(f"{ref}:{item.path}", item.path, item.digest, item.size_bytes)
            for item in source.files
        ],
    }
    if source.source.startswith("hf://"):
        found["externalReferences"] = [
            {"type": "distribution", "url": f"https://huggingface.co/{name}/tree/{source.revision}"}
        ]
    if kind == "data":
        found["data"] = [
            {"type": "dataset", "name": name[-255:], "contents": {"url": source.source}}
        ]
    return found


def _file(ref: str, name: str, digest: Digest, size_bytes: int) -> Json:
    return {
        "type": "file",
        "bom-ref": ref,
        "name": name,
        "hashes": _hashes(digest),
        "properties": _properties({"size-bytes": str(size_bytes)}),
    }


def _hashes(digest: Digest) -> list[Json]:
    return [{"alg": "SHA-256", "content": digest.hex}]


def _properties(facts: dict[str, str]) -> list[Json]:
    return [{"name": f"engine-ci:{name}", "value": value} for name, value in facts.items()]
