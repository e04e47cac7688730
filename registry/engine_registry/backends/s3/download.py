"""Large blobs come down in ranges: several at a time, hashed in order as they arrive.

All ranges ask for the same object by its ETag, so that a blob healed meanwhile is noticed.
"""

from __future__ import annotations

import hashlib
import io
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from engine_registry.backends.s3.failures import Answered, Kind, Truncated
from engine_registry.digest import Digest
from engine_registry.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

    from engine_registry.backends.s3.bucket import Bucket
    from engine_registry.backends.s3.checksums import Head

    Sink = Callable[[memoryview, int], None]

# Long enough that waiting for the first byte is a small part of a range's time.
RANGE_BYTES = 16 << 20
_PIECE_BYTES = 256 << 10
# Asked for or waiting to be hashed at a time, per blob: 256 MiB at most.
_WINDOW = 16


class Downloads:
    """Ranged reads from one bucket.

    Args:
        bucket: where from.
        pool: fetches the ranges.
        range_bytes: how much one request asks for.
    """

    def __init__(self, bucket: Bucket, pool: Executor, range_bytes: int = RANGE_BYTES) -> None:
        self._bucket = bucket
        self._pool = pool
        self._range_bytes = range_bytes

    def fetch(self, name: str, head: Head, sink: Sink | None = None) -> Digest:
        """Read a whole object; the digest of the bytes that arrived.

        Args:
            name: what to read.
            head: of the object as it is expected.
            sink: is given every range and its offset, in any order, from several threads.

        Raises:
            Unavailable: the store failed, or the object was replaced or removed meanwhile.
        """
        state = hashlib.sha256()
        size = min(self._range_bytes, head.size_bytes)
        spare: SimpleQueue[bytearray] = SimpleQueue()
        under_way: deque[Future[tuple[bytearray, int]]] = deque()
        offset = 0
        try:
            while offset < head.size_bytes or under_way:
                while offset < head.size_bytes and len(under_way) < _WINDOW:
                    length = min(size, head.size_bytes - offset)
                    buffer = bytearray(size) if spare.empty() else spare.get()
                    job = self._pool.submit(self._range, name, head, buffer, offset, length, sink)
                    under_way.append(job)
                    offset += length
                buffer, length = under_way.popleft().result()
                state.update(memoryview(buffer)[:length])
                spare.put(buffer)
        finally:
            for job in under_way:
                job.cancel()
            for job in under_way:
                if not job.cancelled():
                    job.exception()  # nobody may write to the sink any more
        return Digest(state.hexdigest())

    def _range(
        self,
        name: str,
        head: Head,
        buffer: bytearray,
        offset: int,
        length: int,
        sink: Sink | None,
    ) -> tuple[bytearray, int]:
        view = memoryview(buffer)[:length]

        def act() -> None:
            answer = ask(self._bucket, name, head.etag, offset, length)
            with answer["Body"] as body:
                filled = 0
                # The client makes each piece anew and copies it: small ones stay in the cache.
                while filled < length and (
                    count := body.readinto(view[filled : filled + _PIECE_BYTES])
                ):
                    filled += count
            if filled < length:
                raise Truncated

        try:
            self._bucket.attempt(f"read {name}", act, (Kind.UNMET, Kind.ABSENT))
        except Answered:
            raise replaced(self._bucket, name) from None
        if sink is not None:
            sink(view, offset)
        return buffer, length


class ObjectStream(io.RawIOBase):
    """An object read from start to end; picks up where a broken connection left off."""

    def __init__(self, bucket: Bucket, name: str, head: Head, body: Any) -> None:
        super().__init__()
        self._bucket = bucket
        self._name = name
        self._head = head
        self._body = body
        self._position = 0

    def readable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """How many bytes were read."""
        return self._position

    def readinto(self, buffer: Any) -> int:
        """Fill as much of `buffer` as the store sends at once; 0 at the end.

        Raises:
            Unavailable: the store failed for good, or the object was replaced meanwhile.
        """
        left = self._head.size_bytes - self._position
        view = memoryview(buffer)[:left]
        if not view:
            return 0

        def act() -> int:
            if self._body is None:
                answer = ask(self._bucket, self._name, self._head.etag, self._position, left)
                self._body = answer["Body"]
            try:
                count = int(self._body.readinto(view))
            except Exception:
                self._drop()
                raise
            if count == 0:
                self._drop()
                raise Truncated
            return count

        try:
            count = self._bucket.attempt(f"read {self._name}", act, (Kind.UNMET, Kind.ABSENT))
        except Answered:
            raise replaced(self._bucket, self._name) from None
        self._position += count
        return count

    def readall(self) -> bytes:
        """Everything that is left."""
        data = bytearray(self._head.size_bytes - self._position)
        view = memoryview(data)
        filled = 0
        while filled < len(data):
            filled += self.readinto(view[filled:])
        return bytes(data)

    def close(self) -> None:
        """Give the connection back."""
        if not self.closed:
            self._drop()
        super().close()

    def _drop(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            body.close()


def ask(bucket: Bucket, name: str, etag: str, offset: int, length: int) -> dict[str, Any]:
    """One request for a range of the object with this ETag."""
    answer: dict[str, Any] = bucket.client.get_object(
        Bucket=bucket.address.bucket,
        Key=bucket.address.key(name),
        IfMatch=etag,
        Range=f"bytes={offset}-{offset + length - 1}",
    )
    return answer


def replaced(bucket: Bucket, name: str) -> Unavailable:
    """The error for an object that is not the one whose reading began."""
    return Unavailable(
        f"{bucket.address}: {name} was replaced or removed while it was read",
        hint="run the same command again",
        reference="store-object-replaced",
    )
