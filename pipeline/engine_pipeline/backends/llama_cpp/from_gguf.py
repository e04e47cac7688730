"""A GGUF file of any ggml type as an F16 GGUF file with the same metadata.

A matrix that the source quantised becomes F16. What the source keeps as F32 or F16 stays as it is:
its maker knew which tensors of that architecture must not be narrowed. Only in a file whose
matrices are all F32 does the rule of `recipes` decide, for the architectures it is known to hold.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from engine_pipeline.backends.llama_cpp.gguf_values import ValueType, scalar
from engine_pipeline.backends.llama_cpp.gguf_writer import TensorPlan, write_gguf
from engine_pipeline.backends.llama_cpp.half import row_pieces, to_half
from engine_pipeline.backends.llama_cpp.recipes import RECIPES, is_quantised
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine_pipeline.backends.llama_cpp.gguf_header import GgufHeader, TensorInfo
    from engine_pipeline.progress import Progress

_COPIED = frozenset({"F16", "F32", "F64", "I8", "I16", "I32", "I64"})
_ALL_F32_ARCHITECTURES = ("llama",)


def convert_gguf(source: Path, header: GgufHeader, output: Path, progress: Progress) -> None:
    """Write `output` as F16 from the GGUF file `source`.

    Raises:
        InvalidInput: one part of several, a type that cannot be read back, or values beyond F16.
    """
    if (header.integer("split.count") or 1) > 1:
        raise InvalidInput(
            f"{source.name}: one part of {header.integer('split.count')}, want a single file",
            hint="merge the parts with llama.cpp's `llama-gguf-split --merge` and lock that file",
            reference="gguf-split",
        )
    narrow = _narrows_f32(source, header)
    plans = []
    for tensor in header.tensors:
        matrix = is_quantised(tensor.name, tensor.shape)
        if tensor.type_name == "F32" and matrix and narrow:
            kind = "F16"
        elif tensor.type_name in _COPIED:
            kind = tensor.type_name
        else:
            kind = "F16" if matrix else "F32"
        plans.append(
            TensorPlan(
                name=tensor.name,
                shape=tensor.shape,
                type_name=kind,
                chunks=partial(_chunks, source, tensor, kind),
            )
        )
    if changed := sorted({t.type_name for t in header.tensors} - _COPIED):
        progress.note(f"source weights are {', '.join(changed)}: F16 keeps their rounding")
    metadata = header.metadata | {
        "general.file_type": scalar(ValueType.UINT32, RECIPES["f16"].file_type)
    }
    write_gguf(output, metadata, plans, progress)


def _narrows_f32(source: Path, header: GgufHeader) -> bool:
    matrices = [t for t in header.tensors if is_quantised(t.name, t.shape)]
    if not matrices or any(tensor.type_name != "F32" for tensor in matrices):
        return False
    if header.architecture not in _ALL_F32_ARCHITECTURES:
        known = ", ".join(_ALL_F32_ARCHITECTURES)
        raise InvalidInput(
            f"{source.name}: all weights are F32 and the architecture is {header.architecture!r}; "
            f"which of them may become F16 is known for: {known}",
            hint="lock an F16, BF16 or quantised GGUF of this model instead",
            reference="architecture-unsupported",
        )
    return True


def _chunks(source: Path, tensor: TensorInfo, kind: str) -> Iterator[memoryview]:
    import numpy as np
    from gguf import GGMLQuantizationType
    from gguf.quants import dequantize

    row = tensor.shape[-1]
    rows = tensor.elements // row if row else 0
    row_bytes = tensor.size_bytes // rows if rows else 0
    with source.open("rb") as stream:
        stream.seek(tensor.offset)
        for start, end in row_pieces(rows, row):
            data = stream.read((end - start) * row_bytes)
            if kind == tensor.type_name:
                yield memoryview(data)
                continue
            packed = np.frombuffer(data, dtype=np.uint8).reshape(end - start, row_bytes)
            try:
                values = dequantize(packed, GGMLQuantizationType(tensor.type_id))
            except NotImplementedError as error:
                raise InvalidInput(
                    f"{source.name}: tensor {tensor.name} is {tensor.type_name}, "
                    "which gguf cannot read back",
                    hint="lock an F16, BF16 or otherwise quantised GGUF of this model instead",
                    reference="gguf-type-unreadable",
                ) from error
            yield (to_half(values, tensor.name) if kind == "F16" else values).data.cast("B")
