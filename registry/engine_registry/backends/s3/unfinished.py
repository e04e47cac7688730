"""Multipart uploads that somebody began and did not end: resumed, aborted, swept.

An interrupted upload is left as it is. Whoever stores the same bytes next finds it by its key and
keeps each part that is provably right: the store lists its checksum, or its ETag is the part's MD5;
an ETag that is not proves nothing.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from engine_registry import layout
from engine_registry.backends.s3.address import ChecksumMode
from engine_registry.backends.s3.checksums import FIELDS, Fingerprint, encoded, upload_options
from engine_registry.backends.s3.failures import Answered, Kind
from engine_registry.backends.s3.outgoing import PartBody
from engine_registry.errors import EngineCIError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor

    from engine_registry.backends.s3.bucket import Bucket

_LOG = logging.getLogger(__name__)

# An upload is given up for dead this long after it began; by the store's clock, not ours.
SWEEP_AFTER = timedelta(days=7)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A part in the store: number and ETag, which completing has to name."""

    number: int
    etag: str


class Unfinished:
    """The unfinished uploads of one registry.

    Args:
        bucket: where they are.
        pool: hashes parts.
    """

    def __init__(self, bucket: Bucket, pool: Executor) -> None:
        self._bucket = bucket
        self._address = bucket.address
        self._pool = pool

    def resumable(
        self, name: str, fd: int, print_: Fingerprint
    ) -> tuple[str, dict[int, Part]] | None:
        """The upload of these bytes that got furthest, and its good parts by number."""
        best: tuple[str, dict[int, Part]] | None = None
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

    def _good_parts(self, name: str, fd: int, print_: Fingerprint, upload: str) -> dict[int, Part]:
        count = len(print_.parts)
        jobs = [
            self._pool.submit(self._checked, fd, print_, item)
            for item in self._parts(name, upload)
            if item["PartNumber"] <= count
            and int(item["Size"]) == print_.part(item["PartNumber"])[1]
        ]
        return {part.number: part for part in (job.result() for job in jobs) if part is not None}

    def _checked(self, fd: int, print_: Fingerprint, item: dict[str, Any]) -> Part | None:
        """The part if it holds what the file holds there; None if it does not or cannot tell."""
        number = int(item["PartNumber"])
        stated = item.get(FIELDS[print_.mode]) if print_.mode in FIELDS else None
        if stated:
            right = stated == encoded(print_.parts[number - 1])
        else:
            right = str(item["ETag"]).strip('"') == _md5(fd, *print_.part(number))
        return Part(number=number, etag=item["ETag"]) if right else None

    def sweep(self, older_than: timedelta = SWEEP_AFTER, folder: str = layout.BLOBS) -> list[str]:
        """Abort uploads that began so long ago that nobody is at work on them; says which.

        Never fails an act: without the permission to list uploads there is nothing to sweep.
        """
        gone = []
        try:
            for upload in self._listed(folder):
                if upload["now"] - upload["Initiated"] >= older_than:
                    name = upload["Key"][len(self._address.prefix) :]
                    self.abort(name, upload["UploadId"])
                    gone.append(name)
        except EngineCIError as error:
            _LOG.info("orphaned uploads not swept: %s", error.message)
        return gone

    def abort(self, name: str, upload: str) -> None:
        """Give an upload up; a no-op where it has ended."""
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


def _md5(fd: int, offset: int, length: int) -> str:
    """Hex MD5 of a part: the ETag that most stores give it. Empty if the file is shorter."""
    try:
        return PartBody(fd, offset, length, ChecksumMode.MD5).checksum().hex()
    except EOFError:
        return ""


def _same_making(upload: dict[str, Any], print_: Fingerprint) -> bool:
    """Whether its parts carry the checksums that ours would, as far as the store says."""
    wanted = upload_options(print_.mode)
    return all(upload.get(field, value) == value for field, value in wanted.items())


def _date(page: dict[str, Any]) -> datetime:
    stated = page["ResponseMetadata"]["HTTPHeaders"].get("date")
    return parsedate_to_datetime(stated) if stated else datetime.now(UTC)
