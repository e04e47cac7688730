"""A Hugging Face `config.json` of the llama family as GGUF metadata. Pure.

Whatever would make the converted model compute something else is refused by name, not ignored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.llama_cpp.gguf_values import ValueType, scalar, text
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_pipeline.backends.llama_cpp.gguf_values import MetadataValue

ARCHITECTURES = ("LlamaForCausalLM",)
# transformers' defaults for absent fields (LlamaConfig).
_ROPE_BASE = 10000.0
_NORM_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaShape:
    """The sizes of a llama-family model and how it turns positions into angles."""

    layers: int
    hidden: int
    feed_forward: int
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    context: int
    norm_epsilon: float
    rope_base: float
    rope_scaling: Mapping[str, Any]
    tied: bool


def read_shape(config: Mapping[str, Any]) -> LlamaShape:
    """The model's sizes.

    Raises:
        InvalidInput: `architecture-unsupported` for another architecture, activation, position
            scheme or a quantised checkpoint; `checkpoint-unreadable` for a missing size.
    """
    architectures = config.get("architectures") or ["unnamed"]
    if architectures[0] not in ARCHITECTURES:
        raise _unsupported(f"architecture {architectures[0]}", ", ".join(ARCHITECTURES))
    if config.get("quantization_config"):
        method = config["quantization_config"].get("quant_method", "unnamed")
        raise _unsupported(f"checkpoint quantised by {method}", "unquantised checkpoints")
    if (activation := config.get("hidden_act", "silu")) != "silu":
        raise _unsupported(f"activation {activation}", "silu")
    # transformers 5 writes `rope_parameters`, before that it was two fields.
    rope = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind not in {"default", "linear", "llama3"}:
        raise _unsupported(f"position scaling {kind}", "default, linear, llama3")
    heads = _size(config, "num_attention_heads")
    hidden = _size(config, "hidden_size")
    return LlamaShape(
        layers=_size(config, "num_hidden_layers"),
        hidden=hidden,
        feed_forward=_size(config, "intermediate_size"),
        heads=heads,
        kv_heads=_size(config, "num_key_value_heads", heads),
        head=_size(config, "head_dim", hidden // heads),
        vocabulary=_size(config, "vocab_size"),
        context=_size(config, "max_position_embeddings"),
        norm_epsilon=float(config.get("rms_norm_eps", _NORM_EPSILON)),
        rope_base=float(rope.get("rope_theta") or config.get("rope_theta") or _ROPE_BASE),
        rope_scaling=rope | {"kind": kind},
        tied=bool(config.get("tie_word_embeddings", False)),
    )


def model_metadata(shape: LlamaShape, file_type: int) -> dict[str, MetadataValue]:
    """Metadata of the model without its tokenizer, in the order llama.cpp's own converter has."""

    def size(value: int) -> MetadataValue:
        return scalar(ValueType.UINT32, value)

    def real(value: float) -> MetadataValue:
        return scalar(ValueType.FLOAT32, value)

    metadata = {
        "general.architecture": text("llama"),
        "general.type": text("model"),
        "llama.block_count": size(shape.layers),
        "llama.context_length": size(shape.context),
        "llama.embedding_length": size(shape.hidden),
        "llama.feed_forward_length": size(shape.feed_forward),
        "llama.attention.head_count": size(shape.heads),
        "llama.attention.head_count_kv": size(shape.kv_heads),
        "llama.rope.freq_base": real(shape.rope_base),
        "llama.attention.layer_norm_rms_epsilon": real(shape.norm_epsilon),
        "general.file_type": size(file_type),
        "llama.vocab_size": size(shape.vocabulary),
        "llama.rope.dimension_count": size(shape.head),
    }
    if shape.head * shape.heads != shape.hidden:
        metadata["llama.attention.key_length"] = size(shape.head)
        metadata["llama.attention.value_length"] = size(shape.head)
    if shape.rope_scaling["kind"] == "linear":
        metadata["llama.rope.scaling.type"] = text("linear")
        metadata["llama.rope.scaling.factor"] = real(_number(shape.rope_scaling, "factor"))
    return metadata


def rope_factors(shape: LlamaShape) -> list[float] | None:
    """Divisors of the rotation frequencies, one a pair; None where there is nothing to divide.

    The Llama 3.1 rule: frequencies with a wave shorter than the old context over `high_freq_factor`
    stay, those longer than it over `low_freq_factor` are slowed by `factor`, those between move
    smoothly (transformers, modeling_rope_utils).
    """
    if shape.rope_scaling["kind"] != "llama3":
        return None
    factor = _number(shape.rope_scaling, "factor")
    low = _number(shape.rope_scaling, "low_freq_factor")
    high = _number(shape.rope_scaling, "high_freq_factor")
    context = _number(shape.rope_scaling, "original_max_position_embeddings")
    factors = []
    for index in range(0, shape.head, 2):
        wave = 2 * math.pi * shape.rope_base ** (index / shape.head)
        if wave < context / high:
            factors.append(1.0)
        elif wave > context / low:
            factors.append(factor)
        else:
            smooth = (context / wave - low) / (high - low)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    return factors


def _size(config: Mapping[str, Any], key: str, default: int | None = None) -> int:
    value = config.get(key)
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(
            f"config.json: {key} is {value!r}, want a positive integer",
            hint="the checkpoint is incomplete: take another revision of the model",
            reference="checkpoint-unreadable",
        )
    return value


def _number(values: Mapping[str, Any], key: str) -> float:
    value = values.get(key)
    if not isinstance(value, (int, float)) or isinstance(value, bool) or value <= 0:
        raise InvalidInput(
            f"config.json: position scaling has {key} {value!r}, want a positive number",
            hint="the checkpoint is incomplete: take another revision of the model",
            reference="checkpoint-unreadable",
        )
    return float(value)


def _unsupported(found: str, known: str) -> InvalidInput:
    return InvalidInput(
        f"config.json: {found} is not convertible; known: {known}",
        hint="lock a GGUF file of this model instead, made by llama.cpp's own converter",
        reference="architecture-unsupported",
    )
