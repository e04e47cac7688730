"""What is known of a build and a release: facts, stored once, never changed.

A *record* ties one engine digest to the build key and the platform it was built on. A *release* is
everything that moves together: engine, tokenizer and chat template, serving image, runtime
configuration and the evidence it was cut with.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AwareDatetime, Field

from engine_registry.digest import Digest
from engine_registry.documents import Document, Value
from engine_registry.refs import Slug

MAX_TEXT_CHARS = 400
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARS)]

# The format of a whole registry, in `registry.json`; other formats are refused.
FORMAT = "engine-registry/1"


class Actor(Value):
    """Who did something, and how that was proved (`os-user`, `git-config`, `ci-oidc`, ...)."""

    name: Text
    proved_by: Text


class Parallelism(Value):
    """Ranks of an engine: tensor × pipeline."""

    tensor: Annotated[int, Field(ge=1)] = 1
    pipeline: Annotated[int, Field(ge=1)] = 1

    @property
    def world_size(self) -> int:
        """How many ranks, and so devices, the engine needs."""
        return self.tensor * self.pipeline


class Platform(Value):
    """What an engine is bound to. `None` means that the kind of engine has no such thing.

    Attributes:
        sku: GPU SKU or CPU instruction-set slug, as in the spec (`h100-sxm-80gb`, `cpu-x86-64-v3`).
        sm: CUDA compute capability as major*10+minor, e.g. 90.
        runtime: versions of what loads the engine, e.g. {"xllamacpp": "2026.10.11549"}.
    """

    sku: Slug
    sm: int | None = None
    driver: str | None = None
    cuda: str | None = None
    tensorrt: str | None = None
    parallelism: Parallelism = Parallelism()
    runtime: dict[str, str] = {}


class Record(Document):
    """Facts of one build of one engine. Written after manifest and attestations."""

    engine: Digest
    build_key: Digest
    spec: Text
    model: Slug
    target: Slug
    kind: Slug
    precision: Slug
    platform: Platform
    lock: Digest
    provenance: Digest
    size_bytes: Annotated[int, Field(ge=0)]
    built_by: Actor
    built_at: AwareDatetime
    build_wall_s: float | None = None
    build_peak_rss_bytes: int | None = None


class KeyLink(Document):
    """Build key → engine: written last of a build, so a hit is always complete."""

    build_key: Digest
    engine: Digest


class ReferrerLink(Document):
    """Subject → attached manifest, with what a listing needs."""

    subject: Digest
    manifest: Digest
    artifact_type: Text
    annotations: dict[str, str] = {}


class RegistryInfo(Document):
    """`registry.json`: what this store holds and in which format."""

    format: Text = FORMAT
    created_at: AwareDatetime


class ReleaseContent(Value):
    """What moves together, without number and date: two equal contents are one release.

    Attributes:
        engine: manifest digest of the engine.
        record: digest of the build record the release was cut from.
        tokenizer: digest over tokenizer and chat-template content.
        serving_image: image digest, or `embedded:<package>==<version>` for an in-process server.
        runtime_config: what the server is started with, e.g. slots, context length, threads.
        evidence: manifest digests of the passed reports known when the release was cut.
    """

    engine: Digest
    record: Digest
    kind: Slug
    precision: Slug
    platform: Platform
    tokenizer: Digest
    serving_image: Text
    runtime_config: dict[str, Any] = {}
    evidence: tuple[Digest, ...] = ()


class Release(Document):
    """A numbered, immutable release of MODEL/TARGET."""

    model: Slug
    target: Slug
    number: Annotated[int, Field(ge=1)]
    content: ReleaseContent
    created_by: Actor
    created_at: AwareDatetime

    @property
    def name(self) -> str:
        """`MODEL/TARGET:N`."""
        return f"{self.model}/{self.target}:{self.number}"


__all__ = [
    "FORMAT",
    "Actor",
    "KeyLink",
    "Parallelism",
    "Platform",
    "Record",
    "ReferrerLink",
    "RegistryInfo",
    "Release",
    "ReleaseContent",
]
