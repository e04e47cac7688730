"""The quantise step: an F16 GGUF file under a recipe.

    python -m engine_pipeline.backends.llama_cpp.quantise --recipe q8_0 --source FILE --output FILE

Rows are quantised by libgguf, whose bytes equal those of ggml's own routines; equal input gives
equal output. Tensors of other types than F16 are copied: `convert` has kept them for a reason.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.backends.llama_cpp.gguf_header import read_header
from engine_pipeline.backends.llama_cpp.gguf_values import ValueType, scalar
from engine_pipeline.backends.llama_cpp.gguf_writer import TensorPlan, type_of, write_gguf
from engine_pipeline.backends.llama_cpp.half import row_pieces
from engine_pipeline.backends.llama_cpp.recipes import (
    PLAIN,
    RECIPES,
    Recipe,
    fallback_hint,
    fallbacks,
    types_for,
)
from engine_pipeline.runners.protocol import run_child
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from engine_pipeline.backends.llama_cpp.gguf_header import TensorInfo
    from engine_pipeline.progress import Progress

# Part of the step's key: raise it with every change that can alter the bytes written.
REVISION = 1
# GGML_QNT_VERSION of ggml.h: how quantised blocks are laid out.
_QUANTISATION_VERSION = 2


def quantise(
    recipe: Recipe, allowed: Sequence[str], source: Path, output: Path, progress: Progress
) -> None:
    """Write `source` under `recipe` to `output`.

    Args:
        recipe: the scheme.
        allowed: ggml types, in lower case, that matrices may fall back to.
        source: an F16 GGUF file, as `convert` leaves it.
        output: where to write.
        progress: told how far it is.

    Raises:
        InvalidInput: a matrix would fall back to a type that is not allowed; nothing is written.
    """
    header = read_header(source)
    choices = types_for(recipe, header)
    for found in fallbacks(choices.values()):
        if found.given.lower() not in allowed:
            raise InvalidInput(
                f"recipe {recipe.name} does not fit this model: {found}",
                hint=fallback_hint(recipe, found.given),
                reference="quantisation-fell-back",
            )
        progress.note(f"fell back, as the spec allows: {found}")
    plans = [
        TensorPlan(
            name=tensor.name,
            shape=tensor.shape,
            type_name=kind,
            chunks=partial(_chunks, source, tensor, kind),
        )
        for tensor in header.tensors
        for kind in [choices[tensor.name].given if tensor.name in choices else tensor.type_name]
    ]
    metadata = header.metadata | {
        "general.file_type": scalar(ValueType.UINT32, recipe.file_type),
        "general.quantization_version": scalar(ValueType.UINT32, _QUANTISATION_VERSION),
    }
    write_gguf(output, metadata, plans, progress)
    kinds = Counter(plan.type_name for plan in plans)
    progress.note("tensors: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))


def _chunks(source: Path, tensor: TensorInfo, kind: str) -> Iterator[memoryview]:
    import libgguf
    import numpy as np

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
            values = np.frombuffer(data, dtype=np.float16).reshape(end - start, row)
            packed = libgguf.quantize_rows(values.astype(np.float32), type_of(kind)[0])
            yield packed.data.cast("B")


def main(argv: list[str] | None = None) -> int:
    """Run the step; the exit status."""
    parser = argparse.ArgumentParser(prog="quantise")
    names = [name for name, recipe in RECIPES.items() if recipe.weights != PLAIN]
    parser.add_argument("--recipe", choices=names, required=True)
    parser.add_argument("--allow-fallback", default="")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args(argv)
    allowed = [kind for kind in arguments.allow_fallback.split(",") if kind]
    recipe = RECIPES[arguments.recipe]
    return run_child(partial(quantise, recipe, allowed, arguments.source, arguments.output))


if __name__ == "__main__":
    sys.exit(main())
