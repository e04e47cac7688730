"""A finished build as what the registry takes in: files, facts, provenance, what is attached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.build.host import platform_of
from engine_pipeline.build.kept import kept_files
from engine_pipeline.build.provenance import build_statement, model_config, model_descriptor
from engine_pipeline.trust.policy import Role
from engine_pipeline.trust.signatures import sealed
from engine_registry.attestation import provenance_statement
from engine_registry.engines import BuildFacts, EngineDraft, EngineFile
from engine_registry.store import Ownership

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from engine_pipeline.backends.port import EngineFacts
    from engine_pipeline.build.plan import BuildPlan
    from engine_pipeline.build.step_cache import KeptStep
    from engine_pipeline.build.workshop import Workshop


def engine_draft(
    plan: BuildPlan,
    facts: EngineFacts,
    kept: Sequence[KeptStep],
    workshop: Workshop,
    started_at: datetime,
) -> EngineDraft:
    """What is put into the registry; the last of `kept` left the engine, which is done now."""
    lock, spec = workshop.lock, workshop.lock.spec
    finished_at = workshop.clock()
    statement = build_statement(
        lock,
        plan,
        actor=workshop.actor,
        host_class=workshop.machine.host_class,
        started_at=started_at,
        finished_at=finished_at,
    )
    peaks = [item.record.peak_rss_bytes for item in kept if item.record.peak_rss_bytes]
    return EngineDraft(
        files={
            file.path: EngineFile(path=kept[-1].output / file.path, media_type=file.media_type)
            for file in facts.files
        },
        # The step cache never writes an output again, so the registry may share its bytes.
        ownership=Ownership.GIVEN,
        descriptor=model_descriptor(lock, facts),
        config=model_config(lock, facts),
        facts=BuildFacts(
            build_key=plan.build_key,
            spec=spec.name,
            model=spec.model.name,
            target=spec.target.sku,
            kind=str(spec.backend.kind),
            precision=str(spec.precision.weights),
            platform=platform_of(spec.target, facts, plan.host, workshop.backend.runtime()),
            built_by=workshop.actor,
            built_at=finished_at,
            build_wall_s=round(sum(item.record.wall_s for item in kept), 3),
            build_peak_rss_bytes=max(peaks, default=None),
        ),
        provenance=lambda engine: provenance_statement(
            engine, f"{spec.model.name}/{spec.target.sku}", statement
        ),
        lock=workshop.lock_bytes,
        attachments=kept_files(
            (step, item.output) for step, item in zip(plan.steps, kept, strict=True)
        ),
        attestations=lambda statement: (
            (sealed(statement, Role.BUILD, workshop.signing_key),) if workshop.signing_key else ()
        ),
    )
