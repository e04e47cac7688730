"""What is attached to a manifest: reports, provenance, locks, as OCI 1.1 referrers.

The link is written after the manifest it names, and the manifest after its blobs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from engine_registry import layout
from engine_registry.ahead import read_all
from engine_registry.digest import Digest
from engine_registry.documents import seal, unseal
from engine_registry.errors import IntegrityError, NotFound
from engine_registry.manifest import (
    EMPTY_BYTES,
    Descriptor,
    Manifest,
    file_layer,
    read_manifest,
    referrer_manifest,
)
from engine_registry.record import ReferrerLink

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_registry.store import Stores


@dataclass(frozen=True, slots=True, kw_only=True)
class Attachment:
    """Something to attach.

    Attributes:
        artifact_type: media type that says what it is.
        files: title, bytes, media type of each.
        annotations: what a listing shows without opening it.
    """

    artifact_type: str
    files: tuple[tuple[str, bytes, str], ...]
    annotations: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_json(cls, artifact_type: str, title: str, data: bytes) -> Self:
        """One JSON document."""
        return cls(artifact_type=artifact_type, files=((title, data, "application/json"),))


class Attachments:
    """Referrers and the small blobs behind them, in one registry."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self._blobs = stores.blobs
        self._documents = stores.documents

    def put(
        self,
        subject: Descriptor,
        attachment: Attachment,
        announce: Callable[[], None] = lambda: None,
    ) -> Digest:
        """Attach; the digest of the attached manifest. The same one again is a no-op.

        Args:
            subject: what to attach to.
            attachment: what to attach.
            announce: called before something new becomes visible.
        """
        layers = []
        for title, data, media_type in attachment.files:
            stored = self._blobs.add_bytes(data)
            layers.append(file_layer(title, stored.digest, stored.size_bytes, media_type))
        self._blobs.add_bytes(EMPTY_BYTES)
        manifest = referrer_manifest(
            subject, attachment.artifact_type, layers, attachment.annotations
        )
        digest = self._blobs.add_bytes(manifest.to_bytes()).digest
        link = ReferrerLink(
            subject=subject.digest,
            manifest=digest,
            artifact_type=attachment.artifact_type,
            annotations=attachment.annotations,
        )
        name = layout.referrer(subject.digest, digest)
        if not self._documents.exists(name):
            announce()
        self._documents.create(name, seal(link))
        return digest

    def links(self, subject: Digest, artifact_type: str | None) -> list[ReferrerLink]:
        """What is attached to `subject`, all of it or one type, in order of digest."""
        folder = layout.referrers(subject)
        names = [f"{folder}/{child}" for child in self._documents.children(folder)]
        found = []
        for name, read in zip(
            names, read_all(self._stores, self._documents.read, names), strict=True
        ):
            try:
                link, _ = unseal(read(), ReferrerLink, name)
            except NotFound:
                continue  # discarded meanwhile
            if artifact_type is None or link.artifact_type == artifact_type:
                found.append(link)
        return found

    def read(self, manifest: Digest) -> dict[str, bytes]:
        """The files of an attached manifest, by title, checked."""
        layers = self.manifest(manifest).layers
        files = read_all(self._stores, lambda layer: self.blob(layer.digest, layer.size), layers)
        return {
            layer.title or str(layer.digest): file()
            for layer, file in zip(layers, files, strict=True)
        }

    def manifest(self, digest: Digest) -> Manifest:
        """A stored manifest, checked."""
        with self._blobs.open(digest) as stream:
            return read_manifest(stream.read(), digest)

    def blob(self, digest: Digest, size_bytes: int | None) -> bytes:
        """A small blob's bytes, checked."""
        with self._blobs.open(digest) as stream:
            data = stream.read()
        found = Digest.of(data)
        if found != digest or size_bytes not in {None, len(data)}:
            want = "" if size_bytes is None else f" and {size_bytes:,} bytes"
            raise IntegrityError(
                f"blob {digest}: stored {len(data):,} bytes have digest {found}, "
                f"want {digest}{want}",
                hint="run `enginectl verify` to list every damaged file",
                reference="blob-damaged",
            )
        return data
