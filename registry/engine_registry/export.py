"""An engine and everything attached to it as an OCI image layout that any OCI tool reads.

Source: OCI image-spec 1.1, image-layout.md: `oci-layout`, `index.json`, `blobs/sha256/<hex>`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_registry import layout
from engine_registry.documents import canonical_json
from engine_registry.manifest import MANIFEST, Descriptor, Manifest
from engine_registry.materialise import new_directory

if TYPE_CHECKING:
    from pathlib import Path

    from engine_registry.digest import Digest
    from engine_registry.registry import Registry

_INDEX = "application/vnd.oci.image.index.v1+json"
_REF_NAME = "org.opencontainers.image.ref.name"


def export_oci_layout(
    registry: Registry, engine: Digest, directory: Path, *, ref_name: str | None = None
) -> None:
    """Write the engine and its referrers to `directory`, which must not exist.

    The engine is checked first; the directory is whole or absent afterwards. Blobs are cloned or
    linked where the file system can.

    Args:
        registry: where the engine is.
        engine: its manifest digest, which is also its digest in the layout.
        directory: becomes the image layout.
        ref_name: what OCI tools call the engine (`oci:DIR:NAME`); default: its short digest.

    Raises:
        InvalidInput: the directory exists.
        NotFound, IntegrityError: the engine or something attached is not whole.
        Unavailable: no room (`disk-full`), no right.
    """
    stored = registry.engines.check_engine(engine)
    entries = [_entry(engine, stored.manifest, {_REF_NAME: ref_name or engine.short})]
    blobs = _blobs_of(engine, stored.manifest)
    need_bytes = stored.size_bytes
    for link in registry.engines.referrers(engine):
        manifest = registry.engines.manifest(link.manifest)
        registry.engines.read_attachment(link.manifest)  # checks what was attached
        entries.append(_entry(link.manifest, manifest, None))
        blobs |= _blobs_of(link.manifest, manifest)
        need_bytes += manifest.size_bytes
    index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": entries}

    with new_directory(directory, need_bytes) as partial:
        (partial / layout.BLOBS).mkdir(parents=True)
        for digest in sorted(blobs):
            registry.stores.blobs.materialise(digest, partial / layout.blob(digest))
        (partial / "oci-layout").write_bytes(canonical_json({"imageLayoutVersion": "1.0.0"}))
        (partial / "index.json").write_bytes(canonical_json(index))


def _blobs_of(digest: Digest, manifest: Manifest) -> set[Digest]:
    return {digest, manifest.config.digest, *(layer.digest for layer in manifest.layers)}


def _entry(
    digest: Digest, manifest: Manifest, annotations: dict[str, str] | None
) -> dict[str, Any]:
    descriptor = Descriptor(
        media_type=MANIFEST,
        digest=digest,
        size=len(manifest.to_bytes()),
        annotations=annotations,
        artifact_type=manifest.artifact_type,
    )
    return descriptor.model_dump(mode="json", by_alias=True, exclude_none=True)
