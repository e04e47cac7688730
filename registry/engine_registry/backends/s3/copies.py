"""Copies within the bucket: the store moves the bytes, in parts where the object is large.

What a copy says of itself is what its source said: metadata go along, and large objects are put
together from the same parts as when they were uploaded, so checksums of parts stay the same too.
"""

from __future__ import annotations

from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from engine_registry import layout
from engine_registry.backends.s3.checksums import FIELDS, PART_BYTES, part_bytes_for, upload_options
from engine_registry.backends.s3.failures import Answered, Kind
from engine_registry.backends.s3.upload import Uploads

if TYPE_CHECKING:
    from engine_registry.backends.s3.checksums import Head
    from engine_registry.backends.s3.objects import Objects

# S3 copies up to 5 GB in one request. A store that copies byte by byte says nothing meanwhile, and
# should be done before it is taken for dead.
WHOLE_UP_TO_BYTES = 1 << 30
_STREAMS = 8
_GONE = (Kind.UNMET, Kind.ABSENT)


class Copies:
    """Copies objects of one registry.

    Args:
        objects: of the registry.
        whole_up_to_bytes: what is larger is copied in parts.
        part_bytes: least size of a part.
    """

    def __init__(
        self,
        objects: Objects,
        whole_up_to_bytes: int = WHOLE_UP_TO_BYTES,
        part_bytes: int = PART_BYTES,
    ) -> None:
        self._objects = objects
        self._bucket = objects.bucket
        self._address = objects.address
        self._whole_up_to_bytes = whole_up_to_bytes
        self._part_bytes = part_bytes
        self._sweeping = Lock()
        self._swept = False

    def copy(self, source: str, target: str, head: Head) -> bool:
        """Put a copy at `target`, in place of what is there.

        Args:
            source: name of what is copied.
            target: name of the copy.
            head: what the source is; False, and nothing was copied, if it no longer is.
        """
        try:
            if head.size_bytes > self._whole_up_to_bytes:
                return self._in_parts(source, target, head)
            self._bucket.call(
                "copy_object",
                f"copy {source} to {target}",
                _GONE,
                Key=self._address.key(target),
                **self._from(source, head),
            )
        except Answered:
            return False
        return True

    def _from(self, source: str, head: Head) -> dict[str, Any]:
        where = {"Bucket": self._address.bucket, "Key": self._address.key(source)}
        return {"CopySource": where, "CopySourceIfMatch": head.etag}

    def _in_parts(self, source: str, target: str, head: Head) -> bool:
        self._sweep_once()
        mode = self._address.checksum
        mark = uuid4().hex
        key = self._address.key(target)
        upload = self._bucket.call(
            "create_multipart_upload",
            f"begin to copy {source}",
            Key=key,
            ContentType="application/octet-stream",
            Metadata={**head.metadata, "copy": mark},
            **upload_options(mode),
        )["UploadId"]
        try:
            parts = self._parts(source, key, upload, head)
            self._bucket.call(
                "complete_multipart_upload",
                f"complete the copy of {source}",
                (Kind.NO_UPLOAD,),
                Key=key,
                UploadId=upload,
                MultipartUpload={"Parts": parts},
            )
        except Answered as answer:
            if answer.kind is Kind.NO_UPLOAD:  # swept; or complete, and only the reply was lost
                there = self._objects.head(target)
                return there is not None and there.metadata.get("copy") == mark
            with suppress(Answered):
                self._bucket.call(
                    "abort_multipart_upload",
                    f"give up copying {source}",
                    (Kind.NO_UPLOAD,),
                    Key=key,
                    UploadId=upload,
                )
            return False
        return True

    def _parts(self, source: str, key: str, upload: str, head: Head) -> list[dict[str, Any]]:
        step = part_bytes_for(head.size_bytes, self._part_bytes)
        field = FIELDS.get(self._address.checksum)

        def send(number: int) -> dict[str, Any]:
            first = (number - 1) * step
            last = min(first + step, head.size_bytes) - 1
            answer = self._bucket.call(
                "upload_part_copy",
                f"copy part {number} of {source}",
                (*_GONE, Kind.NO_UPLOAD),
                Key=key,
                UploadId=upload,
                PartNumber=number,
                CopySourceRange=f"bytes={first}-{last}",
                **self._from(source, head),
            )["CopyPartResult"]
            stated = {field: answer[field]} if field and answer.get(field) else {}
            return {"PartNumber": number, "ETag": answer["ETag"], **stated}

        count = -(-head.size_bytes // step)
        with ThreadPoolExecutor(_STREAMS) as pool:
            jobs = [pool.submit(send, number) for number in range(1, count + 1)]
            wait(jobs, return_when=FIRST_EXCEPTION)
            for job in jobs:
                job.cancel()  # those not begun, if one failed
        failed = [job for job in jobs if not job.cancelled() and job.exception() is not None]
        return [job.result() for job in (*failed, *jobs)]

    def _sweep_once(self) -> None:
        """Abort what a collector that died left of copies into the trash."""
        with self._sweeping:
            swept, self._swept = self._swept, True
        if not swept:
            with ThreadPoolExecutor(1) as pool:
                Uploads(self._bucket, pool).sweep(folder=layout.trash(layout.BLOBS))
