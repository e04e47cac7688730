"""Small, quick engines, releases and channel events, written through the real acts.

For tests of this package and of whatever stands on it. Everything is deterministic: the same
arguments give the same digests.
"""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.engines import Attachment, BuildFacts, EngineDraft, EngineFile
from engine_registry.events import Live, Promoted
from engine_registry.manifest import REPORT_ARTIFACT
from engine_registry.record import Actor, Platform, Release, ReleaseContent
from engine_registry.refs import ChannelRef, ProductRef
from engine_registry.store import Ownership

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_registry.engines import StoredEngine
    from engine_registry.events import Change, ChannelState, Event
    from engine_registry.registry import Registry

SAMPLE_AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
SAMPLE_ACTOR = Actor(name="alice", proved_by="os-user")
SAMPLE_PRODUCT = ProductRef("tiny", "cpu")
SAMPLE_CHANNEL = ChannelRef(SAMPLE_PRODUCT, "prod")


class TickingClock:
    """A clock that advances one second each time it is asked."""

    def __init__(self, start: datetime = SAMPLE_AT) -> None:
        self._now = start

    def __call__(self) -> datetime:
        """The next second."""
        self._now += timedelta(seconds=1)
        return self._now


def sample_key(name: str) -> Digest:
    """The build key that `sample_engine(name=...)` uses."""
    return Digest.of(f"inputs of {name}".encode())


def sample_files(name: str) -> dict[str, bytes]:
    """Three small files, one in a folder, that differ from name to name."""
    return {
        "config.json": canonical_json({"name": name}),
        "model.gguf": (f"weights of {name} ".encode() * 64),
        "tokenizer/tokenizer.json": canonical_json({"vocab": [name]}),
    }


def sample_draft(
    directory: Path,
    name: str = "tiny",
    files: Mapping[str, bytes] | None = None,
    *,
    ownership: Ownership = Ownership.KEPT,
    product: ProductRef = SAMPLE_PRODUCT,
    attachments: tuple[Attachment, ...] = (),
) -> EngineDraft:
    """A draft whose files are written below `directory`."""
    held = {}
    for title, data in (sample_files(name) if files is None else files).items():
        path = directory / title
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        held[title] = EngineFile(path=path)
    facts = BuildFacts(
        build_key=sample_key(name),
        spec=f"build_specs/{product.model}/{product.target}-int8.yaml",
        model=product.model,
        target=product.target,
        kind="llama-cpp",
        precision="int8",
        platform=Platform(sku="cpu-x86-64-v3", runtime={"xllamacpp": "1.0"}),
        built_by=SAMPLE_ACTOR,
        built_at=SAMPLE_AT,
    )
    return EngineDraft(
        files=held,
        ownership=ownership,
        descriptor={"name": product.model},
        config={"precision": "int8"},
        facts=facts,
        provenance=lambda engine: canonical_json({"subject": str(engine), "of": name}),
        lock=canonical_json({"lock": name}),
        attachments=attachments,
    )


def sample_engine(
    registry: Registry,
    name: str = "tiny",
    files: Mapping[str, bytes] | None = None,
    *,
    product: ProductRef = SAMPLE_PRODUCT,
) -> StoredEngine:
    """An engine in the registry; another name gives another build key and other bytes."""
    with tempfile.TemporaryDirectory() as folder:
        draft = sample_draft(Path(folder), name, files, product=product)
        return registry.engines.put_engine(draft)


def sample_report(registry: Registry, engine: Digest, outcome: str = "passed") -> Digest:
    """A gate report attached to the engine; the digest of its manifest."""
    report = canonical_json({"engine": str(engine), "outcome": outcome})
    return registry.engines.attach(
        engine,
        REPORT_ARTIFACT,
        [("report.json", report, "application/json")],
        {"outcome": outcome},
    )


def sample_release(
    registry: Registry,
    engine: StoredEngine,
    *,
    product: ProductRef = SAMPLE_PRODUCT,
    evidence: tuple[Digest, ...] = (),
) -> Release:
    """A release of `product` with this engine."""
    record = engine.records[0]
    content = ReleaseContent(
        engine=engine.digest,
        record=record.digest,
        kind=record.kind,
        precision=record.precision,
        platform=record.platform,
        tokenizer=Digest.of(b"tokenizer"),
        serving_image="embedded:xllamacpp==1.0",
        runtime_config={"slots": 2},
        evidence=evidence,
    )
    return registry.releases.create_release(product, content, SAMPLE_ACTOR, registry.clock())


def live(release: Release) -> Live:
    """The release as a channel names it."""
    return Live(number=release.number, release=release.digest, engine=release.content.engine)


def sample_promotion(release: Release) -> Promoted:
    """A promotion to this release."""
    return Promoted(
        to=live(release), policy=Digest.of(b"policy"), evidence=release.content.evidence
    )


def sample_event(
    registry: Registry,
    change: Change,
    *,
    ref: ChannelRef = SAMPLE_CHANNEL,
    operation: str | None = None,
) -> tuple[Event, ChannelState]:
    """One more event on a channel, decided on its state now."""
    number = registry.channels.state(ref).number
    return registry.channels.append(
        ref,
        decided_on=number,
        change=change,
        actor=SAMPLE_ACTOR,
        at=registry.clock(),
        operation=operation or f"operation-{number + 1}",
    )
