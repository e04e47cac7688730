"""Headers of a tar archive that can only be one way. Pure.

An archive holds plain files with the names of a registry, in order, without times or owners: for a
name and a size there is exactly one header. So reading is comparing, and whatever a tar can hold
besides (links, devices, directories, sparse files, extended headers) has no way in. The library's
`tarfile` is built for the opposite: it accepts all of these, and reads a damaged header as the end.

Source: POSIX.1-2017, pax, "ustar Interchange Format"; sizes from 8 GiB on in base 256, as GNU tar,
BSD tar and Python write and read them.
"""

from __future__ import annotations

import re

from engine_registry.errors import IntegrityError
from engine_registry.refs import SLUG_PATTERN

BLOCK = 512
# What tar programs pad an archive to: 20 blocks.
RECORD = 20 * BLOCK
END = bytes(2 * BLOCK)

_HEX = "[0-9a-f]{64}"
_NAMES = re.compile(
    r"registry\.json"
    rf"|blobs/sha256/{_HEX}"
    rf"|(?:records|keys|referrers)/(?P<shard>[0-9a-f]{{2}})/(?P<hex>{_HEX})/{_HEX}\.json"
    rf"|releases/{SLUG_PATTERN}/{SLUG_PATTERN}/[0-9]{{10}}\.json"
)
_OCTAL_LIMIT = 8**11
_SIZE = slice(124, 136)
_CHECKSUM = slice(148, 156)
_TYPE = 156
_NAME = slice(0, 100)
_PREFIX = slice(345, 500)
_KINDS = {
    ord("1"): "a hard link",
    ord("2"): "a symbolic link",
    ord("3"): "a device",
    ord("4"): "a device",
    ord("5"): "a directory",
    ord("6"): "a pipe",
}


def is_stored_name(name: str) -> bool:
    """Whether an archive may hold a file of this name."""
    found = _NAMES.fullmatch(name)
    return found is not None and (found["hex"] or "").startswith(found["shard"] or "")


def header(name: str, size_bytes: int) -> bytes:
    """The one header of a file in an archive.

    Raises:
        ValueError: no name of a registry.
    """
    if not is_stored_name(name):
        raise ValueError(name)
    prefix, base = "", name
    if len(name) > _NAME.stop:
        prefix, _, base = name.rpartition("/")
    block = bytearray(BLOCK)
    block[: len(base)] = base.encode()
    block[100:124] = b"0000444\0" + b"0000000\0" * 2  # mode, owner, group
    block[_SIZE] = _number(size_bytes)
    block[136:148] = b"00000000000\0"  # time
    block[_CHECKSUM] = b" " * 8
    block[_TYPE] = ord("0")
    block[257:265] = b"ustar\x0000"
    block[_PREFIX.start : _PREFIX.start + len(prefix)] = prefix.encode()
    block[_CHECKSUM] = f"{sum(block):06o}\0 ".encode()
    return bytes(block)


def read_header(block: bytes, offset: int) -> tuple[str, int]:
    """The name and size in a header.

    Raises:
        IntegrityError: it is not the one header of a file of a registry.
    """
    where = f"archive, at byte {offset:,}"
    if block[257:263] != b"ustar\0":
        what = "no header of a file: truncated, damaged or no archive"
        if block[257:263] == b"ustar ":
            what = "was written again by another tar; unpacked it is a registry to transfer from"
        raise damaged(f"{where}: {what}")
    kind = block[_TYPE]
    name = _text(block[_PREFIX], block[_NAME])
    if kind != ord("0"):
        what = _KINDS.get(kind, f"an entry of type {chr(kind)!r}")
        raise damaged(f"{where}: {name[:120]!r} is {what}, want plain files only")
    if not is_stored_name(name):
        raise damaged(f"{where}: {name[:120]!r} is no name of a registry")
    size_bytes = _size(block[_SIZE])
    if size_bytes is None or block != header(name, size_bytes):
        raise damaged(f"{where}: the header of {name} is damaged")
    return name, size_bytes


def padded(size_bytes: int, unit: int = BLOCK) -> int:
    """`size_bytes` rounded up to whole blocks."""
    return -(-size_bytes // unit) * unit


def damaged(what: str) -> IntegrityError:
    """The error that refuses an archive."""
    return IntegrityError(
        what,
        hint="compare its sha256sum with the one where it was written; write it again with "
        "`enginectl export RELEASE --archive FILE`",
        reference="archive-damaged",
    )


def _number(size_bytes: int) -> bytes:
    if size_bytes < _OCTAL_LIMIT:
        return f"{size_bytes:011o}\0".encode()
    return b"\x80" + size_bytes.to_bytes(11, "big")


def _size(field: bytes) -> int | None:
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field[:-1]
    return int(digits, 8) if re.fullmatch(rb"[0-7]{11}", digits) else None


def _text(prefix: bytes, name: bytes) -> str:
    parts = (part.rstrip(b"\0").decode("ascii", "backslashreplace") for part in (prefix, name))
    return "/".join(part for part in parts if part)
