"""Large blobs go up in parts: several at a time, resumed from what is there.

An interrupted upload is left as it is, and gone on with by whoever stores the same bytes next
(`unfinished`). Two writers of one blob may share an upload: they send the same bytes. Completing
decides nothing, so it carries no condition.
"""

from __future__ import annotations

import logging
from concurrent.futures import FIRST_EXCEPTION, wait
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.backends.s3.checksums import (
    FIELDS,
    Fingerprint,
    encoded,
    sent_with,
    upload_options,
)
from engine_registry.backends.s3.failures import Answered, Kind
from engine_registry.backends.s3.outgoing import PartBody
from engine_registry.backends.s3.source import changed, unreadable
from engine_registry.backends.s3.unfinished import SWEEP_AFTER, Part, Unfinished
from engine_registry.errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor
    from datetime import timedelta
    from pathlib import Path

    from engine_registry.backends.s3.bucket import Bucket

_LOG = logging.getLogger(__name__)

# How often an upload may vanish under us (swept, or completed by somebody else) before we give up.
_TRIES = 4


class Uploads:
    """Multipart uploads of one registry.

    Args:
        bucket: where to.
        pool: sends the parts.
    """

    def __init__(self, bucket: Bucket, pool: Executor) -> None:
        self._bucket = bucket
        self._address = bucket.address
        self._pool = pool
        self._unfinished = Unfinished(bucket, pool)

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
                found = self._unfinished.resumable(name, fd, print_) if resume else None
                upload, held = found or (self._create(name, print_), {})
                parts = self._send_missing(path, fd, print_, name, upload, held)
                self._complete(name, upload, parts, print_)
            except Answered as answer:
                if answer.kind is Kind.NO_UPLOAD:
                    if arrived():
                        return
                    continue
                self._unfinished.abort(name, upload)
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
        """See `Unfinished.sweep`."""
        return self._unfinished.sweep(older_than, folder)

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

    def _send_missing(
        self,
        path: Path,
        fd: int,
        print_: Fingerprint,
        name: str,
        upload: str,
        held: dict[int, Part],
    ) -> list[Part]:
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
    ) -> Part:
        value = print_.parts[number - 1]
        key = self._address.key(name)
        upload_part = self._bucket.client.upload_part

        def act() -> Part:
            body = PartBody(fd, *print_.part(number), print_.mode)
            try:
                answer = upload_part(
                    Bucket=self._address.bucket,
                    Key=key,
                    UploadId=upload,
                    PartNumber=number,
                    Body=body,
                    **sent_with(print_.mode, value),
                )
            finally:
                # Whatever the store says, these are not the bytes that it was told of.
                if isinstance(body.failure, OSError):
                    raise unreadable(path, body.failure)
                if body.differs(value):
                    raise changed(path, "it was written to while it was sent")
            return Part(number=number, etag=answer["ETag"])

        return self._bucket.attempt(f"send part {number} of {name}", act, (Kind.NO_UPLOAD,))

    def _complete(self, name: str, upload: str, parts: list[Part], print_: Fingerprint) -> None:
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

    def _refused(self, name: str, print_: Fingerprint) -> Unavailable:
        return Unavailable(
            f"{self._address}: {name}: the store does not put together the parts it was sent "
            f"(checksum={print_.mode})",
            hint="try checksum=md5 in the address; docs/stores.md lists what a store must do",
            reference="store-parts-refused",
        )
