"""What a registry of ours knows of an engine besides its manifest, as OCI artifacts. Pure.

A record and a release are documents, not blobs of the engine. They travel as manifests attached to
the engine, with the stored document as their only layer, so that a pulled engine is as complete as
one that was built here. They are not attached on arrival: they become documents again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_registry.digest import Digest
from engine_registry.manifest import Descriptor, Manifest, file_layer, referrer_manifest
from engine_registry.transfer_cargo import refs_of

if TYPE_CHECKING:
    from engine_registry.transfer_cargo import Cargo

RECORD_ARTIFACT = "application/vnd.engine-ci.build-record.v1+json"
RELEASE_ARTIFACT = "application/vnd.engine-ci.release.v1+json"
CARRIERS = frozenset({RECORD_ARTIFACT, RELEASE_ARTIFACT})
RELEASE_NAME = "org.engine-ci.release"
_DOCUMENT = "application/json"


def carriers(cargo: Cargo, engine: Descriptor) -> list[tuple[Manifest, bytes]]:
    """The manifests that carry the documents of a cargo, records first, each with its layer."""
    found = [
        _carrier(engine, RECORD_ARTIFACT, "record.json", document.data, {})
        for document, _, _ in cargo.records
    ]
    if cargo.release is not None:
        document, release = cargo.release
        name = {RELEASE_NAME: str(refs_of(release))}
        found.append(_carrier(engine, RELEASE_ARTIFACT, "release.json", document.data, name))
    return found


def _carrier(
    engine: Descriptor, kind: str, title: str, data: bytes, annotations: dict[str, str]
) -> tuple[Manifest, bytes]:
    layer = file_layer(title, Digest.of(data), len(data), _DOCUMENT)
    return referrer_manifest(engine, kind, [layer], annotations), data
