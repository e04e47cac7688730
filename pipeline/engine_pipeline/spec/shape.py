"""The shape of a model: what its `config.json` says of layers, heads and experts. Pure.

Taken into the lock, so that a plan can choose the family's scripts and say whether the engine fits
the board before a byte of the weights is downloaded. Field names are those of transformers'
configuration classes; `shape_of_config` gives None for what is no decoder it can read.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from engine_registry.digest import Digest
from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

Count = Annotated[int, Field(ge=1)]

# Two matrices per MLP, `up` and `down`; all others have a gate as well.
_UNGATED = frozenset(
    {
        "BloomForCausalLM",
        "FalconForCausalLM",
        "GPT2LMHeadModel",
        "GPTBigCodeForCausalLM",
        "GPTForCausalLM",
        "GPTNeoXForCausalLM",
        "NemotronForCausalLM",
        "OPTForCausalLM",
        "PhiForCausalLM",
        "Starcoder2ForCausalLM",
    }
)
# transformers ties input and output embeddings of these unless config.json says otherwise.
_TIED = frozenset({"GemmaForCausalLM", "Gemma2ForCausalLM", "Gemma3ForCausalLM", "GPT2LMHeadModel"})
# Every second layer of Gemma 2 is local, five of six of Gemma 3 (their model cards).
_LOCAL_LAYERS = {"Gemma2ForCausalLM": (1, 2), "Gemma3ForCausalLM": (5, 6)}
# Their factor does not lengthen what `max_position_embeddings` says (TensorRT-LLM builder.py).
_FACTOR_INCLUDED = frozenset({"su", "longrope", "llama3"})
# Differ between copies of one model that have the same layers.
_NOISE = frozenset({"_name_or_path", "transformers_version", "torch_dtype", "dtype", "use_cache"})


class Experts(Value):
    """A mixture of experts.

    Attributes:
        count: experts of one layer; `active` of them work on a token.
        intermediate: width of one expert; `shared_intermediate` that of the shared one, 0 if none.
        dense_layers: layers at the bottom that have a plain MLP.
    """

    count: Count
    active: Count
    intermediate: Count
    shared_intermediate: Annotated[int, Field(ge=0)] = 0
    dense_layers: Annotated[int, Field(ge=0)] = 0


class LatentAttention(Value):
    """Multi-head latent attention, as in DeepSeek-V2 (arXiv:2405.04434, section 2.1).

    Attributes:
        kv_rank: width of the compressed key and value that the cache holds.
        query_rank: width of the compressed query; None if queries are not compressed.
        rope_dim: width of the decoupled rotary key, shared by all heads and held in the cache.
        nope_dim, value_dim: width per head of the rest of the key, and of the value.
    """

    kv_rank: Count
    query_rank: Count | None = None
    rope_dim: Count
    nope_dim: Count
    value_dim: Count


class ModelShape(Value):
    """What decides how large a decoder is.

    Attributes:
        architecture: the first of `architectures`.
        max_positions: longest sequence the model was made for; None if it does not say.
        window: tokens that windowed layers look back; `windowed_layers` of the layers do so.
        dtype: of the weights, as the config names it.
        quantisation: `quant_method` if the weights are quantised already.
        structure: digest of the whole config but for names and versions: equal structures differ in
            the values of weights only.
    """

    architecture: str
    layers: Count
    hidden: Count
    heads: Count
    kv_heads: Count
    head_dim: Count
    intermediate: Count
    vocabulary: Count
    max_positions: Count | None = None
    tied_embeddings: bool = False
    gated: bool = True
    window: Count | None = None
    windowed_layers: Annotated[int, Field(ge=0)] = 0
    experts: Experts | None = None
    latent: LatentAttention | None = None
    dtype: str | None = None
    quantisation: str | None = None
    structure: Digest


def shape_of_config(config: Mapping[str, Any]) -> ModelShape | None:
    """The shape of a checkpoint, from its `config.json` as a plain value; None if it has none.

    Also reads the `pretrained_config` of a TensorRT-LLM checkpoint or engine, which names most
    fields alike (docs/source/architecture/checkpoint.md of TensorRT-LLM).
    """
    text = config.get("text_config")
    inner = text if isinstance(text, dict) and "num_hidden_layers" in text else config
    architecture = _architecture(config)
    layers = _first(inner, "num_hidden_layers", "n_layer", "num_layers")
    hidden = _first(inner, "hidden_size", "n_embd", "d_model")
    heads = _first(inner, "num_attention_heads", "n_head")
    vocabulary = _first(inner, "vocab_size")
    if not (architecture and layers and hidden and heads and vocabulary):
        return None
    experts = _experts(inner)
    window, windowed = _window(inner, architecture, layers)
    return ModelShape(
        architecture=architecture,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_first(inner, "num_key_value_heads", "num_kv_heads")
        or (1 if inner.get("multi_query") is True else heads),
        head_dim=_first(inner, "head_dim", "head_size") or max(1, hidden // heads),
        intermediate=_first(inner, "intermediate_size", "n_inner", "ffn_hidden_size") or 4 * hidden,
        vocabulary=vocabulary,
        max_positions=_positions(inner),
        tied_embeddings=_tied(inner, architecture),
        gated=architecture not in _UNGATED,
        window=window,
        windowed_layers=windowed,
        experts=experts,
        latent=_latent(inner),
        dtype=_text(inner, "torch_dtype", "dtype"),
        quantisation=_quantisation(config),
        structure=_structure(config),
    )


def _architecture(config: Mapping[str, Any]) -> str | None:
    names = config.get("architectures")
    if isinstance(names, list) and names and isinstance(names[0], str):
        return names[0]
    return _text(config, "architecture")


def _experts(config: Mapping[str, Any]) -> Experts | None:
    nested = config.get("moe")
    if isinstance(nested, dict):
        count, active = _first(nested, "num_experts"), _first(nested, "top_k")
        width = _first(config, "moe_intermediate_size", "intermediate_size")
        shared = _first(nested, "shared_expert_intermediate_size") or 0
    else:
        count = _first(config, "num_local_experts", "n_routed_experts", "num_experts")
        active = _first(config, "num_experts_per_tok")
        width = _first(config, "moe_intermediate_size", "intermediate_size")
        shared = _first(config, "shared_expert_intermediate_size") or (
            (_first(config, "n_shared_experts") or 0) * (width or 0)
        )
    if not (count and active and width):
        return None
    return Experts(
        count=count,
        active=active,
        intermediate=width,
        shared_intermediate=shared,
        dense_layers=_first(config, "first_k_dense_replace") or 0,
    )


def _latent(config: Mapping[str, Any]) -> LatentAttention | None:
    kv_rank, rope = _first(config, "kv_lora_rank"), _first(config, "qk_rope_head_dim")
    nope, value = _first(config, "qk_nope_head_dim"), _first(config, "v_head_dim")
    if not (kv_rank and rope and nope and value):
        return None
    return LatentAttention(
        kv_rank=kv_rank,
        query_rank=_first(config, "q_lora_rank"),
        rope_dim=rope,
        nope_dim=nope,
        value_dim=value,
    )


def _window(config: Mapping[str, Any], architecture: str, layers: int) -> tuple[int | None, int]:
    window = _first(config, "sliding_window")
    if window is None or config.get("use_sliding_window") is False:
        return None, 0
    kinds = config.get("layer_types")
    if isinstance(kinds, list):
        return window, sum(kind == "sliding_attention" for kind in kinds)
    local, of = _LOCAL_LAYERS.get(architecture, (1, 1))
    return window, layers * local // of


def _positions(config: Mapping[str, Any]) -> int | None:
    positions = _first(config, "max_position_embeddings", "n_positions", "seq_length")
    scaling = config.get("rope_scaling") or config.get("rotary_scaling")
    if positions is None or not isinstance(scaling, dict):
        return positions
    kind, factor = scaling.get("rope_type") or scaling.get("type"), scaling.get("factor")
    if kind in _FACTOR_INCLUDED or not isinstance(factor, int | float) or factor < 1:
        return positions
    return int(positions * factor)


def _tied(config: Mapping[str, Any], architecture: str) -> bool:
    stated = config.get("tie_word_embeddings", config.get("share_embedding_table"))
    return stated if isinstance(stated, bool) else architecture in _TIED


def _quantisation(config: Mapping[str, Any]) -> str | None:
    stated = config.get("quantization_config")
    method = stated.get("quant_method") if isinstance(stated, dict) else None
    return method if isinstance(method, str) else None


def _structure(config: Mapping[str, Any]) -> Digest:
    plain = {key: value for key, value in config.items() if key not in _NOISE}
    # Not canonical JSON: some configs hold infinities, which it refuses.
    return Digest.of(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode("ascii"))


def _first(config: Mapping[str, Any], *names: str) -> int | None:
    """The first of these fields that is a positive whole number."""
    for name in names:
        value = config.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _text(config: Mapping[str, Any], *names: str) -> str | None:
    for name in names:
        value = config.get(name)
        if isinstance(value, str) and value:
            return value
    return None
