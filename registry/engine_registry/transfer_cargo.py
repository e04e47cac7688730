"""Everything that belongs to an engine or a release, read from wherever it comes from and checked.

A cargo is complete and consistent before its first byte is sent: every document is whole and lies
where its content says, every manifest has its digest, every blob that is needed is known with its
size. The bytes of the blobs themselves are checked when they arrive.

An origin may be hostile (an archive, a remote registry): nothing is believed that a manifest or a
record does not say itself, and how much is read is limited.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Protocol

from engine_registry import layout
from engine_registry.documents import seal, unseal
from engine_registry.errors import IntegrityError, NotFound
from engine_registry.manifest import Manifest, read_manifest
from engine_registry.record import KeyLink, Record, ReferrerLink, Release
from engine_registry.refs import ProductRef, ReleaseRef

if TYPE_CHECKING:
    from pathlib import Path

    from engine_registry.digest import Digest

# The OCI distribution spec asks registries to take manifests of at least this size.
MAX_MANIFEST_BYTES = 4 << 20
MAX_DOCUMENT_BYTES = 1 << 20
MAX_ATTACHED = 10_000
MAX_RECORDS = 1_000
# As in `closure`: more levels of attachments of attachments are no accident.
_MAX_DEPTH = 16


class Origin(Protocol):
    """Where a cargo comes from."""

    def read(self, name: str) -> bytes:
        """A stored document. Raises NotFound."""
        ...

    def children(self, folder: str) -> list[str]:
        """Names directly below `folder`; empty if absent."""
        ...

    def open(self, digest: Digest) -> BinaryIO:
        """A blob's bytes, unchecked; for small ones. Raises NotFound."""
        ...

    def file(self, digest: Digest) -> Path | None:
        """Where the blob lies as a file of its own, if it does: it can be taken in from there."""
        ...

    def fetch(self, digest: Digest, size_bytes: int, path: Path) -> None:
        """Write the blob to `path`, a new file, and check it on the way.

        Raises:
            IntegrityError: it has another size or digest; `path` is not to be used.
            NotFound: it is not there.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Part:
    """A blob that is needed."""

    digest: Digest
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A document that is needed: its stored name and bytes."""

    name: str
    data: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Cargo:
    """An engine, and perhaps a release of it, with all that belongs to it.

    Attributes:
        files: blobs that are no manifests, in order of digest, each once.
        manifests: the engine's, then those of what is attached, subjects first.
        links: from each subject to what is attached to it.
        records: of every build that gave this engine.
        keys: from each build key to the engine.
        release: the document of the release.
    """

    engine: Digest
    files: tuple[Part, ...]
    manifests: tuple[Part, ...]
    links: tuple[Document, ...]
    records: tuple[tuple[Document, Record, Digest], ...]
    keys: tuple[Document, ...]
    release: tuple[Document, Release] | None

    @property
    def size_bytes(self) -> int:
        """Bytes of all blobs together."""
        return sum(part.size_bytes for part in (*self.files, *self.manifests))

    @property
    def documents(self) -> tuple[Document, ...]:
        """All documents, in the order of writing."""
        records = tuple(document for document, _, _ in self.records)
        release = (self.release[0],) if self.release else ()
        return (*self.links, *records, *self.keys, *release)


def read_cargo(origin: Origin, engine: Digest, release: ReleaseRef | None = None) -> Cargo:
    """All that belongs to an engine, and to a release of it if one is named.

    Raises:
        NotFound: a document or a manifest is missing.
        IntegrityError: something is damaged or contradicts itself; names both sides.
    """
    reader = _Reader(origin)
    manifest = reader.attached(engine, 0)
    records = _records(origin, engine, manifest, set(reader.parts))
    keys = []
    for _, record, _ in records:
        name = layout.key(record.build_key, engine)
        link, _ = unseal(read_document(origin, name), KeyLink, name)
        if link != KeyLink(build_key=record.build_key, engine=engine):
            raise _contradiction(name, f"leads to engine {engine.short}", link.engine.short)
        keys.append(Document(name=name, data=seal(link)))
    found = None
    if release is not None:
        evidence = {name for subject, name in reader.linked if subject == engine}
        found = _release(origin, release, engine, {digest for _, _, digest in records}, evidence)
    manifests = {part.digest for part in reader.manifests}
    files = (
        Part(digest=digest, size_bytes=size)
        for digest, size in reader.parts.items()
        if digest not in manifests
    )
    return Cargo(
        engine=engine,
        files=tuple(sorted(files)),
        manifests=tuple(reader.manifests),
        links=tuple(reader.links),
        records=tuple(records),
        keys=tuple(keys),
        release=found,
    )


def read_document(origin: Origin, name: str) -> bytes:
    """A document's bytes, if it is not too long to be one."""
    data = origin.read(name)
    if len(data) > MAX_DOCUMENT_BYTES:
        raise _contradiction(name, f"at most {MAX_DOCUMENT_BYTES:,} bytes", f"{len(data):,} bytes")
    return data


def release_in(data: bytes, ref: ReleaseRef) -> Release:
    """The release in a stored document that was found under the name of `ref`."""
    name = layout.release(ref)
    release, _ = unseal(data, Release, name)
    if release.name != str(ref):
        raise _contradiction(name, f"release {ref}", f"release {release.name}")
    return release


class _Reader:
    """Walks from an engine to everything attached."""

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self.parts: dict[Digest, int] = {}
        self.manifests: list[Part] = []
        self.links: list[Document] = []
        self.linked: set[tuple[Digest, Digest]] = set()

    def attached(self, subject: Digest, depth: int) -> Manifest:
        """Take in a manifest, its blobs, and everything attached to it."""
        if depth > _MAX_DEPTH or len(self.manifests) >= MAX_ATTACHED:
            raise IntegrityError(
                f"manifest {subject}: {len(self.manifests):,} manifests, {depth} levels deep, are "
                f"more than {MAX_ATTACHED:,} and {_MAX_DEPTH}",
                hint="run `enginectl verify` to see what is attached to what",
                reference="referrers-too-deep",
            )
        with self._origin.open(subject) as stream:
            data = stream.read(MAX_MANIFEST_BYTES + 1)
        if len(data) > MAX_MANIFEST_BYTES:
            want = f"a manifest of at most {MAX_MANIFEST_BYTES:,} bytes"
            raise _contradiction(f"manifest {subject}", want, "more")
        manifest = read_manifest(data, subject)
        self.manifests.append(Part(digest=subject, size_bytes=len(data)))
        self._need(subject, len(data))
        for descriptor in (manifest.config, *manifest.layers):
            self._need(descriptor.digest, descriptor.size)
        for child in self._origin.children(layout.referrers(subject)):
            digest = layout.digest_of(child)
            if digest is not None:
                self._link(subject, digest, depth)
        return manifest

    def _link(self, subject: Digest, attached: Digest, depth: int) -> None:
        name = layout.referrer(subject, attached)
        link, _ = unseal(read_document(self._origin, name), ReferrerLink, name)
        manifest = self.attached(attached, depth + 1)
        says = link_of(manifest, attached)
        if link != says or link.subject != subject:
            raise _contradiction(
                name,
                f"{says.artifact_type if says else None} attached to "
                f"{says.subject if says else None}, as in its manifest",
                f"{link.artifact_type} attached to {link.subject}",
            )
        self.linked.add((subject, attached))
        self.links.append(Document(name=name, data=seal(link)))

    def _need(self, digest: Digest, size_bytes: int) -> None:
        known = self.parts.setdefault(digest, size_bytes)
        if known != size_bytes:
            raise _contradiction(f"blob {digest}", f"{known:,} bytes", f"{size_bytes:,} bytes")


def link_of(manifest: Manifest, digest: Digest) -> ReferrerLink | None:
    """The link that an attached manifest asks for; None if it is attached to nothing."""
    if manifest.subject is None or not manifest.artifact_type:
        return None
    return ReferrerLink(
        subject=manifest.subject.digest,
        manifest=digest,
        artifact_type=manifest.artifact_type,
        annotations=manifest.annotations or {},
    )


def _records(
    origin: Origin, engine: Digest, manifest: Manifest, attached: set[Digest]
) -> list[tuple[Document, Record, Digest]]:
    found = []
    folder = layout.records(engine)
    children = origin.children(folder)
    for child in children[: MAX_RECORDS + 1]:
        name = f"{folder}/{child}"
        data = read_document(origin, name)
        record, digest = unseal(data, Record, name)
        if layout.record(record.engine, record.build_key) != name or record.engine != engine:
            raise _contradiction(
                name,
                f"the record of engine {engine.short}",
                f"engine {record.engine.short}, build key {record.build_key.short}",
            )
        if record.size_bytes != manifest.size_bytes:
            raise _contradiction(
                name,
                f"{manifest.size_bytes:,} bytes as in the manifest",
                f"{record.size_bytes:,} bytes",
            )
        for what, blob in (("lock", record.lock), ("provenance", record.provenance)):
            if blob not in attached:
                raise _contradiction(name, f"{what} {blob} attached to the engine", "it is not")
        found.append((Document(name=name, data=data), record, digest))
    if not found:
        raise NotFound(
            f"engine {engine}: no build of it is recorded there",
            hint="only what an enginectl has recorded can be brought into a registry",
            reference="record-missing",
        )
    if len(found) > MAX_RECORDS:
        raise _contradiction(folder, f"at most {MAX_RECORDS:,} records", "more")
    return found


def _release(
    origin: Origin,
    ref: ReleaseRef,
    engine: Digest,
    records: set[Digest],
    evidence: set[Digest],
) -> tuple[Document, Release]:
    name = layout.release(ref)
    data = read_document(origin, name)
    release = release_in(data, ref)
    content = release.content
    if content.engine != engine:
        raise _contradiction(name, f"engine {engine.short}", f"engine {content.engine.short}")
    if content.record not in records:
        raise _contradiction(name, f"record {content.record} of its engine", "no such record")
    for manifest in content.evidence:
        if manifest not in evidence:
            raise _contradiction(name, f"evidence {manifest} attached to its engine", "it is not")
    return Document(name=name, data=data), release


def _contradiction(thing: str, want: str, found: str) -> IntegrityError:
    return IntegrityError(
        f"{thing}: want {want}, found {found}",
        hint="run `enginectl verify` where it comes from, and send it again",
        reference="cargo-inconsistent",
    )


def refs_of(release: Release) -> ReleaseRef:
    """The name of a release as a reference."""
    return ReleaseRef(ProductRef(release.model, release.target), release.number)
