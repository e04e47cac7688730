"""Bring an engine or a release from wherever it is into a registry, whole or not at all.

Bytes are written in the order of invariant 1: blobs, manifests, attachments, record, key link,
release. What is there already is not sent again, so a transfer that died goes on where it was.
Channels are not moved: their logs belong to their registry.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING

from engine_registry.digest import Digest
from engine_registry.errors import DocumentConflict, IntegrityError, NotFound, Unavailable
from engine_registry.refs import ProductRef, ReleaseRef
from engine_registry.rescue import rescue_engine
from engine_registry.store import Depth, Ownership
from engine_registry.touched import Act
from engine_registry.transfer_cargo import Cargo, read_cargo, refs_of
from engine_registry.transfer_origin import StoreOrigin, check_arrived
from engine_registry.transfer_plan import ReleaseStep, decide_release, refuse_other_record
from engine_registry.transfer_staging import staged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from engine_registry.record import Actor, Release
    from engine_registry.registry import Registry
    from engine_registry.transfer_cargo import Origin, Part

_LOG = logging.getLogger(__name__)

# Blobs under way at a time. Stores of buckets split large ones further by themselves.
WORKERS = 4
# Up to here a blob is taken through memory.
_SMALL_BYTES = 1 << 20
# As in `engines`: how often a cargo is brought anew because shared old blobs were collected.
_ATTEMPTS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What a transfer did.

    Attributes:
        release: as it is called there; None for an engine alone.
        sent: blobs that were not there, and their bytes.
        kept_records: records of other builds of the same engine that stayed.
    """

    engine: Digest
    step: ReleaseStep
    release: str | None
    sent: int
    sent_bytes: int
    blobs: int
    size_bytes: int
    kept_records: tuple[str, ...] = ()


@dataclass(slots=True)
class _Meter:
    """Blobs and bytes dealt with, told from several threads."""

    total: int
    progress: Callable[[int, int], None]
    sent: int = 0
    sent_bytes: int = 0
    _done: int = 0
    _lock: Lock = field(default_factory=Lock)

    def add(self, size_bytes: int, *, was_sent: bool) -> None:
        with self._lock:
            self._done += size_bytes
            if was_sent:
                self.sent += 1
                self.sent_bytes += size_bytes
            self.progress(min(self._done, self.total), self.total)


def transfer(
    source: Registry,
    what: Digest | ReleaseRef,
    to: Registry,
    *,
    actor: Actor,
    renumber: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Arrival:
    """Copy an engine, or a release with its engine, from one registry to another.

    Args:
        source: read only.
        what: an engine's digest, or a release.
        to: where it goes; founded if need be.
        actor: who renumbers a release.
        renumber: give the release the next number if its own is taken.
        progress: called with bytes dealt with and bytes in all, never twice at the same time.

    Raises:
        NotFound, IntegrityError: it is not whole in the source.
        Conflict: `release-number-taken`, `record-differs`; nothing became visible.
    """
    origin = StoreOrigin(source.stores)
    if isinstance(what, ReleaseRef):
        release = source.releases.release(what)
        cargo = read_cargo(origin, release.content.engine, what)
    else:
        cargo = read_cargo(origin, what)
    return bring(cargo, origin, to, actor=actor, renumber=renumber, progress=progress)


def bring(
    cargo: Cargo,
    origin: Origin,
    to: Registry,
    *,
    actor: Actor,
    renumber: bool = False,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Arrival:
    """Put a cargo into a registry; the rest is as in `transfer`."""
    _decide(cargo, to, renumber=renumber)  # before a byte is sent
    kept = refuse_other_record(cargo, _documents_there(cargo, to))
    meter = _Meter(cargo.size_bytes, progress)
    for _ in range(_ATTEMPTS):
        _send(cargo.files, origin, to, meter)
        _send(cargo.manifests, origin, to, meter)
        _write_documents(cargo, to)
        try:
            _confirm(cargo, to)
            break
        except NotFound as error:
            _LOG.warning("engine %s: sent again: %s", cargo.engine.short, error.message)
            rescue_engine(to.stores, to.touches, cargo.engine)
    else:
        raise Unavailable(
            f"engine {cargo.engine}: old files that it shares were discarded {_ATTEMPTS} times "
            "while it was stored",
            hint="let the garbage collection end, then run the same command again",
            reference="engine-collected",
        )
    step, release = _put_release(cargo, to, actor, renumber=renumber)
    return Arrival(
        engine=cargo.engine,
        step=step,
        release=release,
        sent=meter.sent,
        sent_bytes=meter.sent_bytes,
        blobs=len(cargo.files) + len(cargo.manifests),
        size_bytes=cargo.size_bytes,
        kept_records=tuple(kept),
    )


def _send(parts: Iterable[Part], origin: Origin, to: Registry, meter: _Meter) -> None:
    def one(part: Part) -> None:
        was_sent = not _is_there(part, to) and _take(part, origin, to)
        meter.add(part.size_bytes, was_sent=was_sent)

    with ThreadPoolExecutor(WORKERS, thread_name_prefix="engine-registry-transfer") as pool:
        tasks = [pool.submit(one, part) for part in parts]
        try:
            for task in tasks:
                task.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _is_there(part: Part, to: Registry) -> bool:
    try:
        to.stores.blobs.check(part.digest, part.size_bytes, Depth.UNCHANGED)
    except (NotFound, IntegrityError):
        return False
    return True


def _take(part: Part, origin: Origin, to: Registry) -> bool:
    blobs = to.stores.blobs
    if part.size_bytes <= _SMALL_BYTES:
        with origin.open(part.digest) as stream:
            data = stream.read(part.size_bytes + 1)
        check_arrived(part.digest, part.size_bytes, Digest.of(data), len(data))
        blobs.add_bytes(data)
        return True
    here = origin.file(part.digest)
    if here is not None:
        stored = blobs.add_file(here, Ownership.KEPT)
    else:
        with staged(to.stores.staging_dir) as path:
            origin.fetch(part.digest, part.size_bytes, path)
            stored = blobs.add_file(path, Ownership.GIVEN)
    check_arrived(part.digest, part.size_bytes, stored.digest, stored.size_bytes)
    return True


def _write_documents(cargo: Cargo, to: Registry) -> None:
    documents = to.stores.documents
    new_links = [link for link in cargo.links if not documents.exists(link.name)]
    new_records = [doc for doc, _, _ in cargo.records if not documents.exists(doc.name)]
    if new_links:
        to.touches.note(cargo.engine, Act.ATTACHED)
        for link in new_links:
            documents.create(link.name, link.data)
    if new_records:
        to.touches.note(cargo.engine, Act.RECORDED)
        for record in new_records:
            # Somebody recorded the same build meanwhile: theirs stays; a release that needs this
            # one is refused when it is looked at as a whole.
            with suppress(DocumentConflict):
                documents.create(record.name, record.data)
    for key in cargo.keys:
        documents.create(key.name, key.data)


def _confirm(cargo: Cargo, to: Registry) -> None:
    """Confirm that everything is there; NotFound if something was discarded meanwhile."""

    def check(part: Part) -> None:
        to.stores.blobs.check(part.digest, part.size_bytes, Depth.UNCHANGED)

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(check, (*cargo.files, *cargo.manifests)))
    for document in (*cargo.links, *(doc for doc, _, _ in cargo.records), *cargo.keys):
        if not to.stores.documents.exists(document.name):
            to.stores.documents.read(document.name)  # raises, and says what is missing


def _decide(cargo: Cargo, to: Registry, *, renumber: bool) -> tuple[ReleaseStep, int | None]:
    if cargo.release is None:
        return ReleaseStep.NONE, None
    wanted = cargo.release[1]
    product = ProductRef(wanted.model, wanted.target)
    held: list[Release] = []
    retired: set[int] = set()
    if _is_founded(to):
        held = to.releases.releases(product)
        if to.releases.retired(refs_of(wanted)) is not None:
            retired.add(wanted.number)
    decision = decide_release(wanted, held, retired, renumber=renumber)
    return decision.step, decision.number


def _put_release(
    cargo: Cargo, to: Registry, actor: Actor, *, renumber: bool
) -> tuple[ReleaseStep, str | None]:
    if cargo.release is None:
        return ReleaseStep.NONE, None
    document, wanted = cargo.release
    product = ProductRef(wanted.model, wanted.target)
    step, number = _decide(cargo, to, renumber=renumber)
    if step is ReleaseStep.CREATE:
        to.touches.note(cargo.engine, Act.RELEASED)
        try:
            to.stores.documents.create(document.name, document.data)
        except DocumentConflict:  # somebody took the number meanwhile
            step, number = _decide(cargo, to, renumber=renumber)
        else:
            to.releases.keep_whole(wanted)
            return step, wanted.name
    if step is ReleaseStep.KEEP and number is not None:
        release = to.releases.release(ReleaseRef(product, number))
        to.releases.keep_whole(release)
        return step, release.name
    cut = to.releases.create_release(product, wanted.content, actor, to.clock())
    return ReleaseStep.RENUMBER, cut.name


def _is_founded(to: Registry) -> bool:
    try:
        to.info()
    except NotFound:
        return False
    return True


def _documents_there(cargo: Cargo, to: Registry) -> dict[str, bytes]:
    found = {}
    for document, _, _ in cargo.records:
        with suppress(NotFound):
            found[document.name] = to.stores.documents.read(document.name)
    return found
