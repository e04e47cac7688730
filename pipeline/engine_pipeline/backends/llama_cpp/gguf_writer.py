"""Writes GGUF files tensor by tensor, byte-reproducibly, and whole or not at all.

Metadata is taken as raw values, so that what was read from another file goes out exactly as it came
in. The layout is that of `gguf.GGUFWriter`, which the tests hold this module to.

Source: ggml docs/gguf.md, version 3, little-endian.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from engine_pipeline.backends.llama_cpp.gguf_header import (
    DEFAULT_ALIGNMENT,
    MAGIC,
    block_sizes,
)
from engine_pipeline.backends.llama_cpp.gguf_values import encode_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from engine_pipeline.backends.llama_cpp.gguf_values import MetadataValue
    from engine_pipeline.progress import Progress

    Chunks = Callable[[], Iterator[memoryview]]

_VERSION = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorPlan:
    """A tensor to write.

    Attributes:
        shape: rows first.
        type_name: as ggml names it.
        chunks: called once, when the tensor's turn comes; its bytes in pieces.
    """

    name: str
    shape: tuple[int, ...]
    type_name: str
    chunks: Chunks

    @property
    def size_bytes(self) -> int:
        """Bytes this tensor takes in the file, without padding."""
        _, (_, block, block_bytes) = type_of(self.type_name)
        elements = 1
        for dimension in self.shape:
            elements *= dimension
        return elements // block * block_bytes


def type_of(name: str) -> tuple[int, tuple[str, int, int]]:
    """The type id and the entry of `block_sizes` for a ggml type name."""
    return next(item for item in block_sizes().items() if item[1][0] == name)


def write_gguf(
    path: Path,
    metadata: Mapping[str, MetadataValue],
    tensors: Sequence[TensorPlan],
    progress: Progress,
) -> None:
    """Write `path` durably; a failure leaves it as it was, and nothing beside it.

    Metadata and tensors go out in the order given, so equal arguments give equal bytes.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as stream:
            _write(stream, metadata, tensors, progress)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def _write(
    stream: BinaryIO,
    metadata: Mapping[str, MetadataValue],
    tensors: Sequence[TensorPlan],
    progress: Progress,
) -> None:
    stated = metadata.get("general.alignment")
    alignment = int(stated.decode()) if stated else DEFAULT_ALIGNMENT
    head = bytearray(MAGIC)
    head += struct.pack("<IQQ", _VERSION, len(tensors), len(metadata))
    for key, value in metadata.items():
        head += encode_text(key) + struct.pack("<I", value.type) + value.raw
    offset = 0
    for tensor in tensors:
        type_id, _ = type_of(tensor.type_name)
        head += encode_text(tensor.name) + struct.pack("<I", len(tensor.shape))
        head += struct.pack(f"<{len(tensor.shape)}Q", *reversed(tensor.shape))
        head += struct.pack("<IQ", type_id, offset)
        offset += _padded(tensor.size_bytes, alignment)
    head += bytes(_padded(len(head), alignment) - len(head))
    stream.write(head)
    done = 0
    for tensor in tensors:
        written = 0
        for chunk in tensor.chunks():
            stream.write(chunk)
            written += chunk.nbytes
            progress.update(done + written, offset, "bytes")
        if written != tensor.size_bytes:
            msg = f"tensor {tensor.name}: {written} bytes came, its type needs {tensor.size_bytes}"
            raise ValueError(msg)
        stream.write(bytes(_padded(written, alignment) - written))
        done += _padded(written, alignment)
    progress.update(offset, offset, "bytes")


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment
