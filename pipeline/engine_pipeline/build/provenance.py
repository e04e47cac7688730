"""What provenance says of a build, and what the manifest says of its model. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_registry.attestation import BuildStatement, Material

if TYPE_CHECKING:
    from datetime import datetime

    from engine_pipeline.backends.port import EngineFacts
    from engine_pipeline.build.plan import BuildPlan
    from engine_pipeline.spec.lock import BuildLock, LockedSource
    from engine_registry.record import Actor

BUILD_TYPE = "urn:engine-ci:build:1"
BUILDER = "urn:engine-ci:builder:local"
_UNITS = ((10**12, "t"), (10**9, "b"), (10**6, "m"))


def build_statement(
    lock: BuildLock,
    plan: BuildPlan,
    *,
    actor: Actor,
    host_class: str,
    started_at: datetime,
    finished_at: datetime,
) -> BuildStatement:
    """The statement of one build: the spec is what the user chose, the steps are what followed.

    Args:
        lock: every input.
        plan: every step.
        actor: who ran it.
        host_class: what kind of machine ran it.
        started_at: of this run; kept steps may be older.
        finished_at: when the engine was whole.
    """
    materials = [*_materials(lock.source)]
    if lock.calibration:
        materials += _materials(lock.calibration)
    if lock.image:
        materials.append(
            Material(
                uri=f"docker://{lock.image.reference}", digests={"sha256": lock.image.digest.hex}
            )
        )
    return BuildStatement(
        build_type=BUILD_TYPE,
        external_parameters={"spec": lock.spec.model_dump(mode="json")},
        internal_parameters={
            "build_key": str(plan.build_key),
            "host": plan.host,
            "steps": [
                {"name": step.name, "key": str(step.key), "argv": list(step.argv)}
                for step in plan.steps
            ],
            "actor": actor.model_dump(mode="json"),
            "host_class": host_class,
        },
        materials=tuple(materials),
        builder_id=BUILDER,
        builder_versions=dict(lock.tools),
        invocation_id=f"{plan.build_key}/{started_at.isoformat()}",
        started_at=started_at,
        finished_at=finished_at,
    )


def model_descriptor(lock: BuildLock, facts: EngineFacts) -> dict[str, Any]:
    """ModelPack `descriptor`: what the model is called and descends from."""
    return {"name": lock.spec.model.name, "family": facts.architecture}


def model_config(lock: BuildLock, facts: EngineFacts) -> dict[str, Any]:
    """ModelPack `config`: how the model is stored."""
    recipe = facts.details.get("recipe") or lock.spec.precision.recipe
    return {
        "architecture": "transformer",
        "format": facts.format,
        "paramSize": parameter_size(facts.parameters),
        "precision": str(lock.spec.precision.weights),
    } | ({"quantization": recipe} if recipe else {})


def parameter_size(parameters: int) -> str:
    """ModelPack's short form of a count: `8b`, `134.5m`."""
    for size, unit in _UNITS:
        if parameters >= size:
            return f"{parameters / size:.1f}".removesuffix(".0") + unit
    return str(parameters)


def _materials(source: LockedSource) -> list[Material]:
    return [
        Material(
            uri=f"{source.source}@{source.revision}#{item.path}",
            digests={"sha256": item.digest.hex},
        )
        for item in source.files
    ]
