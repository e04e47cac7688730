"""A Hugging Face checkpoint of the llama family as an F16 GGUF file.

Every tensor must be known by name and have the shape that `config.json` implies, and none may be
missing: a checkpoint that is half understood is refused.
"""

from __future__ import annotations

import json
import re
from functools import partial
from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.llama_cpp.checkpoint_config import (
    LlamaShape,
    model_metadata,
    read_shape,
    rope_factors,
)
from engine_pipeline.backends.llama_cpp.checkpoint_tokenizer import tokenizer_metadata
from engine_pipeline.backends.llama_cpp.gguf_values import ValueType, scalar
from engine_pipeline.backends.llama_cpp.gguf_writer import TensorPlan, write_gguf
from engine_pipeline.backends.llama_cpp.half import row_pieces, to_half
from engine_pipeline.backends.llama_cpp.recipes import EMBEDDING, OUTPUT, RECIPES, is_quantised
from engine_pipeline.backends.llama_cpp.safetensors_file import StoredTensor, read_tensors
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine_pipeline.progress import Progress

_TOP = {
    "model.embed_tokens.weight": EMBEDDING,
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": OUTPUT,
}
_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_LAYER_NAME = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
# Old checkpoints store what the base frequency implies.
_DERIVED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


def convert_checkpoint(source: Path, output: Path, progress: Progress) -> None:
    """Write the checkpoint in `source` to `output`.

    Raises:
        InvalidInput: anything about the checkpoint that this converter does not know, by name.
    """
    config = _json(source, "config.json")
    shape = read_shape(config)
    settings = _json(source, "tokenizer_config.json", required=False)
    metadata = model_metadata(shape, RECIPES["f16"].file_type) | tokenizer_metadata(
        _json(source, "tokenizer.json"), settings, config, _chat_template(source, settings)
    )
    metadata["general.quantization_version"] = scalar(ValueType.UINT32, 2)
    write_gguf(output, metadata, _plans(shape, read_tensors(source)), progress)


def gguf_name(name: str) -> str | None:
    """The GGUF name of a llama checkpoint's tensor; None for one the model does not have."""
    if name in _TOP:
        return _TOP[name]
    match = _LAYER_NAME.fullmatch(name)
    if match is None or match.group(2) not in _LAYER:
        return None
    return f"blk.{match.group(1)}.{_LAYER[match.group(2)]}.{match.group(3)}"


def expected_shapes(shape: LlamaShape) -> dict[str, tuple[int, ...]]:
    """GGUF name → shape of every tensor the model must have, in the order they are written."""
    queries, keys = shape.heads * shape.head, shape.kv_heads * shape.head
    expected: dict[str, tuple[int, ...]] = {EMBEDDING: (shape.vocabulary, shape.hidden)}
    for layer in range(shape.layers):
        block = {
            "attn_norm": (shape.hidden,),
            "attn_q": (queries, shape.hidden),
            "attn_k": (keys, shape.hidden),
            "attn_v": (keys, shape.hidden),
            "attn_output": (shape.hidden, queries),
            "ffn_norm": (shape.hidden,),
            "ffn_gate": (shape.feed_forward, shape.hidden),
            "ffn_up": (shape.feed_forward, shape.hidden),
            "ffn_down": (shape.hidden, shape.feed_forward),
        }
        expected |= {f"blk.{layer}.{name}.weight": size for name, size in block.items()}
    expected["output_norm.weight"] = (shape.hidden,)
    if not shape.tied:
        expected[OUTPUT] = (shape.vocabulary, shape.hidden)
    return expected


def _plans(shape: LlamaShape, stored: dict[str, StoredTensor]) -> list[TensorPlan]:
    found: dict[str, StoredTensor] = {}
    for name, tensor in stored.items():
        if _DERIVED.fullmatch(name) or (shape.tied and name == "lm_head.weight"):
            continue
        mapped = gguf_name(name)
        if mapped is None:
            raise _differs(f"tensor {name} has no place in a llama model")
        found[mapped] = tensor
    plans = []
    for name, size in expected_shapes(shape).items():
        if name not in found:
            raise _differs(f"tensor {name} is missing")
        tensor = found.pop(name)
        if tensor.shape != size:
            raise _differs(
                f"tensor {tensor.name} is {list(tensor.shape)}, config.json implies {list(size)}"
            )
        plans.append(_plan(shape, name, tensor))
        bias_name = name.removesuffix("weight") + "bias"
        if bias_name in found:
            bias = found.pop(bias_name)
            if bias.shape != size[:1]:
                raise _differs(f"tensor {bias.name} is {list(bias.shape)}, want {list(size[:1])}")
            plans.append(_plan(shape, bias_name, bias))
    if found:
        raise _differs(f"tensor {next(iter(found.values())).name} is one more than config.json has")
    if (factors := rope_factors(shape)) is not None:
        plans.append(
            TensorPlan(
                name="rope_freqs.weight",
                shape=(len(factors),),
                type_name="F32",
                chunks=partial(_numbers, factors),
            )
        )
    return plans


def _plan(shape: LlamaShape, name: str, tensor: StoredTensor) -> TensorPlan:
    kind = "F16" if is_quantised(name, tensor.shape) else "F32"
    # llama.cpp rotates neighbouring pairs, transformers the two halves of a head.
    head = shape.head if ".attn_q." in name or ".attn_k." in name else None
    return TensorPlan(
        name=name, shape=tensor.shape, type_name=kind, chunks=partial(_chunks, tensor, kind, head)
    )


def _chunks(tensor: StoredTensor, kind: str, head: int | None) -> Iterator[memoryview]:
    import numpy as np

    if len(tensor.shape) == 1:
        values = tensor.rows(0, 1)
        if head:
            values = values.reshape(-1, 2, head // 2).swapaxes(1, 2).reshape(1, -1)
        yield np.ascontiguousarray(values).data.cast("B")
        return
    rows, row = tensor.shape
    group = head or 1
    for start, end in row_pieces(rows // group, row * group):
        values = tensor.rows(start * group, end * group)
        if head:
            values = values.reshape(end - start, 2, head // 2, row).swapaxes(1, 2)
        values = np.ascontiguousarray(values.reshape(-1, row))
        yield (to_half(values, tensor.name) if kind == "F16" else values).data.cast("B")


def _numbers(values: list[float]) -> Iterator[memoryview]:
    import numpy as np

    yield np.array(values, dtype="<f4").data.cast("B")


def _chat_template(source: Path, settings: dict[str, Any]) -> str | None:
    path = source / "chat_template.jinja"
    template = path.read_text() if path.is_file() else settings.get("chat_template")
    if template is None:
        template = _json(source, "chat_template.json", required=False).get("chat_template")
    if template is not None and not isinstance(template, str):
        raise InvalidInput(
            f"tokenizer_config.json has {len(template)} chat templates, a llama-cpp engine has one",
            hint="keep the one to serve with, in a copy of the checkpoint (`file://`)",
            reference="chat-template-ambiguous",
        )
    return template


def _json(source: Path, name: str, *, required: bool = True) -> dict[str, Any]:
    path = source / name
    if not path.is_file() and not required:
        return {}
    try:
        value = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise _differs(f"{name} is missing") from error
    except ValueError as error:
        raise _differs(f"{name} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise _differs(f"{name} is not an object")
    return value


def _differs(what: str) -> InvalidInput:
    return InvalidInput(
        f"checkpoint: {what}",
        hint="take another revision of the model, or lock a GGUF file of it",
        reference="checkpoint-unreadable",
    )
