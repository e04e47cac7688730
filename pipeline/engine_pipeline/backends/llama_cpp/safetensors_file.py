"""Reads a checkpoint's safetensors files row by row, BF16 included.

The `safetensors` library gives numpy no BF16 and no row ranges of it, and BF16 is what most
checkpoints are stored in; the format itself is a length, a JSON table and bytes. The tests hold
this module to files the library wrote.

Source: huggingface/safetensors README, "Format".
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.backends.llama_cpp.half import Floats

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
# The library's own limit for the table.
_MAX_TABLE_BYTES = 100_000_000
_WIDTHS = {"F32": 4, "F16": 2, "BF16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """A tensor in a safetensors file; `offset` is from the start of the file."""

    name: str
    path: Path
    dtype: str
    shape: tuple[int, ...]
    offset: int

    def rows(self, start: int, end: int) -> Floats:
        """Rows `start` to `end` as F32; a vector counts as one row."""
        import numpy as np

        width = _WIDTHS[self.dtype]
        row = self.shape[-1]
        with self.path.open("rb") as stream:
            stream.seek(self.offset + start * row * width)
            data = stream.read((end - start) * row * width)
        if self.dtype == "BF16":
            # BF16 is the upper half of an F32.
            high = np.frombuffer(data, dtype="<u2").astype(np.uint32)
            return (high << 16).view(np.float32).reshape(end - start, row)
        kind = "<f4" if self.dtype == "F32" else "<f2"
        return np.frombuffer(data, dtype=kind).astype(np.float32).reshape(end - start, row)


def read_tensors(source: Path) -> dict[str, StoredTensor]:
    """Every tensor of the checkpoint in `source`, by name.

    Raises:
        InvalidInput: no safetensors, a shard is missing or damaged, or a type that is not a float.
    """
    tensors: dict[str, StoredTensor] = {}
    for name in _files(source):
        path = source / name
        if not path.is_file():
            raise _unreadable(name, f"{INDEX} names it, and it is not there")
        for tensor in _table(path):
            if tensor.name in tensors:
                raise _unreadable(name, f"{tensor.name} is in another file too")
            tensors[tensor.name] = tensor
    return tensors


def _files(source: Path) -> list[str]:
    if (source / INDEX).is_file():
        try:
            shards = json.loads((source / INDEX).read_bytes())["weight_map"]
            names = sorted({str(name) for name in shards.values()})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(INDEX, f"no weight_map: {error}") from error
        for name in names:
            if "/" in name or "\\" in name or name.startswith("."):
                raise _unreadable(INDEX, f"names {name!r}, which is no file beside it")
        return names
    if (source / SINGLE).is_file():
        return [SINGLE]
    raise InvalidInput(
        f"source has neither {SINGLE} nor {INDEX}",
        hint="check `model.files` of the spec; pickle weights are not taken",
        reference="source-without-model",
    )


def _table(path: Path) -> list[StoredTensor]:
    size = path.stat().st_size
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        if size < 8 or length > min(_MAX_TABLE_BYTES, size - 8):
            raise _unreadable(path.name, f"table of {length} bytes in a file of {size}")
        try:
            table: dict[str, Any] = json.loads(stream.read(length))
            table.pop("__metadata__", None)
            return [_tensor(path, name, entry, 8 + length, size) for name, entry in table.items()]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _unreadable(path.name, f"table is malformed: {error}") from error


def _tensor(path: Path, name: str, entry: dict[str, Any], start: int, size: int) -> StoredTensor:
    dtype, shape = entry["dtype"], tuple(int(item) for item in entry["shape"])
    begin, end = entry["data_offsets"]
    if dtype not in _WIDTHS:
        raise InvalidInput(
            f"{path.name}: tensor {name} is {dtype}; known are {', '.join(_WIDTHS)}",
            hint="lock the unquantised checkpoint of this model",
            reference="checkpoint-type-unsupported",
        )
    if not shape or min(shape) < 1 or end - begin != prod(shape) * _WIDTHS[dtype] or begin < 0:
        raise _unreadable(path.name, f"{name}: shape {list(shape)} does not fit its bytes")
    if start + end > size:
        raise _unreadable(path.name, f"{name} ends at byte {start + end}, file has {size}")
    return StoredTensor(name=name, path=path, dtype=dtype, shape=shape, offset=start + begin)


def _unreadable(name: str, why: str) -> InvalidInput:
    return InvalidInput(
        f"{name}: {why}",
        hint="the checkpoint is damaged or incomplete: run `enginectl lock` and build again",
        reference="checkpoint-unreadable",
    )
