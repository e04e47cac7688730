"""Push an engine, or a release with its engine, to a repository of an OCI registry.

Written in the order of invariant 1: blobs, the engine's manifest, what is attached, its records,
the release, and the tag last: whoever finds the tag finds everything.
"""

from __future__ import annotations

import io
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO

from engine_registry.digest import Digest
from engine_registry.manifest import EMPTY_BYTES, MANIFEST, Descriptor, read_manifest
from engine_registry.oci.blobs import BlobUpload
from engine_registry.oci.manifests import Manifests
from engine_registry.oci.package import carriers
from engine_registry.refs import ReleaseRef
from engine_registry.transfer import WORKERS
from engine_registry.transfer_cargo import Cargo, Part, read_cargo
from engine_registry.transfer_origin import StoreOrigin

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_registry.oci.session import Remote
    from engine_registry.registry import Registry
    from engine_registry.store import BlobStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What a push did.

    Attributes:
        sent: blobs that were neither there nor mounted, and their bytes.
        attached: manifests attached to the engine, records and release among them.
    """

    engine: Digest
    sent: int
    sent_bytes: int
    blobs: int
    size_bytes: int
    attached: int


def push(
    source: Registry,
    what: Digest | ReleaseRef,
    remote: Remote,
    *,
    tag: str | None = None,
    chunk_bytes: int | None = None,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Pushed:
    """Push an engine and what is attached to it; its digest there is its digest here.

    Args:
        source: read only.
        what: an engine's digest, or a release.
        remote: where it goes.
        tag: what names it there in the end.
        chunk_bytes: at most this much in one request; default: what is known of the registry.
        progress: called with bytes dealt with and bytes in all, never twice at the same time.

    Raises:
        NotFound, IntegrityError: it is not whole here.
        Unavailable, InvalidInput: the registry's refusal.
    """
    origin = StoreOrigin(source.stores)
    if isinstance(what, ReleaseRef):
        release = source.releases.release(what)
        cargo = read_cargo(origin, release.content.engine, what)
    else:
        cargo = read_cargo(origin, what)
    blobs = source.stores.blobs
    sent = _push_blobs(cargo, blobs, BlobUpload(remote, chunk_bytes), progress)
    manifests = Manifests(remote)
    engine = cargo.manifests[0]
    data = _read(blobs, engine.digest)
    manifests.put(data)
    for part in cargo.manifests[1:]:
        _attach(manifests, _read(blobs, part.digest))
    carried = carriers(cargo, _described(engine))
    for manifest, layer in carried:
        for body in (EMPTY_BYTES, layer):
            small = Part(digest=Digest.of(body), size_bytes=len(body))
            BlobUpload(remote).push(small, lambda body=body: io.BytesIO(body))  # type: ignore[misc]
        _attach(manifests, manifest.to_bytes())
    if tag is not None:
        manifests.put(data, tag)
    return Pushed(
        engine=cargo.engine,
        sent=sent[0],
        sent_bytes=sent[1],
        blobs=len(cargo.files),
        size_bytes=sum(part.size_bytes for part in cargo.files),
        attached=len(cargo.manifests) - 1 + len(carried),
    )


def _push_blobs(
    cargo: Cargo, blobs: BlobStore, upload: BlobUpload, progress: Callable[[int, int], None]
) -> tuple[int, int]:
    total = sum(part.size_bytes for part in cargo.files)
    lock = Lock()
    done = sent = sent_bytes = 0

    def one(part: Part) -> None:
        nonlocal done, sent, sent_bytes

        def source() -> BinaryIO:
            return blobs.open(part.digest)

        was_sent = upload.push(part, source)
        with lock:
            done += part.size_bytes
            sent += was_sent
            sent_bytes += part.size_bytes * was_sent
            progress(done, total)

    with ThreadPoolExecutor(WORKERS, thread_name_prefix="engine-registry-oci") as pool:
        tasks = [pool.submit(one, part) for part in cargo.files]
        try:
            for task in tasks:
                task.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return sent, sent_bytes


def _attach(manifests: Manifests, data: bytes) -> None:
    digest = Digest.of(data)
    manifest = read_manifest(data, digest)
    if manifest.subject is None:
        manifests.put(data)
        return
    descriptor = Descriptor(
        media_type=MANIFEST,
        digest=digest,
        size=len(data),
        artifact_type=manifest.artifact_type,
        annotations=manifest.annotations,
    )
    manifests.attach(data, descriptor, manifest.subject.digest)


def _read(blobs: BlobStore, digest: Digest) -> bytes:
    with blobs.open(digest) as stream:
        data = stream.read()
    read_manifest(data, digest)
    return data


def _described(part: Part) -> Descriptor:
    return Descriptor(media_type=MANIFEST, digest=part.digest, size=part.size_bytes)
