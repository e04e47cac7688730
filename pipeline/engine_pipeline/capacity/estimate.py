"""Does it load, and what fits: weights, activations, and the KV cache in what is left. Pure.

The frame is "Memory Usage of TensorRT-LLM" (nvidia.github.io/TensorRT-LLM/reference/memory.html):
weights, activation tensors, and a paged KV cache that takes a fraction of what is free after those.
Weights and KV cache are exact but for padding; activations and the reserve are allowances, and say
so below. An engine *loads* if one sequence of full length fits; limits that ask for more sequences
than fit are served by queueing, so they are reported and not refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from engine_pipeline.capacity.parameters import WEIGHT_BITS, parameters_of, rank_bytes
from engine_pipeline.spec.model import CachePrecision, LimitsSpec
from engine_pipeline.spec.shape import ModelShape
from engine_registry.documents import Value

if TYPE_CHECKING:
    from engine_pipeline.spec.model import BuildSpec

CACHE_BYTES = {
    CachePrecision.FP16: 2,
    CachePrecision.BF16: 2,
    CachePrecision.FP8: 1,
    CachePrecision.INT8: 1,
}
_ACTIVATION_BYTES = 2
_LOGIT_BYTES = 4
# TensorRT shares memory between tensors, and adds workspace for tactics and attention: half as
# much again as the widest set of live tensors. An allowance; the builder prints the true figure.
_WORKSPACE = 1.5
# CUDA context, cuBLAS handles and the runtime's own buffers; with several ranks NCCL's and the
# custom all-reduce's as well. An allowance: what `nvidia-smi` shows of idle serving processes.
_RESERVE_BYTES = 1 << 30
_RANKS_RESERVE_BYTES = 512 << 20
# `--kv_cache_free_gpu_memory_fraction` of trtllm-serve, its default in every release.
MEMORY_FRACTION = 0.9
_SERVING_KEY, _OPTION_KEY = "kv-cache-free-gpu-memory-fraction", "kv-cache-fraction"
_LONGEST = 1 << 24


class Sizing(Value):
    """Everything an estimate is made from, except the board.

    Attributes:
        weight_bits: of one weight inside the layers, with its share of scales.
        cache_bytes: of one element of the KV cache.
        tokens_per_block: the paged cache is handed out in blocks of so many tokens.
        memory_fraction: of the memory left after weights and activations, for the KV cache.
    """

    shape: ModelShape
    weight_bits: Annotated[float, Field(gt=0)]
    cache_bytes: Annotated[int, Field(ge=1)]
    tensor: Annotated[int, Field(ge=1)]
    pipeline: Annotated[int, Field(ge=1)]
    limits: LimitsSpec
    tokens_per_block: Annotated[int, Field(ge=1)] = 32
    memory_fraction: Annotated[float, Field(gt=0, le=1)] = MEMORY_FRACTION


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacity:
    """An estimate for the heaviest rank; bytes throughout.

    Attributes:
        parameters: weights of the whole model.
        memory_bytes: of one board.
        needed_bytes: the least memory it loads and serves one sequence of full length with.
        pool_bytes: what is left for the KV cache.
        asked_bytes: KV cache of `max_batch_size` sequences of full length.
        largest_batch: sequences of full length that fit at once.
        largest_sequence_tokens: longest sequence of which `max_batch_size` fit at once.
    """

    parameters: int
    memory_bytes: int
    needed_bytes: int
    weights_bytes: int
    activation_bytes: int
    reserve_bytes: int
    cache_bytes_per_token: int
    cache_bytes_per_sequence: int
    pool_bytes: int
    pool_tokens: int
    asked_bytes: int
    largest_batch: int
    largest_sequence_tokens: int

    @property
    def loads(self) -> bool:
        """One sequence of full length fits."""
        return self.largest_batch >= 1

    @property
    def holds_limits(self) -> bool:
        """As many sequences of full length as the limits name fit at once."""
        return self.asked_bytes <= self.pool_bytes


def estimate(sizing: Sizing, memory_bytes: int) -> Capacity:
    """What an engine of this size needs of a board with so much memory, and what fits there."""
    limits = sizing.limits
    weights = rank_bytes(sizing.shape, sizing.weight_bits, sizing.tensor, sizing.pipeline)
    activations = activation_bytes(sizing)
    ranks = sizing.tensor * sizing.pipeline
    reserve = _RESERVE_BYTES + (_RANKS_RESERVE_BYTES if ranks > 1 else 0)
    free = memory_bytes - weights - activations - reserve
    pool = max(0, int(free * sizing.memory_fraction))
    per_token = cache_bytes_per_token(sizing)
    per_sequence = cache_bytes_of(sizing, limits.max_sequence_tokens)
    return Capacity(
        parameters=parameters_of(sizing.shape).total,
        memory_bytes=memory_bytes,
        needed_bytes=weights + activations + reserve + ceil(per_sequence / sizing.memory_fraction),
        weights_bytes=weights,
        activation_bytes=activations,
        reserve_bytes=reserve,
        cache_bytes_per_token=per_token,
        cache_bytes_per_sequence=per_sequence,
        pool_bytes=pool,
        pool_tokens=pool // per_token,
        asked_bytes=limits.max_batch_size * per_sequence,
        largest_batch=pool // per_sequence,
        largest_sequence_tokens=_longest(sizing, pool // limits.max_batch_size),
    )


def sizing_of_spec(spec: BuildSpec, shape: ModelShape) -> Sizing:
    """What a spec asks for, for a model of this shape."""
    return Sizing(
        shape=shape,
        weight_bits=WEIGHT_BITS[spec.precision.weights],
        cache_bytes=CACHE_BYTES[spec.precision.kv_cache],
        tensor=spec.target.parallelism.tensor,
        pipeline=spec.target.parallelism.pipeline,
        limits=spec.limits,
        memory_fraction=_fraction(spec),
    )


def cache_bytes_per_token(sizing: Sizing) -> int:
    """KV cache of one token on the heaviest rank, windows not considered.

    Two vectors per key-value head and layer, heads split between tensor-parallel ranks and copied
    when there are fewer heads than ranks (arXiv:2305.13245; TensorRT-LLM kvCacheManager). Latent
    attention keeps the compressed key-value and one rotary key instead, on every rank whole
    (arXiv:2405.04434, section 2.1.3: (d_c + d_h^R) elements per token and layer).
    """
    layers = ceil(sizing.shape.layers / sizing.pipeline)
    return layers * _layer_bytes(sizing)


def cache_bytes_of(sizing: Sizing, tokens: int) -> int:
    """KV cache of one sequence of so many tokens, in whole blocks.

    Windowed layers keep the last `window` tokens only (arXiv:2310.06825, section 2: rolling
    buffer), which the runtime does as `max_attention_window`.
    """
    shape = sizing.shape
    layers = ceil(shape.layers / sizing.pipeline)
    windowed = ceil(shape.windowed_layers / sizing.pipeline) if shape.window else 0
    whole = _blocks(tokens, sizing) * (layers - windowed)
    kept = _blocks(min(tokens, shape.window or tokens), sizing) * windowed
    return (whole + kept) * _layer_bytes(sizing)


def activation_bytes(sizing: Sizing) -> int:
    """An allowance for activations and workspace, at `max_batch_tokens` in flight.

    The widest set of tensors that live at once in a decoder layer: the residual and its norm, and
    either queries, keys, values and the attention's answer, or gate, up and product of the MLP (of
    every active expert); then the logits of `max_batch_size` sequences in 32 bits.
    """
    shape, limits = sizing.shape, sizing.limits
    queries = shape.heads * shape.head_dim / sizing.tensor
    cached = max(1, shape.kv_heads / sizing.tensor) * shape.head_dim
    attention = 2 * queries + 2 * cached
    if (experts := shape.experts) is None:
        mlp = 3 * shape.intermediate / sizing.tensor
    else:
        width = (experts.active * experts.intermediate + experts.shared_intermediate) * 3
        mlp = width / sizing.tensor + experts.active * shape.hidden
    tokens = limits.max_batch_tokens * (2 * shape.hidden + max(attention, mlp)) * _ACTIVATION_BYTES
    logits = limits.max_batch_size * shape.vocabulary * _LOGIT_BYTES
    return ceil((tokens + logits) * _WORKSPACE)


def _fraction(spec: BuildSpec) -> float:
    """The share of free memory that the spec gives the KV cache, wherever its kind says so."""
    stated = (spec.serving.get(_SERVING_KEY), spec.backend.options.get(_OPTION_KEY))
    for value in stated:
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= 1:
            return float(value)
    return MEMORY_FRACTION


def _layer_bytes(sizing: Sizing) -> int:
    shape = sizing.shape
    if shape.latent is not None:
        return (shape.latent.kv_rank + shape.latent.rope_dim) * sizing.cache_bytes
    heads = max(1, ceil(shape.kv_heads / sizing.tensor))
    return 2 * heads * shape.head_dim * sizing.cache_bytes


def _blocks(tokens: int, sizing: Sizing) -> int:
    return ceil(tokens / sizing.tokens_per_block) * sizing.tokens_per_block


def _longest(sizing: Sizing, budget: int) -> int:
    """The longest sequence whose cache stays within `budget`; what the model can do bounds it."""
    low, high = 0, sizing.shape.max_positions or _LONGEST
    while low < high:
        middle = (low + high + 1) // 2
        if cache_bytes_of(sizing, middle) <= budget:
            low = middle
        else:
            high = middle - 1
    return low
