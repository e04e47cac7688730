"""Blobs on their way to a repository, resumed where they stopped."""

from __future__ import annotations

import re
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO, Self
from urllib.parse import quote, urljoin

from engine_registry.digest import READ_SIZE_BYTES
from engine_registry.errors import IntegrityError, InvalidInput, NotFound, Unavailable
from engine_registry.oci.session import ATTEMPTS, pause_s

if TYPE_CHECKING:
    from collections.abc import Callable

    import requests

    from engine_registry.oci.session import Remote
    from engine_registry.transfer_cargo import Part

# A blob up to this size goes in one request, a larger one in requests of this size.
CHUNK_BYTES = 64 << 20
SMALLEST_CHUNK_BYTES = 1 << 20
# Registries that refuse larger requests. GHCR says so with 416 in its answer ("exceeds the maximum
# permissible limit of 4.00MiB"); ECR: docs.aws.amazon.com, ECR service quotas, UploadLayerPart.
KNOWN_CHUNKS = (
    (re.compile(r"ghcr\.io"), 4 << 20),
    (re.compile(r"[0-9]+\.dkr\.ecr[a-z-]*\.[a-z0-9-]+\.amazonaws\.com(\.cn)?"), 20_971_520),
)
_STREAM = "application/octet-stream"


def chunk_bytes_for(host: str) -> int:
    """How much is sent to this registry in one request."""
    return next((size for pattern, size in KNOWN_CHUNKS if pattern.fullmatch(host)), CHUNK_BYTES)


class Slice:
    """A part of a stream as the body of a request, of known length."""

    def __init__(self, stream: BinaryIO, size_bytes: int) -> None:
        self._stream = stream
        self._left = self._size = size_bytes

    def __len__(self) -> int:
        return self._size

    def read(self, count: int = -1) -> bytes:
        """The next bytes; nothing at the end of the part."""
        want = self._left if count < 0 else min(count, self._left)
        data = self._stream.read(want) if want else b""
        self._left -= len(data)
        return data


class _Body:
    """Gives the same part of a blob as often as it has to be sent."""

    def __init__(self, source: Callable[[], BinaryIO], offset: int, count: int) -> None:
        self._source = source
        self._offset = offset
        self._count = count
        self._opened = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()

    def anew(self) -> Slice:
        """From its start."""
        stream = self._opened.enter_context(self._source())
        skip(stream, self._offset)
        return Slice(stream, self._count)


class BlobUpload:
    """Uploads to one repository. Safe to use from many threads.

    Args:
        remote: the repository.
        chunk_bytes: at most this much in one request; smaller where the registry asks for it.
    """

    def __init__(self, remote: Remote, chunk_bytes: int | None = None) -> None:
        self._remote = remote
        self._chunk_bytes = chunk_bytes or chunk_bytes_for(remote.ref.host)

    def push(self, part: Part, source: Callable[[], BinaryIO]) -> bool:
        """Have the blob in the repository; False if it was there or could be mounted.

        Args:
            part: which blob.
            source: opens it from its start; called again for what has to be sent again.

        Raises:
            IntegrityError: what was read is not that blob: the registry refused it.
        """
        if self._is_there(part):
            return False
        location = self._start(part)
        for attempt in range(ATTEMPTS):
            if location is None:
                return False
            try:
                self._send(part, source, location)
            except _SessionLost:
                if attempt == ATTEMPTS - 1:
                    break
                self._remote.sleep(pause_s(attempt))
                location = self._start(part, mount=False)
            else:
                return True
        raise Unavailable(
            f"registry {self._remote.ref.host}: lost the upload of blob {part.digest.short} "
            f"{ATTEMPTS} times",
            hint="run the same command again: blobs that arrived are not sent again",
            reference="oci-upload-lost",
        )

    def _is_there(self, part: Part) -> bool:
        answer = self._remote.request("HEAD", f"blobs/{part.digest}", expect=(200, 404))
        said = answer.headers.get("Content-Length", str(part.size_bytes))
        return answer.status_code == 200 and said == str(part.size_bytes)

    def _start(self, part: Part, *, mount: bool = True) -> str | None:
        """Where to upload to; None if the blob was mounted from another repository."""
        for name in self._remote.mount_from if mount else ():
            where = f"blobs/uploads/?mount={quote(str(part.digest))}&from={quote(name, safe='')}"
            answer = self._remote.request("POST", where, expect=(201, 202, 403, 404))
            if answer.status_code == 201:
                return None
            if answer.status_code == 202:
                return self._next(answer)
        answer = self._remote.request("POST", "blobs/uploads/", expect=(202,))
        least = answer.headers.get("OCI-Chunk-Min-Length", "")
        if least.isdigit():
            self._chunk_bytes = max(self._chunk_bytes, min(int(least), CHUNK_BYTES))
        return self._next(answer)

    def _send(self, part: Part, source: Callable[[], BinaryIO], location: str) -> None:
        offset, stuck = 0, 0
        while part.size_bytes > self._chunk_bytes and offset < part.size_bytes:
            count = min(self._chunk_bytes, part.size_bytes - offset)
            done, location, status = self._patch(source, location, offset, count)
            if status in {404, 405, 501}:
                if offset == 0 and status != 404:
                    break  # it knows no chunks: all in one
                raise _SessionLost
            if done > offset:
                offset, stuck = done, 0
                continue
            offset = done
            may_be_smaller = self._chunk_bytes > SMALLEST_CHUNK_BYTES
            if may_be_smaller:  # some close the connection on a request that is too long
                self._chunk_bytes = max(self._chunk_bytes // 4, SMALLEST_CHUNK_BYTES)
            if not may_be_smaller or status == 0:
                self._remote.sleep(pause_s(stuck))
                stuck += 1
            if stuck == ATTEMPTS:
                raise _SessionLost
        self._finish(part, source, location, offset)

    def _patch(
        self, source: Callable[[], BinaryIO], location: str, offset: int, count: int
    ) -> tuple[int, str, int]:
        """Send one chunk: how much the registry has then, where to go on, its status."""
        headers = {"Content-Type": _STREAM, "Content-Range": f"{offset}-{offset + count - 1}"}
        try:
            with _Body(source, offset, count) as body:
                answer = self._remote.request(
                    "PATCH",
                    location,
                    expect=(201, 202, 204, 400, 404, 405, 413, 416, 501),
                    headers=headers,
                    body=body.anew,
                    resumed=True,
                )
        except Unavailable as error:
            if error.name == "oci-access-denied":
                raise
            return (*self._progress(location), 0)
        if answer.status_code in {201, 202, 204}:
            return _received(answer, offset + count), self._next(answer), answer.status_code
        if answer.status_code in {400, 416}:
            return (*self._progress(location), answer.status_code)
        return offset, location, answer.status_code

    def _progress(self, location: str) -> tuple[int, str]:
        """Ask how much of an upload has arrived; the session may be gone."""
        # Some name a new place with each byte, and do not know the old one any more.
        answer = self._remote.request("GET", location, expect=(200, 202, 204, 400, 404, 416))
        if answer.status_code >= 400:
            raise _SessionLost
        return _received(answer, 0), self._next(answer, location)

    def _finish(
        self, part: Part, source: Callable[[], BinaryIO], location: str, offset: int
    ) -> None:
        mark = "&" if "?" in location else "?"
        url = f"{location}{mark}digest={quote(str(part.digest))}"
        left = part.size_bytes - offset
        try:
            with _Body(source, offset, left) as body:
                self._remote.request(
                    "PUT",
                    url,
                    expect=(201, 204),
                    headers={"Content-Type": _STREAM},
                    body=body.anew if left else None,
                    resumed=True,
                )
        except (NotFound, Unavailable) as error:
            if error.name == "oci-access-denied":
                raise
            if not self._is_there(part):  # the reply may have been lost, and nothing else
                raise _SessionLost from None
        except InvalidInput as error:
            self._judge(part, error)

    def _judge(self, part: Part, error: InvalidInput) -> None:
        """What it means that the last request was refused: too long, or other bytes."""
        if "answered 41" in error.message and self._chunk_bytes > SMALLEST_CHUNK_BYTES:
            self._chunk_bytes = max(
                min(self._chunk_bytes, part.size_bytes) // 4, SMALLEST_CHUNK_BYTES
            )
            raise _SessionLost from error
        if "DIGEST" not in error.message:
            raise error
        raise IntegrityError(
            f"blob {part.digest}: the registry received other bytes than these",
            hint="run `enginectl verify`; if all is whole, run the same command again",
            reference="blob-damaged",
        ) from error

    def _next(self, answer: requests.Response, default: str | None = None) -> str:
        location = answer.headers.get("Location") or default
        if location is None:
            raise Unavailable(
                f"registry {self._remote.ref.host}: names no place to upload to",
                hint="check that the address is one of an OCI registry",
                reference="oci-protocol-broken",
            )
        return urljoin(answer.url, location)


class _SessionLost(Exception):
    """The registry forgot the upload; it has to start over."""


def skip(stream: BinaryIO, count: int) -> None:
    """Go on to an offset of a stream that was just opened."""
    if not count:
        return
    if stream.seekable():
        stream.seek(count)
        return
    while count and (data := stream.read(min(count, READ_SIZE_BYTES))):
        count -= len(data)


def _received(answer: requests.Response, default: int) -> int:
    """How many bytes a registry says it has: `Range: 0-N`, N inclusive."""
    found = re.fullmatch(r"(?:bytes=)?0-(\d+)", answer.headers.get("Range", ""))
    if found is None:
        return default
    return int(found[1]) + 1 if int(found[1]) else min(default, 1)
