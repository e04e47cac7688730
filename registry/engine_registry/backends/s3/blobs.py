"""Blobs as objects keyed by their digest."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import TYPE_CHECKING, BinaryIO, cast

from engine_registry import layout
from engine_registry.backends.s3.checksums import PART_BYTES, Head, metadata_of, part_bytes_for
from engine_registry.backends.s3.download import RANGE_BYTES, Downloads, ObjectStream
from engine_registry.backends.s3.failures import Answered, Kind
from engine_registry.backends.s3.objects import IF_ABSENT
from engine_registry.backends.s3.place import new_file, refuse_existing
from engine_registry.backends.s3.source import fingerprint, opened, read_whole, refuse_changed
from engine_registry.backends.s3.unfinished import SWEEP_AFTER
from engine_registry.backends.s3.upload import Uploads
from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError, NotFound
from engine_registry.store import Depth, Ownership, StoredBlob

if TYPE_CHECKING:
    from datetime import timedelta
    from pathlib import Path

    from engine_registry.backends.s3.root import S3Root

_LOG = logging.getLogger(__name__)

# Parts or ranges under way at a time, over all blobs. One S3 connection carries about 90 MB/s
# (AWS's own guidance).
STREAMS = 8
# Up to here sending is cheaper than asking first whether the store has it.
_SMALL_BYTES = 1 << 20


class S3Blobs:
    """The blob port over a bucket. Safe to use from many threads and processes.

    Args:
        root: of the registry.
        part_bytes: files above this size go up in parts of it.
        range_bytes: blobs come down in ranges of this size.
    """

    def __init__(
        self, root: S3Root, part_bytes: int = PART_BYTES, range_bytes: int = RANGE_BYTES
    ) -> None:
        self._root = root
        self._objects = root.objects
        self._bucket = root.objects.bucket
        self._part_bytes = part_bytes
        pool = ThreadPoolExecutor(STREAMS, thread_name_prefix="engine-registry-s3")
        self._uploads = Uploads(self._bucket, pool)
        self._downloads = Downloads(self._bucket, pool, range_bytes)
        self._sweeping = Lock()
        self._swept = False

    def add_file(self, path: Path, ownership: Ownership) -> StoredBlob:  # noqa: ARG002 always sent
        """See `BlobStore.add_file`."""
        with opened(path) as (fd, before):
            self._root.prepare()
            if before.st_size <= self._part_bytes:
                data = read_whole(fd, before.st_size)
                refuse_changed(path, fd, before, len(data))
                if len(data) <= _SMALL_BYTES:
                    return self.add_bytes(data)
                digest = Digest.of(data)
                if not self._is_good(digest, len(data)):
                    self._put(digest, data)
                return StoredBlob(digest=digest, size_bytes=len(data))
            part_bytes = part_bytes_for(before.st_size, self._part_bytes)
            print_ = fingerprint(fd, self._bucket.address.checksum, part_bytes)
            refuse_changed(path, fd, before, print_.size_bytes)
            digest, size_bytes = print_.digest, print_.size_bytes
            if not self._is_good(digest, size_bytes):
                self._sweep_once()
                self._uploads.store(path, fd, print_, lambda: self._is_good(digest, size_bytes))
                refuse_changed(path, fd, before, size_bytes)
                self._confirm(digest, size_bytes)
            return StoredBlob(digest=digest, size_bytes=size_bytes)

    def add_bytes(self, data: bytes) -> StoredBlob:
        """See `BlobStore.add_bytes`."""
        digest = Digest.of(data)
        self._root.prepare()
        stored = StoredBlob(digest=digest, size_bytes=len(data))
        # Mostly new: one request. The condition spares a good blob a needless new version.
        written = self._objects.put(
            layout.blob(digest), data, condition=IF_ABSENT, metadata=self._metadata(digest)
        )
        if written is None and not self._is_good(digest, len(data)):
            self._put(digest, data)
        return stored

    def open(self, digest: Digest) -> BinaryIO:
        """See `BlobStore.open`."""
        self._root.require()
        name = layout.blob(digest)
        try:
            answer = self._bucket.call(
                "get_object",
                f"open blob {digest}",
                (Kind.ABSENT,),
                Key=self._bucket.address.key(name),
            )
        except Answered:
            raise _missing(digest) from None
        return cast("BinaryIO", ObjectStream(self._bucket, name, Head.of(answer), answer["Body"]))

    def materialise(self, digest: Digest, path: Path) -> None:
        """See `BlobStore.materialise`. The bytes are checked as they arrive."""
        refuse_existing(path)
        head = self._head(digest)
        with new_file(path, head.size_bytes) as place:
            found = self._downloads.fetch(layout.blob(digest), head, place.write)
            if found != digest:
                self._root.stamps.condemn(digest, head)
                raise _damaged(digest, found)

    def check(self, digest: Digest, size_bytes: int, depth: Depth) -> None:
        """See `BlobStore.check`."""
        head = self._head(digest)
        if head.size_bytes != size_bytes:
            raise IntegrityError(
                f"blob {digest}: holds {head.size_bytes:,} bytes, want {size_bytes:,}",
                hint="run `enginectl verify` to list every damaged file",
                reference="blob-damaged",
            )
        if depth is Depth.UNCHANGED and self._vouched(digest, head):
            return
        found = self._downloads.fetch(layout.blob(digest), head)
        if found != digest:
            self._root.stamps.condemn(digest, head)
            raise _damaged(digest, found)
        self._root.stamps.absolve(digest)
        if not head.vouches(digest):
            self._root.stamps.write(digest, head)

    def sweep_uploads(self, older_than: timedelta = SWEEP_AFTER) -> list[str]:
        """Abort multipart uploads that nobody has been at work on for so long; says which blobs."""
        return self._uploads.sweep(older_than)

    def _put(self, digest: Digest, data: bytes) -> None:
        self._objects.put(layout.blob(digest), data, metadata=self._metadata(digest))
        self._root.stamps.absolve(digest)

    def _metadata(self, digest: Digest) -> dict[str, str]:
        return metadata_of(self._bucket.address.checksum, digest)

    def _is_good(self, digest: Digest, size_bytes: int) -> bool:
        """Whether the blob is there and known to be right; if not, it is sent."""
        head = self._objects.head(layout.blob(digest))
        return head is not None and head.size_bytes == size_bytes and self._vouched(digest, head)

    def _vouched(self, digest: Digest, head: Head) -> bool:
        """Whether this very object is known to hold the blob's bytes, without reading them."""
        stamps = self._root.stamps
        if stamps.condemns(digest, head):
            return False
        return head.vouches(digest) or stamps.vouches(digest, head)

    def _confirm(self, digest: Digest, size_bytes: int) -> None:
        """Look at what was just put together: its size and the store's own checksum of it."""
        head = self._head(digest)
        if head.size_bytes == size_bytes and not head.checksums and not head.vouches(digest):
            _LOG.warning(
                "%s keeps no checksums: reading blob %s back to verify it; checksum=md5 in the "
                "address avoids that",
                self._bucket.address,
                digest.short,
            )
            return self.check(digest, size_bytes, Depth.FULL)
        if head.size_bytes != size_bytes or not head.vouches(digest):
            stated = ", ".join(head.checksums) or "none"
            promised = head.metadata.get("checksums", "none")
            raise IntegrityError(
                f"blob {digest}: sent {size_bytes:,} bytes with checksum {promised}, the store "
                f"holds {head.size_bytes:,} with checksum {stated}",
                hint="run the same command again; if it repeats, try checksum=md5 in the address",
                reference="blob-damaged",
            )
        return self._root.stamps.absolve(digest)

    def _head(self, digest: Digest) -> Head:
        self._root.require()
        head = self._objects.head(layout.blob(digest))
        if head is None:
            raise _missing(digest)
        return head

    def _sweep_once(self) -> None:
        with self._sweeping:
            swept, self._swept = self._swept, True
        if not swept:
            self._uploads.sweep()


def _missing(digest: Digest) -> NotFound:
    return NotFound(
        f"blob {digest}: not in the store",
        hint="run `enginectl verify` to list what is missing; `enginectl build` rebuilds an engine",
        reference="blob-missing",
    )


def _damaged(digest: Digest, found: Digest) -> IntegrityError:
    return IntegrityError(
        f"blob {digest}: stored bytes have digest {found}, want {digest}",
        hint="run `enginectl verify` to list every damaged file",
        reference="blob-damaged",
    )
