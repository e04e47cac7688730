"""Small objects by stored name: read, look at, write under a condition, list, delete.

A conditional write that was refused says so by returning None. Each one carries a random
`writer` in its metadata, so that a writer whose reply was lost recognises its own object.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from engine_registry.backends.s3.address import ChecksumMode
from engine_registry.backends.s3.checksums import Head, checksum, sent_with
from engine_registry.backends.s3.failures import Answered, Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine_registry.backends.s3.bucket import Bucket

IF_ABSENT: Mapping[str, str] = {"IfNoneMatch": "*"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A small object and its bytes."""

    data: bytes
    head: Head


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """One line of a listing: an object, or a folder (ends in a slash)."""

    name: str
    size_bytes: int = 0


class Objects:
    """Objects below the prefix of one registry."""

    def __init__(self, bucket: Bucket) -> None:
        self.bucket = bucket
        self.address = bucket.address

    def get(self, name: str) -> Held | None:
        """The whole object; None if there is none."""
        key = self.address.key(name)
        client = self.bucket.client

        def act() -> Held:
            answer = client.get_object(Bucket=self.address.bucket, Key=key)
            with answer["Body"] as body:
                return Held(data=body.read(), head=Head.of(answer))

        try:
            return self.bucket.attempt(f"read {name}", act, (Kind.ABSENT,))
        except Answered:
            return None

    def head(self, name: str) -> Head | None:
        """What the store says of an object; None if there is none."""
        answer = self.look(name)
        return None if answer is None else Head.of(answer)

    def look(self, name: str) -> dict[str, Any] | None:
        """The store's whole answer to a HEAD; None if there is no such object."""
        try:
            return self.bucket.call(
                "head_object",
                f"look at {name}",
                (Kind.ABSENT,),
                Key=self.address.key(name),
                ChecksumMode="ENABLED",
            )
        except Answered:
            return None

    def put(
        self,
        name: str,
        data: bytes,
        *,
        condition: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        content_type: str = "application/octet-stream",
    ) -> str | None:
        """Write a small object; its ETag, or None if the condition was not met."""
        mode = self.address.checksum
        if mode is ChecksumMode.MD5:
            guard = sent_with(mode, checksum(mode, data))
        else:
            guard = sent_with(ChecksumMode.SHA256, hashlib.sha256(data).digest())
        try:
            answer = self.bucket.call(
                "put_object",
                f"write {name}",
                # If-Match on an object that is gone is 404 in some stores and 412 in others.
                (Kind.UNMET, Kind.ABSENT) if condition else (),
                Key=self.address.key(name),
                Body=data,
                ContentType=content_type,
                Metadata=dict(metadata or {}),
                **guard,
                **dict(condition or {}),
            )
        except Answered:
            return None
        return str(answer["ETag"])

    def delete(self, name: str, *, condition: Mapping[str, str] | None = None) -> bool:
        """Remove an object; False if the condition was not met. A no-op where there is none."""
        try:
            self.bucket.call(
                "delete_object",
                f"remove {name}",
                (Kind.UNMET, Kind.ABSENT) if condition else (),
                Key=self.address.key(name),
                **dict(condition or {}),
            )
        except Answered:
            return False
        return True

    def children(self, folder: str) -> Iterator[Listed]:
        """Objects and folders directly below a folder, in the store's order."""
        yield from self._list(f"{self.address.key(folder)}/", f"list {folder}", Delimiter="/")

    def below(self, folder: str = "") -> Iterator[Listed]:
        """Every object below a folder, or of the whole registry, sorted by name."""
        prefix = f"{self.address.key(folder)}/" if folder else self.address.prefix
        yield from self._list(prefix, f"list {folder or 'the registry'}")

    def _list(self, prefix: str, what: str, **options: Any) -> Iterator[Listed]:
        cut = len(self.address.prefix)
        while True:
            page = self.bucket.call("list_objects_v2", what, Prefix=prefix, **options)
            for item in page.get("Contents", []):
                # Consoles mark folders with an empty object of that name.
                if not item["Key"].endswith("/"):
                    yield Listed(name=item["Key"][cut:], size_bytes=int(item["Size"]))
            for item in page.get("CommonPrefixes", []):
                yield Listed(name=item["Prefix"][cut:])
            if not page.get("IsTruncated"):
                return
            options["ContinuationToken"] = page["NextContinuationToken"]


def new_writer() -> dict[str, str]:
    """Metadata that tells this write from every other."""
    return {"writer": uuid4().hex}
