"""Checks of every stored document: its envelope, its name, and what it refers to."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from engine_registry import layout
from engine_registry.documents import Document, unseal
from engine_registry.errors import EngineCIError, IntegrityError, InvalidInput, NotFound
from engine_registry.holds import ReleaseHold
from engine_registry.manifest import Descriptor, Manifest, read_manifest
from engine_registry.mismatch import MismatchKind
from engine_registry.record import (
    FORMAT,
    KeyLink,
    Record,
    ReferrerLink,
    RegistryInfo,
    Release,
)
from engine_registry.refs import ChannelRef, ProductRef, ReleaseRef
from engine_registry.retired import Retired
from engine_registry.sets import SetDecision
from engine_registry.touched import Touch, name_of

if TYPE_CHECKING:
    from engine_registry.digest import Digest
    from engine_registry.mismatch import Findings
    from engine_registry.store import Stores

D = TypeVar("D", bound=Document)

_EVENT_PARTS = 6  # channels/<model>/<target>/<channel>/events/<number>.json
_HEAD_PARTS = 5  # channels/<model>/<target>/<channel>/head.json


class DocumentChecks:
    """One pass over the documents of a registry.

    Args:
        stores: where they lie.
        blob_sizes: size of every stored blob; their bytes are checked elsewhere.
        findings: where mismatches go.
    """

    def __init__(self, stores: Stores, blob_sizes: dict[Digest, int], findings: Findings) -> None:
        self._blobs = stores.blobs
        self._documents = stores.documents
        self._sizes = blob_sizes
        self._findings = findings
        self._names: set[str] = set()
        self._unreadable: set[Digest] = set()
        self._manifests: dict[Digest, Manifest | None] = {}

    def check(self, names: list[str]) -> list[ChannelRef]:
        """Check the documents of these names; the channels among them are left to the caller."""
        self._names = set(names)
        channels: set[ChannelRef] = set()
        for name in names:
            ref = _channel_of(name)
            if ref is not None:
                channels.add(ref)
            else:
                self._check_one(name)
        return sorted(channels)

    def _check_one(self, name: str) -> None:
        match name.split("/", maxsplit=1)[0]:
            case layout.REGISTRY:
                self._check_info(name)
            case layout.RECORDS:
                self._check_record(name)
            case layout.KEYS:
                self._check_key(name)
            case layout.REFERRERS:
                self._check_referrer(name)
            case layout.RELEASES if name.endswith(layout.RETIRED):
                self._check_retired(name)
            case layout.RELEASES:
                self._check_release(name)
            case layout.HOLDS:
                self._check_hold(name)
            case layout.TOUCHED:
                self._check_touch(name)
            case layout.SETS:
                self._check_set(name)
            case _:
                self._foreign(name)

    def _check_info(self, name: str) -> None:
        info = self._read(name, RegistryInfo)
        if info is not None and info.format != FORMAT:
            self._findings.add(name, MismatchKind.INCONSISTENT, expected=FORMAT, found=info.format)

    def _check_record(self, name: str) -> None:
        record = self._read(name, Record)
        if record is None or not self._at(name, layout.record(record.engine, record.build_key)):
            return
        by = f"record {name}"
        manifest = self._need_manifest(record.engine, by)
        if manifest is not None and manifest.size_bytes != record.size_bytes:
            self._findings.add(
                name,
                MismatchKind.INCONSISTENT,
                expected=f"{manifest.size_bytes:,} bytes as in the manifest",
                found=f"{record.size_bytes:,} bytes",
            )
        self._need_blob(record.lock, None, by)
        self._need_blob(record.provenance, None, by)

    def _check_key(self, name: str) -> None:
        link = self._read(name, KeyLink)
        if link is not None and self._at(name, layout.key(link.build_key, link.engine)):
            self._need_document(layout.record(link.engine, link.build_key), name)

    def _check_referrer(self, name: str) -> None:
        link = self._read(name, ReferrerLink)
        if link is None or not self._at(name, layout.referrer(link.subject, link.manifest)):
            return
        self._need_manifest(link.subject, name)
        attached = self._need_manifest(link.manifest, name)
        if attached is None:
            return
        subject = attached.subject.digest if attached.subject else None
        says = (subject, attached.artifact_type, attached.annotations or {})
        if says != (link.subject, link.artifact_type, link.annotations):
            self._findings.add(
                name,
                MismatchKind.INCONSISTENT,
                expected=f"{attached.artifact_type} attached to {subject}, as in its manifest",
                found=f"{link.artifact_type} attached to {link.subject}",
            )

    def _check_release(self, name: str) -> None:
        release = self._read(name, Release)
        if release is None:
            return
        ref = ReleaseRef(ProductRef(release.model, release.target), release.number)
        if not self._at(name, layout.release(ref)):
            return
        content = release.content
        self._need_manifest(content.engine, name)
        if content.record not in self._records(content.engine):
            self._findings.add(
                name,
                MismatchKind.MISSING,
                expected=f"record {content.record} of engine {content.engine}",
                found="no such record",
            )
        for manifest in content.evidence:
            self._need_document(layout.referrer(content.engine, manifest), name)

    def _check_retired(self, name: str) -> None:
        gone = self._read(name, Retired)
        if gone is not None:
            ref = ReleaseRef(ProductRef(gone.model, gone.target), gone.number)
            self._at(name, layout.retired(ref))

    def _check_hold(self, name: str) -> None:
        hold = self._read(name, ReleaseHold)
        if hold is None:
            return
        ref = ReleaseRef(ProductRef(hold.model, hold.target), hold.number)
        if self._at(name, layout.hold(ref)) and not hold.is_lifted:
            self._need_document(layout.release(ref), name)

    def _check_touch(self, name: str) -> None:
        touch = self._read(name, Touch)
        if touch is not None:
            self._at(name, name_of(touch))

    def _check_set(self, name: str) -> None:
        decision = self._read(name, SetDecision)
        if decision is None or not self._at(name, layout.release_set(decision.set)):
            return
        for member in decision.members:
            try:
                channel = ChannelRef.parse(member.channel)
            except InvalidInput as error:
                self._findings.add(
                    name,
                    MismatchKind.INCONSISTENT,
                    expected="MODEL/TARGET/CHANNEL of each member",
                    found=error.message,
                )
                continue
            self._need_document(layout.event(channel, member.event), name)

    def _records(self, engine: Digest) -> set[Digest]:
        folder = layout.records(engine)
        found = set()
        for child in self._documents.children(folder):
            try:
                name = f"{folder}/{child}"
                found.add(unseal(self._documents.read(name), Record, name)[1])
            except (IntegrityError, NotFound):
                continue  # reported where the record itself is checked
        return found

    def _read(self, name: str, kind: type[D]) -> D | None:
        try:
            return unseal(self._documents.read(name), kind, name)[0]
        except IntegrityError as error:
            self._findings.add(
                name, MismatchKind.DAMAGED, expected=f"a whole {kind.__name__}", found=error.message
            )
        except EngineCIError as error:
            self._findings.add(
                name,
                MismatchKind.UNREADABLE,
                expected=f"a whole {kind.__name__}",
                found=error.message,
            )
        return None

    def _at(self, name: str, expected: str) -> bool:
        if name != expected:
            self._findings.add(name, MismatchKind.MISPLACED, expected=name, found=expected)
        return name == expected

    def _need_document(self, name: str, by: str) -> None:
        # Written after the listing was taken: not missing.
        if name not in self._names and not self._documents.exists(name):
            self._findings.add(
                name, MismatchKind.MISSING, expected=f"named by {by}", found="absent"
            )

    def _need_manifest(self, digest: Digest, by: str) -> Manifest | None:
        """The manifest, with everything it lists looked for; None if it cannot be read."""
        if digest in self._manifests:
            return self._manifests[digest]
        manifest = None
        if self._need_blob(digest, None, by):
            try:
                with self._blobs.open(digest) as stream:
                    manifest = read_manifest(stream.read(), digest)
            except IntegrityError as error:
                self._findings.add(
                    layout.blob(digest),
                    MismatchKind.DAMAGED,
                    expected=f"manifest {digest}",
                    found=error.message,
                )
            except EngineCIError:
                pass  # reported where its bytes are hashed
        self._manifests[digest] = manifest
        if manifest is not None:
            for part in (manifest.config, *manifest.layers):
                self._need_part(part, digest)
        return manifest

    def _need_part(self, part: Descriptor, manifest: Digest) -> None:
        self._need_blob(part.digest, part.size, f"manifest {manifest}")

    def _need_blob(self, digest: Digest, size_bytes: int | None, by: str) -> bool:
        stored = self._size(digest)
        if digest in self._unreadable:
            return False
        if stored is None:
            self._findings.add(
                layout.blob(digest), MismatchKind.MISSING, expected=f"named by {by}", found="absent"
            )
        elif size_bytes not in {None, stored}:
            self._findings.add(
                layout.blob(digest),
                MismatchKind.INCONSISTENT,
                expected=f"{size_bytes:,} bytes, named by {by}",
                found=f"{stored:,} bytes",
            )
        return stored is not None

    def _size(self, digest: Digest) -> int | None:
        if digest not in self._sizes:
            try:
                with self._blobs.open(digest) as stream:  # stored after the listing was taken
                    self._sizes[digest] = len(stream.read())
            except NotFound:
                return None
            except EngineCIError as error:
                self._findings.add(
                    layout.blob(digest),
                    MismatchKind.UNREADABLE,
                    expected=str(digest),
                    found=error.message,
                )
                self._unreadable.add(digest)
                return None
        return self._sizes[digest]

    def _foreign(self, name: str) -> None:
        self._findings.add(
            name, MismatchKind.FOREIGN, expected="only files of a registry", found="a foreign file"
        )


def _channel_of(name: str) -> ChannelRef | None:
    """The channel that an event or a pointer belongs to; None for any other name."""
    parts = name.split("/")
    event = len(parts) == _EVENT_PARTS and parts[4] == "events"
    head = len(parts) == _HEAD_PARTS and parts[4] == "head.json"
    if parts[0] != layout.CHANNELS or not (event or head):
        return None
    if event and layout.number_of(parts[5]) is None:
        return None
    try:
        return ChannelRef.parse("/".join(parts[1:4]))
    except InvalidInput:
        return None
