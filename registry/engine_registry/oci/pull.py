"""Bring an engine from a repository of an OCI registry into a registry, with all that is known.

The repository is an origin like any other: what it sends is read and checked as a whole before
anything is stored (`transfer_cargo`), and each blob when it arrives.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, BinaryIO

from engine_registry import layout
from engine_registry.digest import Digest
from engine_registry.documents import seal, unseal
from engine_registry.errors import IntegrityError, InvalidInput, NotFound
from engine_registry.manifest import Manifest, read_manifest
from engine_registry.oci.download import fetch_blob
from engine_registry.oci.manifests import Manifests
from engine_registry.oci.package import CARRIERS, RECORD_ARTIFACT
from engine_registry.record import KeyLink, Record, Release
from engine_registry.transfer import bring
from engine_registry.transfer_cargo import (
    MAX_ATTACHED,
    MAX_DOCUMENT_BYTES,
    link_of,
    read_cargo,
    refs_of,
)
from engine_registry.transfer_origin import check_arrived

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from engine_registry.oci.session import Remote
    from engine_registry.record import Actor
    from engine_registry.registry import Registry
    from engine_registry.transfer import Arrival

# As in `closure`: more levels of attachments of attachments are no accident.
_MAX_DEPTH = 16


def pull(
    remote: Remote,
    to: Registry,
    *,
    actor: Actor,
    renumber: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[tuple[Arrival, Release | None]]:
    """Bring an engine, what is attached to it, its records and its releases into a registry.

    Returns:
        What happened to each release, as it is called there; once for an engine without one.

    Raises:
        NotFound: nothing is there, or no enginectl pushed it (`record-missing`).
        IntegrityError: something is damaged or contradicts itself; nothing became visible.
        Conflict: as `transfer.bring`.
    """
    ref = remote.ref
    if ref.digest is None and ref.tag is None:
        raise InvalidInput(
            f"{ref}: names a repository and no engine in it",
            hint=f"name one: oci://{ref.host}/{ref.repository}@sha256:… or :TAG",
            reference="invalid-oci-address",
        )
    origin = RemoteOrigin(remote)
    engine = ref.digest or origin.manifests.digest_of_tag(ref.tag or "")
    releases = origin.load(engine)
    found: list[tuple[Arrival, Release | None]] = []
    wanted: list[Release | None] = [*releases] or [None]
    for release in wanted:
        cargo = read_cargo(origin, engine, refs_of(release) if release else None)
        arrival = bring(cargo, origin, to, actor=actor, renumber=renumber, progress=progress)
        found.append((arrival, release))
    return found


class RemoteOrigin:
    """See `Origin`: a repository, once `load` has read what is attached to an engine there."""

    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self.manifests = Manifests(remote)
        self._documents: dict[str, bytes] = {}
        self._stored: dict[Digest, bytes] = {}

    def load(self, engine: Digest) -> list[Release]:
        """Read all manifests and documents of an engine; its releases, in order of name."""
        self._walk(engine, engine, 0)
        return [
            unseal(data, Release, name)[0]
            for name, data in sorted(self._documents.items())
            if name.startswith(f"{layout.RELEASES}/")
        ]

    def read(self, name: str) -> bytes:
        """See `Origin.read`."""
        if name not in self._documents:
            raise NotFound(
                f"{name}: not in {self._remote.ref}",
                hint="push it again with `enginectl push`",
                reference="oci-not-found",
            )
        return self._documents[name]

    def children(self, folder: str) -> list[str]:
        """See `Origin.children`."""
        prefix = f"{folder}/"
        names = (n.removeprefix(prefix) for n in self._documents if n.startswith(prefix))
        return sorted(name for name in names if "/" not in name)

    def open(self, digest: Digest) -> BinaryIO:
        """See `Origin.open`: a manifest that was read, or a small blob."""
        return io.BytesIO(self._stored[digest] if digest in self._stored else self._blob(digest))

    def file(self, digest: Digest) -> Path | None:  # noqa: ARG002 none is here
        """See `Origin.file`."""
        return None

    def fetch(self, digest: Digest, size_bytes: int, path: Path) -> None:
        """See `Origin.fetch`."""
        fetch_blob(self._remote, digest, size_bytes, path)

    def _walk(self, subject: Digest, engine: Digest, depth: int) -> None:
        self._read_manifest(subject)
        if depth > _MAX_DEPTH:
            raise self._unusable(f"{subject.short} is attached to something attached, {depth} deep")
        for digest in self.manifests.referrers(subject):
            if len(self._stored) > MAX_ATTACHED:
                raise self._unusable(f"more than {MAX_ATTACHED:,} manifests belong to {engine}")
            try:
                manifest = self._read_manifest(digest)
            except NotFound:
                continue  # a list may name what was deleted
            link = link_of(manifest, digest)
            if link is None or link.subject != subject:
                raise self._unusable(f"{digest.short} is listed as attached to {subject.short}")
            if manifest.artifact_type in CARRIERS:
                self._take_document(manifest, engine)
                continue
            self._documents[layout.referrer(subject, digest)] = seal(link)
            self._walk(digest, engine, depth + 1)

    def _read_manifest(self, digest: Digest) -> Manifest:
        data = self._stored.get(digest)
        if data is None:
            data = self._stored[digest] = self.manifests.get(digest)
        return read_manifest(data, digest)

    def _take_document(self, manifest: Manifest, engine: Digest) -> None:
        layer = manifest.layers[0]
        if layer.size > MAX_DOCUMENT_BYTES:
            raise self._unusable(f"a document has {layer.size:,} bytes")
        data = self._blob(layer.digest)
        check_arrived(layer.digest, layer.size, Digest.of(data), len(data))
        where = str(self._remote.ref)
        if manifest.artifact_type == RECORD_ARTIFACT:
            record, _ = unseal(data, Record, where)
            self._documents[layout.record(record.engine, record.build_key)] = data
            link = KeyLink(build_key=record.build_key, engine=engine)
            self._documents[layout.key(record.build_key, engine)] = seal(link)
        else:
            release, _ = unseal(data, Release, where)
            if release.content.engine != engine:
                raise self._unusable(f"release {release.name} is of another engine")
            self._documents[layout.release(refs_of(release))] = data

    def _blob(self, digest: Digest) -> bytes:
        """A small blob, or the first bytes of one that is too long to be one."""
        answer = self._remote.request("GET", f"blobs/{digest}", expect=(200,), stream=True)
        with answer:
            return bytes(answer.raw.read(MAX_DOCUMENT_BYTES + 1, decode_content=True))

    def _unusable(self, what: str) -> IntegrityError:
        return IntegrityError(
            f"{self._remote.ref}: {what}",
            hint="look at it with another OCI tool, such as `oras discover`",
            reference="oci-answer-unusable",
        )
