"""Recompute a whole registry and name everything that does not match.

Every stored file is looked at, reachable or not: blobs are hashed, envelopes checked, names
compared with contents, references followed, event logs replayed. Nothing is repaired; a mismatch is
a value. Works beside writers: what seems missing is looked up once more before it is reported.
"""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.digest import READ_SIZE_BYTES, Digest
from engine_registry.errors import EngineCIError
from engine_registry.mismatch import Findings, Mismatch, MismatchKind, VerifyReport
from engine_registry.store import Depth
from engine_registry.verify_channels import check_channel
from engine_registry.verify_documents import DocumentChecks

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_registry.registry import Registry
    from engine_registry.store import BlobStore


_BLOBS = f"{layout.BLOBS}/"


def verify(
    registry: Registry,
    *,
    progress: Callable[[int, int], None] | None = None,
    workers: int | None = None,
) -> VerifyReport:
    """Look at every stored byte of a registry.

    Args:
        registry: read only.
        progress: called with bytes looked at so far and bytes in all, from several threads but
            never at the same time.
        workers: how many blobs are hashed at the same time; default: one per CPU.

    Raises:
        NotFound: there is no registry (`registry-missing`).
    """
    stores = registry.stores
    files = list(stores.inventory.files())
    meter = _Meter(progress, sum(file.size_bytes for file in files))
    sizes: dict[Digest, int] = {}
    documents: list[str] = []
    for file in files:
        digest = _blob_digest(file.name)
        if digest is None:
            documents.append(file.name)
            meter.add(file.size_bytes)
        else:
            sizes[digest] = file.size_bytes

    with ThreadPoolExecutor(workers or len(os.sched_getaffinity(0))) as pool:
        hashed = pool.map(lambda digest: _check_blob(stores.blobs, digest, meter), sizes)
        found = [mismatch for mismatch in hashed if mismatch is not None]

    findings = Findings()
    channels = DocumentChecks(stores, sizes, findings).check(documents)
    for ref in channels:
        check_channel(stores, ref, findings)
    return VerifyReport(
        files=len(files),
        size_bytes=meter.total,
        mismatches=tuple(sorted({*found, *findings.mismatches})),
        notes=tuple(sorted(findings.notes)),
    )


class _Meter:
    """Bytes looked at so far, told from several threads."""

    def __init__(self, progress: Callable[[int, int], None] | None, total: int) -> None:
        self._progress = progress
        self._lock = Lock()
        self._done = 0
        self.total = total

    def add(self, count: int) -> None:
        with self._lock:
            self._done += count
            if self._progress is not None:
                self._progress(self._done, self.total)


def _blob_digest(name: str) -> Digest | None:
    if not name.startswith(_BLOBS) or name.endswith(".json"):
        return None
    return layout.digest_of(name.removeprefix(_BLOBS))


def _check_blob(blobs: BlobStore, digest: Digest, meter: _Meter) -> Mismatch | None:
    name = layout.blob(digest)
    try:
        found, size_bytes = _hash(blobs, digest, meter)
    except EngineCIError as error:
        return Mismatch(
            name=name, kind=MismatchKind.UNREADABLE, expected=str(digest), found=error.message
        )
    if found == digest:
        return None
    with suppress(EngineCIError):  # known bad: no quick check may vouch for it any more
        blobs.check(digest, size_bytes, Depth.FULL)
    return Mismatch(name=name, kind=MismatchKind.DAMAGED, expected=str(digest), found=str(found))


def _hash(blobs: BlobStore, digest: Digest, meter: _Meter) -> tuple[Digest, int]:
    state = hashlib.sha256()
    size_bytes = 0
    view = memoryview(bytearray(READ_SIZE_BYTES))
    with blobs.open(digest) as stream:
        while count := stream.readinto(view):  # type: ignore[attr-defined]
            state.update(view[:count])
            size_bytes += count
            meter.add(count)
    return Digest(state.hexdigest()), size_bytes
