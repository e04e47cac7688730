"""The address of a registry in a bucket: `s3://bucket/prefix?endpoint=…&region=…`.

Pure. An address is printed in messages and kept in configuration, so one that carries a credential
is refused, without repeating it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit

from engine_registry.errors import InvalidInput

# General purpose buckets; https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_OPTIONS = ("endpoint", "region", "checksum", "path_style")
_HINT = "write it as s3://BUCKET/PREFIX?endpoint=https://HOST; docs/stores.md lists every option"
_CREDENTIALS_HINT = "give credentials by AWS_PROFILE or AWS_ACCESS_KEY_ID, never in an address"


class ChecksumMode(StrEnum):
    """What guards uploaded bytes on their way, beside the SHA-256 that names them."""

    CRC32 = "crc32"  # of the whole object: the default of current S3 clients
    SHA256 = "sha256"  # of each part: no accident and no forgery passes; a second hash to compute
    MD5 = "md5"  # of each request: for stores that know no newer checksum


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Address:
    """Where a registry lies.

    Attributes:
        prefix: empty, or ends in a slash; goes before every stored name.
        endpoint: None: the one that AWS configuration gives.
        path_style: bucket in the path instead of the host name; default for an `endpoint`.
    """

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    checksum: ChecksumMode = ChecksumMode.CRC32
    path_style: bool = False

    @classmethod
    def parse(cls, url: str) -> Self:
        """Read an `s3:` address.

        Raises:
            InvalidInput: not a bucket and a prefix, an unknown option or value, or a credential.
        """
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise InvalidInput(
                "registry s3://…: the address carries a user or a password",
                hint=_CREDENTIALS_HINT,
                reference="credential-in-address",
            )
        if not _BUCKET.fullmatch(parts.netloc):
            raise _malformed(f"{parts.netloc[:80]!r} is not the name of a bucket")
        if parts.fragment:
            raise _malformed("'#' is not part of an address")
        options = _options(parts.query)
        endpoint = _endpoint(options["endpoint"]) if "endpoint" in options else None
        return cls(
            bucket=parts.netloc,
            prefix=_prefix(unquote(parts.path)),
            endpoint=endpoint,
            region=options.get("region"),
            checksum=_checksum(options.get("checksum", ChecksumMode.CRC32)),
            path_style=_flag(options["path_style"]) if "path_style" in options else bool(endpoint),
        )

    def key(self, name: str) -> str:
        """The object's key for a stored name; one that could leave the prefix is refused."""
        if not name or name.startswith("/") or {"", ".", ".."} & set(name.split("/")):
            raise InvalidInput(
                f"not a stored name: {name[:120]!r}",
                hint="names in a registry are relative and stay inside it",
                reference="invalid-stored-name",
            )
        return f"{self.prefix}{name}"

    def __str__(self) -> str:
        """For messages: bucket, prefix, and the endpoint where one is given."""
        place = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        return f"{place} at {self.endpoint}" if self.endpoint else place


def _options(query: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        if name not in _OPTIONS:
            # The value stays out of the message: it may be a secret key.
            raise _malformed(f"unknown option {name[:40]!r} (known: {', '.join(_OPTIONS)})")
        if name in found:
            raise _malformed(f"option {name} is given twice")
        if not value:
            raise _malformed(f"option {name} is empty")
        found[name] = value
    return found


def _prefix(path: str) -> str:
    trimmed = path.strip("/")
    if not trimmed:
        return ""
    if {"", ".", ".."} & set(trimmed.split("/")):
        raise _malformed(f"prefix {trimmed[:120]!r} has an empty, '.' or '..' part")
    return f"{trimmed}/"


def _endpoint(text: str) -> str:
    parts = urlsplit(text)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidInput(
            "registry s3://…: the endpoint carries a user, a password or a query",
            hint=_CREDENTIALS_HINT,
            reference="credential-in-address",
        )
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise _malformed(f"endpoint {text[:120]!r} is not http:// or https:// and a host")
    return text.rstrip("/")


def _checksum(text: str) -> ChecksumMode:
    try:
        return ChecksumMode(text)
    except ValueError:
        known = ", ".join(ChecksumMode)
        raise _malformed(f"checksum {text[:40]!r} is unknown (known: {known})") from None


def _flag(text: str) -> bool:
    if text not in {"true", "false"}:
        raise _malformed(f"path_style is {text[:40]!r}, want true or false")
    return text == "true"


def _malformed(what: str) -> InvalidInput:
    return InvalidInput(
        f"registry s3://…: {what}", hint=_HINT, reference="invalid-registry-address"
    )
