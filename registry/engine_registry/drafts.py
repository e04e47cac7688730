"""Engines as values: what is about to be put into a registry, and what is in it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine_registry.digest import Digest
from engine_registry.errors import NotFound
from engine_registry.manifest import WEIGHT, Manifest
from engine_registry.record import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from engine_registry.attachments import Attachment
    from engine_registry.record import Actor, Platform
    from engine_registry.store import Ownership


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFile:
    """One file of an engine directory and the media type of its layer."""

    path: Path
    media_type: str = WEIGHT


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildFacts:
    """Everything of a record that is known before the engine has a digest."""

    build_key: Digest
    spec: str
    model: str
    target: str
    kind: str
    precision: str
    platform: Platform
    built_by: Actor
    built_at: datetime
    build_wall_s: float | None = None
    build_peak_rss_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineDraft:
    """An engine that is about to be put into a registry.

    Attributes:
        files: path inside the engine directory → file.
        ownership: of every file; GIVEN files may be linked and become read-only.
        descriptor: ModelPack `descriptor` facts; a function of the inputs, no times, no hosts.
        config: ModelPack `config` facts; likewise.
        provenance: gives the provenance document once the engine's digest is known.
        lock: the build lock, as committed beside the spec.
        attachments: what else is attached before the record is written.
        attestations: what somebody says of this build, given its provenance document; attached also
            to an engine that is recorded already.
    """

    files: Mapping[str, EngineFile]
    ownership: Ownership
    descriptor: dict[str, Any]
    config: dict[str, Any]
    facts: BuildFacts
    provenance: Callable[[Digest], bytes]
    lock: bytes
    attachments: tuple[Attachment, ...] = field(default=())
    attestations: Callable[[bytes], tuple[Attachment, ...]] = lambda _: ()


def record_of(draft: EngineDraft, engine: Digest, size_bytes: int) -> Record:
    """The record of this build, once its engine has a digest."""
    facts = draft.facts
    return Record(
        engine=engine,
        build_key=facts.build_key,
        spec=facts.spec,
        model=facts.model,
        target=facts.target,
        kind=facts.kind,
        precision=facts.precision,
        platform=facts.platform,
        lock=Digest.of(draft.lock),
        provenance=Digest.of(draft.provenance(engine)),
        size_bytes=size_bytes,
        built_by=facts.built_by,
        built_at=facts.built_at,
        build_wall_s=facts.build_wall_s,
        build_peak_rss_bytes=facts.build_peak_rss_bytes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredEngine:
    """An engine in the registry, with every build that gave exactly these bytes."""

    digest: Digest
    manifest: Manifest
    records: tuple[Record, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all its files."""
        return self.manifest.size_bytes


def not_recorded(engine: Digest) -> NotFound:
    """The error for an engine that no build here gave."""
    return NotFound(
        f"engine {engine}: not in this registry",
        hint="run `enginectl list` to list engines and releases, or `enginectl build`",
        reference="engine-missing",
    )
