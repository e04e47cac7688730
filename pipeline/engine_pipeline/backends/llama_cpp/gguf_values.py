"""Metadata values of GGUF files: their types, and between bytes and plain values both ways. Pure.

Source: ggml docs/gguf.md, little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence


class ValueType(IntEnum):
    """Types of metadata values."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


SCALAR_FORMATS = {
    ValueType.UINT8: "B",
    ValueType.INT8: "b",
    ValueType.UINT16: "H",
    ValueType.INT16: "h",
    ValueType.UINT32: "I",
    ValueType.INT32: "i",
    ValueType.FLOAT32: "f",
    ValueType.BOOL: "?",
    ValueType.UINT64: "Q",
    ValueType.INT64: "q",
    ValueType.FLOAT64: "d",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataValue:
    """One metadata value: its type and its bytes exactly as they stand in the file."""

    type: ValueType
    raw: bytes

    def decode(self) -> Any:
        """The value as int, float, bool, str or list of these; text that is no UTF-8 survives."""
        return _decode(self.type, self.raw, 0)[0]


def scalar(kind: ValueType, value: float | bool) -> MetadataValue:
    """A number or a boolean as a metadata value."""
    return MetadataValue(type=kind, raw=struct.pack(f"<{SCALAR_FORMATS[kind]}", value))


def text(value: str) -> MetadataValue:
    """A text as a metadata value."""
    return MetadataValue(type=ValueType.STRING, raw=encode_text(value))


def array(item: ValueType, values: Sequence[Any]) -> MetadataValue:
    """An array of texts or numbers as a metadata value."""
    head = struct.pack("<IQ", item, len(values))
    if item is ValueType.STRING:
        body = b"".join(encode_text(value) for value in values)
    else:
        body = struct.pack(f"<{len(values)}{SCALAR_FORMATS[item]}", *values)
    return MetadataValue(type=ValueType.ARRAY, raw=head + body)


def encode_text(value: str) -> bytes:
    """A text as it stands in the file: its length and its bytes."""
    data = value.encode(errors="surrogateescape")
    return struct.pack("<Q", len(data)) + data


def _decode(kind: ValueType, raw: bytes, at: int) -> tuple[Any, int]:
    if kind is ValueType.STRING:
        end = at + 8 + int.from_bytes(raw[at : at + 8], "little")
        return raw[at + 8 : end].decode(errors="surrogateescape"), end
    if kind is not ValueType.ARRAY:
        code = f"<{SCALAR_FORMATS[kind]}"
        return struct.unpack_from(code, raw, at)[0], at + struct.calcsize(code)
    item = ValueType(int.from_bytes(raw[at : at + 4], "little"))
    count = int.from_bytes(raw[at + 4 : at + 12], "little")
    at += 12
    if item in SCALAR_FORMATS:
        code = f"<{count}{SCALAR_FORMATS[item]}"
        return list(struct.unpack_from(code, raw, at)), at + struct.calcsize(code)
    items = []
    for _ in range(count):
        value, at = _decode(item, raw, at)
        items.append(value)
    return items, at
