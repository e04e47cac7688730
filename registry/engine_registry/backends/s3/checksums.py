"""Checksums that a store verifies on receipt, in the three ways stores know them. Pure.

They guard bytes on their way and let a look at an object's head tell whether it still holds what
was sent. None of them is an identity: that is the SHA-256 over the whole file.
"""

from __future__ import annotations

import hashlib
import zlib
from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from engine_registry.backends.s3.address import ChecksumMode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_registry.digest import Digest

    Bytes = bytes | bytearray | memoryview

# A store takes at most 10,000 parts of 5 MiB or more. The size in bytes does not matter for speed
# (measured: 8 and 64 MiB are equally fast); 64 MiB covers 625 GiB before parts have to grow.
PART_BYTES = 64 << 20
_MAX_PARTS = 10_000
_STEP = 1 << 20

# Response fields that tell a stored object's checksum.
FIELDS = {ChecksumMode.CRC32: "ChecksumCRC32", ChecksumMode.SHA256: "ChecksumSHA256"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """What one file is: its identity, and the checksums of what is sent of it.

    Attributes:
        parts: checksum of each part of `part_bytes` (the last may be shorter), in order.
        whole: CRC-32 of all bytes, in mode crc32.
    """

    digest: Digest
    size_bytes: int
    mode: ChecksumMode
    part_bytes: int
    parts: tuple[bytes, ...]
    whole: bytes = b""

    def part(self, number: int) -> tuple[int, int]:
        """Offset and length of part `number`, from 1."""
        offset = (number - 1) * self.part_bytes
        return offset, min(self.part_bytes, self.size_bytes - offset)

    def expected(self) -> tuple[str, ...]:
        """What a store may state as the checksum of the whole multipart object."""
        match self.mode:
            case ChecksumMode.CRC32:
                # Of the whole object; of the parts' checksums where a store knows only that.
                composite = zlib.crc32(b"".join(self.parts)).to_bytes(4, "big")
                return encoded(self.whole), f"{encoded(composite)}-{len(self.parts)}"
            case ChecksumMode.SHA256:
                composite = hashlib.sha256(b"".join(self.parts)).digest()
                return (f"{encoded(composite)}-{len(self.parts)}",)
            case ChecksumMode.MD5:
                return ()

    def metadata(self) -> dict[str, str]:
        """What a multipart object says of itself, so that a look at its head is enough."""
        said = {"sha256": self.digest.hex}
        if expected := self.expected():
            said["checksums"] = " ".join(expected)
        return said


class Fingerprinting:
    """Computes the checksums of a file's parts while it is read from start to end."""

    def __init__(self, mode: ChecksumMode, part_bytes: int) -> None:
        self._mode = mode
        self._part_bytes = part_bytes
        self._parts: list[bytes] = []
        self._whole = 0
        self._held = 0
        self._part = Running(mode)

    def update(self, data: memoryview) -> None:
        """Take the next bytes in."""
        if self._mode is ChecksumMode.CRC32:
            self._whole = zlib.crc32(data, self._whole)
        while data:
            piece = data[: self._part_bytes - self._held]
            self._part.update(piece)
            self._held += len(piece)
            data = data[len(piece) :]
            if self._held == self._part_bytes:
                self._close_part()

    def done(self, digest: Digest, size_bytes: int) -> Fingerprint:
        """The fingerprint, once every byte was taken in."""
        if self._held:
            self._close_part()
        return Fingerprint(
            digest=digest,
            size_bytes=size_bytes,
            mode=self._mode,
            part_bytes=self._part_bytes,
            parts=tuple(self._parts),
            whole=self._whole.to_bytes(4, "big"),
        )

    def _close_part(self) -> None:
        self._parts.append(self._part.value())
        self._part = Running(self._mode)
        self._held = 0


class Running:
    """One checksum as it grows."""

    def __init__(self, mode: ChecksumMode) -> None:
        self._crc = 0
        self._state = {
            ChecksumMode.CRC32: None,
            ChecksumMode.SHA256: hashlib.sha256(),
            ChecksumMode.MD5: hashlib.md5(usedforsecurity=False),
        }[mode]

    def update(self, data: Bytes) -> None:
        """Take the next bytes in."""
        if self._state is None:
            self._crc = zlib.crc32(data, self._crc)
        else:
            self._state.update(data)

    def value(self) -> bytes:
        """Of what was taken in so far."""
        return self._crc.to_bytes(4, "big") if self._state is None else self._state.digest()


def checksum(mode: ChecksumMode, data: Bytes) -> bytes:
    """The checksum of these bytes."""
    running = Running(mode)
    running.update(data)
    return running.value()


def encoded(value: bytes) -> str:
    """As headers carry it."""
    return b64encode(value).decode()


def sent_with(mode: ChecksumMode, value: bytes) -> dict[str, str]:
    """Parameters that make the store refuse a body with another checksum."""
    return {FIELDS.get(mode, "ContentMD5"): encoded(value)}


def upload_options(mode: ChecksumMode) -> dict[str, str]:
    """Parameters of the start of a multipart upload whose parts are sent with checksums."""
    match mode:
        case ChecksumMode.CRC32:
            return {"ChecksumAlgorithm": "CRC32", "ChecksumType": "FULL_OBJECT"}
        case ChecksumMode.SHA256:
            return {"ChecksumAlgorithm": "SHA256"}
        case ChecksumMode.MD5:
            return {}


def metadata_of(mode: ChecksumMode, digest: Digest) -> dict[str, str]:
    """What an object sent in one request says of itself."""
    if mode is ChecksumMode.MD5:
        return {"sha256": digest.hex}
    return {"sha256": digest.hex, "checksums": encoded(bytes.fromhex(digest.hex))}


def part_bytes_for(size_bytes: int, least: int = PART_BYTES) -> int:
    """The part size for a file: `least`, or more where there would be too many parts."""
    needed = -(-size_bytes // _MAX_PARTS)
    return least if needed <= least else -(-needed // _STEP) * _STEP


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """What a store says of one object without sending its bytes."""

    size_bytes: int
    etag: str
    last_modified: str
    metadata: Mapping[str, str]
    checksums: tuple[str, ...]
    sha256: bytes | None

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Self:
        """Read a HEAD or GET answer."""
        stated = [answer.get(field) for field in FIELDS.values()]
        return cls(
            size_bytes=int(answer["ContentLength"]),
            etag=answer["ETag"],
            last_modified=answer["LastModified"].isoformat(),
            metadata=answer.get("Metadata", {}),
            checksums=tuple(value for value in stated if value),
            sha256=_plain_sha256(answer.get("ChecksumSHA256")),
        )

    def vouches(self, digest: Digest) -> bool:
        """Whether the object's bytes were verified to be those of `digest` and not replaced since.

        Either the store itself knows their SHA-256, or the writer said what the store's checksum
        would be and it is.
        """
        if self.sha256 is not None:
            return self.sha256.hex() == digest.hex
        if self.metadata.get("sha256") != digest.hex:
            return False
        promised = self.metadata.get("checksums", "").split()
        return not promised or bool(set(promised) & set(self.checksums))


def _plain_sha256(stated: str | None) -> bytes | None:
    """The SHA-256 of a whole object; None for one of parts (`…-N`) or none at all."""
    if not stated or "-" in stated:
        return None
    try:
        value = b64decode(stated, validate=True)
    except ValueError:
        return None
    return value if len(value) == hashlib.sha256().digest_size else None
