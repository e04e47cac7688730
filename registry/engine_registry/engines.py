"""Engines: put one in, find it again, hand it out, attach reports to it.

Owns the order of writes that keeps invariant 1: blobs, manifest, attestations, record, key link. An
engine without a record does not exist for any reader, whatever else of it is stored. Every write is
followed by a look at what it relies on, since a garbage collection may have run meanwhile.
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from engine_registry import layout
from engine_registry.ahead import ahead
from engine_registry.attachments import Attachment, Attachments
from engine_registry.build_records import read_records
from engine_registry.documents import seal
from engine_registry.drafts import (
    BuildFacts,
    EngineDraft,
    EngineFile,
    StoredEngine,
    not_recorded,
    record_of,
)
from engine_registry.errors import DocumentConflict, IntegrityError, NotFound, Unavailable
from engine_registry.manifest import (
    LOCK_ARTIFACT,
    MANIFEST,
    MODEL_CONFIG,
    PROVENANCE_ARTIFACT,
    Descriptor,
    Manifest,
    check_titles,
    engine_manifest,
    file_layer,
    model_config,
)
from engine_registry.materialise import from_the_store, write_engine
from engine_registry.record import KeyLink
from engine_registry.rescue import rescue_engine
from engine_registry.store import Depth
from engine_registry.touched import Act

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from engine_registry.digest import Digest
    from engine_registry.materialise import Near
    from engine_registry.record import Record, ReferrerLink
    from engine_registry.store import Stores
    from engine_registry.touched import Touches

_LOG = logging.getLogger(__name__)

# How often an engine is put in anew because old files that it shares were discarded meanwhile. Each
# time takes a collection at just that moment.
_PUTS = 4
# Files of an engine that are looked at, not read, at the same time.
_LOOKS = 32


class Engines:
    """Every engine of one registry.

    Args:
        stores: where they lie.
        touches: where it is noted what is done to them.
        workers: how many files are stored or hashed at the same time; default: one per CPU.
        near: where a whole engine's files are laid out from; default: the stores themselves.
    """

    def __init__(
        self,
        stores: Stores,
        touches: Touches,
        workers: int | None = None,
        near: Near = from_the_store,
    ) -> None:
        self._stores = stores
        self._touches = touches
        self._blobs = stores.blobs
        self._documents = stores.documents
        self._attachments = Attachments(stores)
        self._workers = workers or len(os.sched_getaffinity(0))
        self._near = near

    def put_engine(self, draft: EngineDraft) -> StoredEngine:
        """Store an engine whole; the engine and its records.

        Run again after a crash at any point, it finishes; run again after it finished, it changes
        nothing and gives the first build's record.

        Raises:
            InvalidInput: an unusable or unsafe file, or one that changed while it was read.
            Unavailable: the store is full, not writable or not reachable.
        """
        for left in reversed(range(_PUTS)):
            engine = self._put(draft, attach_again=left < _PUTS - 1)
            try:
                self._confirm(engine)
                return self.engine(engine)
            except NotFound as error:
                _LOG.warning("engine %s: put in again: %s", engine.short, error.message)
                rescue_engine(self._stores, self._touches, engine)
        raise Unavailable(
            f"engine {engine}: old files that it shares were discarded {_PUTS} times while it was "
            "stored",
            hint="let the garbage collection end, then run the same command again",
            reference="engine-collected",
        )

    def engine(self, digest: Digest) -> StoredEngine:
        """The engine's manifest and records, checked against their digests.

        Raises:
            NotFound: no such engine is recorded, or its manifest is missing.
            IntegrityError: its manifest or a record is damaged.
        """
        return self._read(digest, lambda _: None)

    def records(self, digest: Digest) -> tuple[Record, ...]:
        """The records of every build that gave this engine, oldest first; empty if none."""
        return read_records(self._stores, digest)

    def is_recorded(self, digest: Digest) -> bool:
        """Whether any build of this engine is recorded; its folder alone says nothing."""
        return any(True for _ in self._documents.children(layout.records(digest)))

    def find_by_key(self, build_key: Digest, depth: Depth = Depth.UNCHANGED) -> StoredEngine | None:
        """A whole engine that was built from this key, if there is one.

        An engine with a missing or damaged byte is no hit: the build that follows heals it.
        """
        try:
            children = list(self._documents.children(layout.keys(build_key)))
        except NotFound:  # no registry yet
            return None
        for engine in filter(None, map(layout.digest_of, children)):
            try:
                return self.check_engine(engine, depth)
            except (NotFound, IntegrityError) as error:
                _LOG.warning("build key %s: not reused: %s", build_key.short, error.message)
        return None

    def check_engine(self, digest: Digest, depth: Depth = Depth.UNCHANGED) -> StoredEngine:
        """The engine, once every byte of it is known to be there and right.

        Raises:
            NotFound: no such engine, or some of its bytes are missing.
            IntegrityError: some of its bytes are wrong; names the blob and both digests.
        """

        def check(manifest: Manifest) -> None:
            parts = [manifest.config, *manifest.layers]
            # A look at a file that is far away is waiting, and no work for a CPU.
            looks = _LOOKS if self._stores.is_far and depth is Depth.UNCHANGED else 1
            self._each(lambda part: self._blobs.check(part.digest, part.size, depth), parts, looks)

        return self._read(digest, check)

    def materialise(self, digest: Digest, directory: Path) -> StoredEngine:
        """Lay the engine's files out, read-only, in `directory`, which must not exist.

        They are checked first (`Depth.UNCHANGED`); the directory is whole or absent afterwards.

        Raises:
            InvalidInput: the directory exists.
            NotFound, IntegrityError: as `check_engine`; nothing was written.
        """
        engine = self.check_engine(digest)
        with self._near(engine, self._stores) as blobs:
            write_engine(blobs, engine.manifest, directory)
        return engine

    def attach(
        self,
        subject: Digest,
        artifact_type: str,
        files: Sequence[tuple[str, bytes, str]],
        annotations: Mapping[str, str] | None = None,
    ) -> Digest:
        """Attach a document to an engine as an OCI referrer; the digest of its manifest.

        Args:
            subject: manifest digest of the engine.
            artifact_type: media type that says what it is, e.g. `manifest.REPORT_ARTIFACT`.
            files: title, bytes, media type of each file.
            annotations: what a listing shows without opening it.

        Raises:
            NotFound: there is no such engine.
        """
        engine = self.engine(subject)
        size_bytes = len(engine.manifest.to_bytes())
        attachment = Attachment(
            artifact_type=artifact_type, files=tuple(files), annotations=dict(annotations or {})
        )
        attached = self._attachments.put(
            _descriptor(subject, size_bytes),
            attachment,
            lambda: self._touches.note(subject, Act.ATTACHED),
        )
        try:
            self.check_engine(subject)
        except NotFound:
            rescue_engine(self._stores, self._touches, subject)
        return attached

    def renew(self, digest: Digest) -> None:
        """Say that a build uses this engine now: a garbage collection spares it for a while."""
        self._touches.note(digest, Act.REUSED)

    def referrers(self, subject: Digest, artifact_type: str | None = None) -> list[ReferrerLink]:
        """What is attached to a manifest, all of it or one type, in order of digest."""
        return self._attachments.links(subject, artifact_type)

    def manifest(self, digest: Digest) -> Manifest:
        """A stored manifest, of an engine or of something attached, checked."""
        return self._attachments.manifest(digest)

    def read_attachment(self, manifest: Digest) -> dict[str, bytes]:
        """The files of something attached, by title, checked."""
        return self._attachments.read(manifest)

    def read_blob(self, digest: Digest, size_bytes: int | None = None) -> bytes:
        """A small blob's bytes, checked against its digest (and size, where one is given)."""
        return self._attachments.blob(digest, size_bytes)

    def all_engines(self) -> Iterator[Digest]:
        """Every recorded engine, in order of digest."""
        for shard in self._documents.children(layout.RECORDS):
            folder = f"{layout.RECORDS}/{shard.removesuffix('/')}"
            for engine in filter(None, map(layout.digest_of, self._documents.children(folder))):
                if self.is_recorded(engine):
                    yield engine

    def _read(self, digest: Digest, check: Callable[[Manifest], None]) -> StoredEngine:
        with ahead(self._stores) as ask:
            manifest = ask(lambda: self._attachments.manifest(digest))
            checked = ask(lambda: check(manifest()))
            records = self.records(digest)
            if not records:
                raise not_recorded(digest)
            checked()
            return StoredEngine(digest=digest, manifest=manifest(), records=records)

    def _put_files(self, draft: EngineDraft) -> Manifest:
        titles = sorted(draft.files)

        def put(title: str) -> Descriptor:
            file = draft.files[title]
            stored = self._blobs.add_file(file.path, draft.ownership)
            return file_layer(title, stored.digest, stored.size_bytes, file.media_type)

        check_titles(titles)
        layers = self._each(put, titles)
        config = model_config(draft.descriptor, draft.config, [layer.digest for layer in layers])
        stored = self._blobs.add_bytes(config)
        return engine_manifest(
            Descriptor(media_type=MODEL_CONFIG, digest=stored.digest, size=stored.size_bytes),
            layers,
        )

    def _put(self, draft: EngineDraft, *, attach_again: bool) -> Digest:
        manifest = self._put_files(draft)
        data = manifest.to_bytes()
        engine = self._blobs.add_bytes(data).digest
        key = draft.facts.build_key
        is_recorded = self._documents.exists(layout.record(engine, key))
        provenance = draft.provenance(engine)
        attachments = draft.attestations(provenance)
        if attach_again or not is_recorded:
            attachments += (
                Attachment.of_json(PROVENANCE_ARTIFACT, "provenance.json", provenance),
                Attachment.of_json(LOCK_ARTIFACT, "build.lock.json", draft.lock),
                *draft.attachments,
            )
        for attachment in attachments:
            self._attachments.put(_descriptor(engine, len(data)), attachment)
        if not is_recorded:
            self._touches.note(engine, Act.RECORDED)
            # The same bytes built twice from the same inputs at the same time: the first stays.
            with suppress(DocumentConflict):
                record = record_of(draft, engine, manifest.size_bytes)
                self._documents.create(layout.record(engine, key), seal(record))
        self._documents.create(layout.key(key, engine), seal(KeyLink(build_key=key, engine=engine)))
        return engine

    def _confirm(self, engine: Digest) -> None:
        """Confirm that every byte of the engine and of what is attached is there.

        Raises:
            NotFound: something was discarded.
        """
        self.check_engine(engine)
        for link in self.referrers(engine):
            attached = self.manifest(link.manifest)
            for part in (attached.config, *attached.layers):
                self._blobs.check(part.digest, part.size, Depth.UNCHANGED)

    def _each(self, act: Callable[[Any], Any], items: Sequence[Any], least: int = 1) -> list[Any]:
        """`act` on every item, several at a time, results in order; the first failure is raised."""
        if len(items) == 1:
            return [act(items[0])]
        with ThreadPoolExecutor(min(max(self._workers, least), len(items))) as pool:
            return list(pool.map(act, items))


def _descriptor(engine: Digest, size_bytes: int) -> Descriptor:
    return Descriptor(media_type=MANIFEST, digest=engine, size=size_bytes)


__all__ = [
    "Attachment",
    "BuildFacts",
    "EngineDraft",
    "EngineFile",
    "Engines",
    "StoredEngine",
]
