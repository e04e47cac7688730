"""An engine as an OCI 1.1 image manifest with ModelPack media types; reports as its referrers.

Owns the mapping between files and manifest bytes, both ways, and refuses hostile titles. The
manifest is a function of the files and of facts read from them: no times, no hosts, no keys, so
the same bytes give the same digest wherever they were built.

Sources: OCI image-spec 1.1 (manifest.md, descriptor.md); CNCF ModelPack model-spec (config.md,
annotations `org.cncf.model.filepath`).
"""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import IntegrityError, InvalidInput

MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
EMPTY = "application/vnd.oci.empty.v1+json"
MODEL_ARTIFACT = "application/vnd.cncf.model.manifest.v1+json"
MODEL_CONFIG = "application/vnd.cncf.model.config.v1+json"
WEIGHT = "application/vnd.cncf.model.weight.v1.raw"
WEIGHT_CONFIG = "application/vnd.cncf.model.weight.config.v1.raw"
DOC = "application/vnd.cncf.model.doc.v1.raw"
TITLE = "org.opencontainers.image.title"
FILEPATH = "org.cncf.model.filepath"
REPORT_ARTIFACT = "application/vnd.engine-ci.gate-report.v1+json"
PROVENANCE_ARTIFACT = "application/vnd.in-toto.provenance.v1+json"
LOCK_ARTIFACT = "application/vnd.engine-ci.build-lock.v1+json"
MAX_FILES = 4096
MAX_TITLE = 255


class _Oci(BaseModel):
    # The OCI rules ask readers to ignore unknown fields, so these models do.
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class Descriptor(_Oci):
    """What a manifest says of one blob."""

    media_type: Annotated[str, Field(alias="mediaType", min_length=3, max_length=255)]
    digest: Digest
    size: Annotated[int, Field(ge=0)]
    annotations: dict[str, str] | None = None
    artifact_type: Annotated[str | None, Field(alias="artifactType")] = None

    @property
    def title(self) -> str | None:
        """The file's path in the engine directory."""
        return (self.annotations or {}).get(TITLE)


class Manifest(_Oci):
    """An OCI image manifest."""

    schema_version: Annotated[Literal[2], Field(alias="schemaVersion")] = 2
    media_type: Annotated[
        Literal["application/vnd.oci.image.manifest.v1+json"], Field(alias="mediaType")
    ] = MANIFEST
    artifact_type: Annotated[str | None, Field(alias="artifactType")] = None
    config: Descriptor
    layers: Annotated[tuple[Descriptor, ...], Field(min_length=1, max_length=MAX_FILES)]
    subject: Descriptor | None = None
    annotations: dict[str, str] | None = None

    def to_bytes(self) -> bytes:
        """The canonical bytes to store; their digest is the manifest's."""
        return canonical_json(self.model_dump(mode="json", by_alias=True, exclude_none=True))

    @property
    def size_bytes(self) -> int:
        """Bytes of all layers together."""
        return sum(layer.size for layer in self.layers)


# `{}`: the OCI empty descriptor, config of manifests that carry everything in layers.
EMPTY_BYTES = b"{}"
EMPTY_DESCRIPTOR = Descriptor(media_type=EMPTY, digest=Digest.of(EMPTY_BYTES), size=2)


def check_title(title: str) -> str:
    """`title` if it is a relative path that stays inside its directory.

    Raises:
        InvalidInput: absolute, climbing, empty, over-long, or with control characters.
    """
    path = PurePosixPath(title)
    bad = (
        not title
        or len(title) > MAX_TITLE
        or path.is_absolute()
        or str(path) != title
        or any(part in {"", "..", "."} for part in title.split("/"))
        or "\\" in title
        or not title.isprintable()
    )
    if bad:
        raise InvalidInput(
            f"unsafe file name in an engine: {title[:80]!r}",
            hint="engine files must be relative paths below the engine directory",
            reference="unsafe-file-name",
        )
    return title


def check_titles(titles: list[str]) -> None:
    """Confirm that these paths can be the files of one engine directory.

    Raises:
        InvalidInput: none at all, an unsafe one, one twice, or one inside another.
    """
    if not titles:
        raise InvalidInput(
            "engine has no files",
            hint="point at the directory that the build filled",
            reference="no-engine-files",
        )
    known = {check_title(title) for title in titles}
    if len(known) != len(titles):
        twice = sorted({title for title in titles if titles.count(title) > 1})
        raise InvalidInput(
            f"engine names a file twice: {', '.join(twice)[:200]}",
            hint="every file of an engine directory must have its own path",
            reference="duplicate-file-name",
        )
    for title in titles:
        for parent in PurePosixPath(title).parents:
            if str(parent) in known:
                raise InvalidInput(
                    f"engine names {str(parent)!r} as a file and as the directory of {title!r}",
                    hint="every file of an engine directory must have its own path",
                    reference="duplicate-file-name",
                )


def file_layer(title: str, digest: Digest, size_bytes: int, media_type: str = WEIGHT) -> Descriptor:
    """The layer of one engine file; `title` is checked."""
    check_title(title)
    return Descriptor(
        media_type=media_type,
        digest=digest,
        size=size_bytes,
        annotations={TITLE: title, FILEPATH: title},
    )


def model_config(
    descriptor: dict[str, Any], config: dict[str, Any], diff_ids: list[Digest]
) -> bytes:
    """The ModelPack config blob: what the model is, how it is stored, its layers in order."""
    return canonical_json(
        {
            "descriptor": descriptor,
            "config": config,
            "modelfs": {"type": "layers", "diffIds": [str(item) for item in diff_ids]},
        }
    )


def engine_manifest(config: Descriptor, layers: list[Descriptor]) -> Manifest:
    """The manifest of an engine; layers are put in title order, duplicates are refused."""
    check_titles([layer.title or "" for layer in layers])
    ordered = tuple(sorted(layers, key=lambda layer: layer.title or ""))
    return Manifest(artifact_type=MODEL_ARTIFACT, config=config, layers=ordered)


def referrer_manifest(
    subject: Descriptor, artifact_type: str, layers: list[Descriptor], annotations: dict[str, str]
) -> Manifest:
    """A manifest attached to `subject` (OCI 1.1 `subject` field)."""
    return Manifest(
        artifact_type=artifact_type,
        config=EMPTY_DESCRIPTOR,
        layers=tuple(layers),
        subject=subject,
        annotations=annotations or None,
    )


def read_manifest(data: bytes, expected: Digest) -> Manifest:
    """Parse stored manifest bytes after checking them against the digest they were asked by.

    Raises:
        IntegrityError: the bytes do not match, are no manifest, or a title is unsafe or doubled.
    """
    actual = Digest.of(data)
    if actual != expected:
        raise IntegrityError(
            f"manifest {expected.short}: stored bytes have digest {actual}, want {expected}",
            hint="run `enginectl verify` to list every damaged file",
            reference="manifest-damaged",
        )
    try:
        manifest = Manifest.model_validate_json(data)
        titles = [layer.title for layer in manifest.layers if layer.title is not None]
        if titles:
            check_titles(titles)
    except (ValidationError, InvalidInput, json.JSONDecodeError) as error:
        raise IntegrityError(
            f"manifest {expected.short}: not a usable OCI image manifest: {_first_line(error)}",
            hint="inspect it with `enginectl inspect` or any OCI tool",
            reference="manifest-not-readable",
        ) from error
    return manifest


def _first_line(error: Exception) -> str:
    """What is wrong, in one line; text out of the manifest is quoted."""
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "document"
        return f"{where[:120]!r}: {first['msg'][:200]}"
    return str(error)[:200]
