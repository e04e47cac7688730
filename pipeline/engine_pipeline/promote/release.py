"""Cut a release: what moves together, taken from what the registry knows of an engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import OUTCOME
from engine_pipeline.spec.lock import BuildLock
from engine_registry import manifest
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.record import ReleaseContent
from engine_registry.refs import ProductRef
from engine_registry.store import Depth

if TYPE_CHECKING:
    from typing import Any

    from engine_pipeline.promote.moves import Desk
    from engine_registry.record import Record, Release
    from engine_registry.registry import Registry


def lock_of(registry: Registry, record: Record) -> BuildLock:
    """The lock an engine was built from, as it is stored beside the engine."""
    return BuildLock.model_validate_json(registry.engines.read_blob(record.lock))


def runtime_config(lock: BuildLock) -> dict[str, Any]:
    """What a server for this engine is started with: the spec's limits and serving settings."""
    return {
        "limits": lock.spec.limits.model_dump(mode="json"),
        "serving": dict(lock.spec.serving),
    }


def serving_image(lock: BuildLock, record: Record) -> str:
    """The image by digest; for a server that comes as a package, the package and its version."""
    if lock.image is not None:
        return f"{lock.image.reference.split('@')[0]}@{lock.image.digest}"
    return "embedded:" + ",".join(f"{n}=={v}" for n, v in sorted(record.platform.runtime.items()))


def cut_release(desk: Desk, engine: Digest, product: ProductRef) -> Release:
    """Number a new release of `engine` as `product`, or give back the one of the same content.

    The evidence named in it is every report attached to the engine that passed, at this moment;
    promotion looks at the reports again. The engine must have been built as `product`.

    Raises:
        NotFound, IntegrityError: the engine is not whole in the registry.
    """
    stored = desk.registry.engines.check_engine(engine, Depth.UNCHANGED)
    record = max(
        (r for r in stored.records if ProductRef(r.model, r.target) == product),
        key=lambda r: r.built_at,
    )
    lock = lock_of(desk.registry, record)
    passed = [
        link.manifest
        for link in desk.registry.engines.referrers(engine, manifest.REPORT_ARTIFACT)
        if link.annotations.get(OUTCOME) == Outcome.PASSED
    ]
    content = ReleaseContent(
        engine=engine,
        record=record.digest,
        kind=record.kind,
        precision=record.precision,
        platform=record.platform,
        tokenizer=Digest.of(canonical_json(lock.tokenizer)),
        serving_image=serving_image(lock, record),
        runtime_config=runtime_config(lock),
        evidence=tuple(sorted(passed)),
    )
    return desk.registry.releases.create_release(product, content, desk.actor, desk.clock())
