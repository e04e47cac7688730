"""Large blobs go up in parts: several at a time, resumed from what is there, swept when orphaned.

An interrupted upload is left as it is. Whoever stores the same bytes next finds it by its key,
keeps each part that is provably right (the store lists its checksum, or its ETag is the part's MD5;
an ETag that is not proves nothing) and sends the rest. Two writers of one blob may share an upload:
they send the same bytes. Completing decides nothing, so it carries no condition.
"""

from __future__ import annotations

import logging
import os
from concurrent.futures import FIRST_EXCEPTION, wait
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from threading import local
from typing import TYPE_CHECKING, Any

from engine_registry import layout
from engine_registry.backends.s3.checksums import (
    FIELDS,
    Fingerprint,
    checksum,
    encoded,
    md5_of,
    sent_with,
    upload_options,
)
from engine_registry.backends.s3.failures import Answered, Kind
from engine_registry.backends.s3.source import changed
from engine_registry.errors import EngineCIError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor
    from pathlib import Path

    from engine_registry.backends.s3.bucket import Bucket

_LOG = logging.getLogger(__name__)

# An upload is given up for dead this long after it began; by the store's clock, not ours.
SWEEP_AFTER = timedelta(days=7)
# How often an upload may vanish under us (swept, or completed by somebody else) before we give up.
_TRIES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A part in the store: number and ETag, which completing has to name."""

    number: int
    etag: str


class Uploads:
    """Multipart uploads of one registry.

    Args:
        bucket: where to.
        pool: sends the parts; one buffer of part size per thread.
    """

    def __init__(self, bucket: Bucket, pool: Executor) -> None:
        self._bucket = bucket
        self._address = bucket.address
        self._pool = pool
        self._buffers = local()

    def store(self, path: Path, fd: int, print_: Fingerprint, arrived: Callable[[], bool]) -> None:
        """Put the open file at its blob's key, whole or not at all.

        Args:
            path: for messages.
            fd: the file.
            print_: what the file holds.
            arrived: whether the whole blob is there. Asked when the upload is found ended: by
                another writer of the same bytes, or by ourselves with the reply lost.

        Raises:
            InvalidInput: the file's bytes are no longer those of the fingerprint.
            Unavailable: the store failed; what was sent is kept for the next try.
        """
        name = layout.blob(print_.digest)
        resume = True
        for _ in range(_TRIES):
            try:
                found = self._resumable(name, fd, print_) if resume else None
                upload, held = found or (self._create(name, print_), {})
                parts = self._send_missing(path, fd, print_, name, upload, held)
                self._complete(name, upload, parts, print_)
            except Answered as answer:
                if answer.kind is Kind.NO_UPLOAD:
                    if arrived():
                        return
                    continue
                self._abort(name, upload)
                if not resume:
                    raise self._refused(name, print_) from answer
                resume = False  # parts of another making: begin afresh
            else:
                return
        raise Unavailable(
            f"{self._address}: the upload of {name} was ended {_TRIES} times before it was whole",
            hint="look for a lifecycle rule or a script that aborts multipart uploads too early",
            reference="store-upload-ended",
        )

    def sweep(self, older_than: timedelta = SWEEP_AFTER, folder: str = layout.BLOBS) -> list[str]:
        """Abort uploads that began so long ago that nobody is at work on them; says which.

        Never fails an act: without the permission to list uploads there is nothing to sweep.
        """
        gone = []
        try:
            for upload in self._listed(folder):
                if upload["now"] - upload["Initiated"] >= older_than:
                    name = upload["Key"][len(self._address.prefix) :]
                    self._abort(name, upload["UploadId"])
                    gone.append(name)
        except EngineCIError as error:
            _LOG.info("orphaned uploads not swept: %s", error.message)
        return gone

    def _create(self, name: str, print_: Fingerprint) -> str:
        answer = self._bucket.call(
            "create_multipart_upload",
            f"begin the upload of {name}",
            Key=self._address.key(name),
            ContentType="application/octet-stream",
            Metadata=print_.metadata(),
            **upload_options(print_.mode),
        )
        return str(answer["UploadId"])

    def _resumable(
        self, name: str, fd: int, print_: Fingerprint
    ) -> tuple[str, dict[int, _Part]] | None:
        """The upload of these bytes that got furthest, and its good parts by number."""
        best: tuple[str, dict[int, _Part]] | None = None
        key = self._address.key(name)
        try:
            for upload in self._listed(name):
                if upload["Key"] != key or not _same_making(upload, print_):
                    continue
                held = self._good_parts(name, fd, print_, upload["UploadId"])
                if held and (best is None or len(held) > len(best[1])):
                    best = upload["UploadId"], held
        except EngineCIError as error:
            _LOG.info("%s: not resumed, sent from the start: %s", name, error.message)
        return best

    def _good_parts(self, name: str, fd: int, print_: Fingerprint, upload: str) -> dict[int, _Part]:
        count = len(print_.parts)
        jobs = [
            self._pool.submit(self._checked, fd, print_, item)
            for item in self._parts(name, upload)
            if item["PartNumber"] <= count
            and int(item["Size"]) == print_.part(item["PartNumber"])[1]
        ]
        return {part.number: part for part in (job.result() for job in jobs) if part is not None}

    def _checked(self, fd: int, print_: Fingerprint, item: dict[str, Any]) -> _Part | None:
        """The part if it holds what the file holds there; None if it does not or cannot tell."""
        number = int(item["PartNumber"])
        stated = item.get(FIELDS[print_.mode]) if print_.mode in FIELDS else None
        if stated:
            right = stated == encoded(print_.parts[number - 1])
        else:
            offset, length = print_.part(number)
            right = str(item["ETag"]).strip('"') == md5_of(self._read(fd, offset, length))
        return _Part(number=number, etag=item["ETag"]) if right else None

    def _send_missing(
        self,
        path: Path,
        fd: int,
        print_: Fingerprint,
        name: str,
        upload: str,
        held: dict[int, _Part],
    ) -> list[_Part]:
        numbers = [n for n in range(1, len(print_.parts) + 1) if n not in held]
        if held:
            _LOG.info("%s: resumed, %d of %d parts are there", name, len(held), len(print_.parts))
        jobs = [
            self._pool.submit(self._send, path, fd, print_, name, upload, number)
            for number in numbers
        ]
        try:
            done, _ = wait(jobs, return_when=FIRST_EXCEPTION)
            for job in done:
                job.result()
        finally:
            for job in jobs:
                job.cancel()
            wait(jobs)  # the file stays open until nobody reads it
        sent = [job.result() for job in jobs]
        return sorted([*held.values(), *sent], key=lambda part: part.number)

    def _send(
        self, path: Path, fd: int, print_: Fingerprint, name: str, upload: str, number: int
    ) -> _Part:
        data = self._read(fd, *print_.part(number))
        value = print_.parts[number - 1]
        if checksum(print_.mode, data) != value:
            raise changed(path, "it was written to while it was sent")
        answer = self._bucket.call(
            "upload_part",
            f"send part {number} of {name}",
            (Kind.NO_UPLOAD,),
            Key=self._address.key(name),
            UploadId=upload,
            PartNumber=number,
            Body=data,
            **sent_with(print_.mode, value),
        )
        return _Part(number=number, etag=answer["ETag"])

    def _complete(self, name: str, upload: str, parts: list[_Part], print_: Fingerprint) -> None:
        field = FIELDS.get(print_.mode)
        listed = [
            {"PartNumber": part.number, "ETag": part.etag}
            | ({field: encoded(print_.parts[part.number - 1])} if field else {})
            for part in parts
        ]
        whole = (
            {"ChecksumType": "FULL_OBJECT", "ChecksumCRC32": encoded(print_.whole)}
            if upload_options(print_.mode).get("ChecksumType")
            else {}
        )
        self._bucket.call(
            "complete_multipart_upload",
            f"complete the upload of {name}",
            (Kind.NO_UPLOAD, Kind.BAD_PARTS, Kind.DAMAGED),
            Key=self._address.key(name),
            UploadId=upload,
            MultipartUpload={"Parts": listed},
            **whole,
        )

    def _abort(self, name: str, upload: str) -> None:
        try:
            self._bucket.call(
                "abort_multipart_upload",
                f"abort an upload of {name}",
                (Kind.NO_UPLOAD,),
                Key=self._address.key(name),
                UploadId=upload,
            )
        except Answered:
            return

    def _refused(self, name: str, print_: Fingerprint) -> Unavailable:
        return Unavailable(
            f"{self._address}: {name}: the store does not put together the parts it was sent "
            f"(checksum={print_.mode})",
            hint="try checksum=md5 in the address; docs/stores.md lists what a store must do",
            reference="store-parts-refused",
        )

    def _listed(self, name: str) -> Iterator[dict[str, Any]]:
        """Unfinished uploads whose key begins with that of `name`; `now` by the store's clock."""
        marks: dict[str, str] = {}
        while True:
            page = self._bucket.call(
                "list_multipart_uploads",
                "list unfinished uploads",
                Prefix=self._address.key(name),
                **marks,
            )
            now = _date(page)
            for upload in page.get("Uploads", []):
                yield {**upload, "now": now}
            if not page.get("IsTruncated"):
                return
            marks = {
                "KeyMarker": page["NextKeyMarker"],
                "UploadIdMarker": page["NextUploadIdMarker"],
            }

    def _parts(self, name: str, upload: str) -> Iterator[dict[str, Any]]:
        marks: dict[str, int] = {}
        while True:
            try:
                page = self._bucket.call(
                    "list_parts",
                    f"list what is there of {name}",
                    (Kind.NO_UPLOAD, Kind.ABSENT),
                    Key=self._address.key(name),
                    UploadId=upload,
                    **marks,
                )
            except Answered:
                return
            yield from page.get("Parts", [])
            if not page.get("IsTruncated"):
                return
            marks = {"PartNumberMarker": int(page["NextPartNumberMarker"])}

    def _read(self, fd: int, offset: int, length: int) -> bytearray:
        """Bytes of the file, in this thread's buffer: fresh memory would cost as much as the read.

        Shorter than asked for if the file is; its checksum then differs.
        """
        buffer: bytearray | None = getattr(self._buffers, "buffer", None)
        if buffer is None or len(buffer) != length:
            buffer = self._buffers.buffer = bytearray(length)
        filled = 0
        view = memoryview(buffer)
        while filled < length and (count := os.preadv(fd, [view[filled:]], offset + filled)):
            filled += count
        view.release()
        return buffer if filled == length else buffer[:filled]


def _same_making(upload: dict[str, Any], print_: Fingerprint) -> bool:
    """Whether its parts carry the checksums that ours would, as far as the store says."""
    wanted = upload_options(print_.mode)
    return all(upload.get(field, value) == value for field, value in wanted.items())


def _date(page: dict[str, Any]) -> datetime:
    stated = page["ResponseMetadata"]["HTTPHeaders"].get("date")
    return parsedate_to_datetime(stated) if stated else datetime.now(UTC)
