"""How many weights a decoder has, in which parts, and what they weigh on one rank. Pure.

Counts follow the published architectures: multi-head, grouped-query (arXiv:2305.13245) and
multi-query attention (arXiv:1911.02150), gated MLPs (arXiv:2002.05202), mixtures of experts
(arXiv:2401.04088), multi-head latent attention (arXiv:2405.04434, appendix C). Biases are left out:
less than a thousandth of any model here.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from engine_pipeline.spec.model import WeightPrecision

if TYPE_CHECKING:
    from engine_pipeline.spec.shape import ModelShape

# Embeddings, output head, norms and routers stay at 16 bits whatever the recipe.
_PLAIN_BYTES = 2
# Bits of one weight with its share of scales: AWQ and GPTQ have a 16-bit scale per group of 128
# columns (GPTQ a zero point as well: 4.25 covers both), NVFP4 an 8-bit scale per 16 values.
WEIGHT_BITS = {
    WeightPrecision.FP16: 16.0,
    WeightPrecision.BF16: 16.0,
    WeightPrecision.FP8: 8.0,
    WeightPrecision.INT8: 8.0,
    WeightPrecision.INT4: 4.25,
    WeightPrecision.NVFP4: 4.5,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Weights of a model, by what happens to them.

    Attributes:
        linear: matrices inside the layers: quantised, and split between tensor-parallel ranks.
        embedding: the input table; `head` the output matrix, 0 if it is the same one.
        norms: everything small that every rank has.
    """

    linear: int
    embedding: int
    head: int
    norms: int

    @property
    def total(self) -> int:
        """All of them."""
        return self.linear + self.embedding + self.head + self.norms


def parameters_of(shape: ModelShape) -> Parameters:
    """The weights of a decoder of this shape."""
    table = shape.vocabulary * shape.hidden
    return Parameters(
        linear=int(shape.layers * _attention(shape, tensor=1)) + _mlps(shape),
        embedding=table,
        head=0 if shape.tied_embeddings else table,
        norms=(2 * shape.layers + 1) * shape.hidden,
    )


def linear_bytes(shape: ModelShape, weight_bits: float, tensor: int, pipeline: int) -> int:
    """Bytes of the quantised matrices on the rank that has most of them.

    A pipeline stage has `ceil(layers / pipeline)` layers at most. Key and value heads are not cut:
    with more ranks than heads, ranks hold copies.
    """
    share = ceil(shape.layers / pipeline) / shape.layers
    matrices = shape.layers * _attention(shape, tensor) + _mlps(shape) / tensor
    return ceil(matrices * share * weight_bits / 8)


def rank_bytes(shape: ModelShape, weight_bits: float, tensor: int, pipeline: int) -> int:
    """Bytes of all weights on the heaviest rank.

    The first stage has the input table whole, since conversion does not split it by default
    (`--use_parallel_embedding`); the last one has its share of the output head.
    """
    counted = parameters_of(shape)
    head = counted.head / tensor
    ends = counted.embedding + head if pipeline == 1 else max(counted.embedding, head)
    return linear_bytes(shape, weight_bits, tensor, pipeline) + ceil(
        (ends + counted.norms) * _PLAIN_BYTES
    )


def least_plan_bytes(shape: ModelShape, weight_bits: float, tensor: int, pipeline: int) -> int:
    """What a rank's file cannot be smaller than if it holds its weights.

    Of the matrices inside the layers only, on the rank with fewest of them: tables may be shared or
    kept elsewhere.
    """
    share = (shape.layers // pipeline) / shape.layers
    matrices = shape.layers * _attention(shape, tensor=1) + _mlps(shape)
    return int(matrices / tensor * share * weight_bits / 8)


def _attention(shape: ModelShape, tensor: int) -> float:
    """Weights of one layer's attention on one of `tensor` ranks."""
    latent = shape.latent
    if latent is None:
        queries = shape.heads * shape.head_dim / tensor
        cached = max(1, shape.kv_heads / tensor) * shape.head_dim
        return shape.hidden * (2 * queries + 2 * cached)
    heads = shape.heads / tensor
    key_dim = latent.nope_dim + latent.rope_dim
    if latent.query_rank is None:
        query = shape.hidden * heads * key_dim
    else:
        query = shape.hidden * latent.query_rank + latent.query_rank * heads * key_dim
    down = shape.hidden * (latent.kv_rank + latent.rope_dim)
    up = latent.kv_rank * heads * (latent.nope_dim + latent.value_dim)
    return query + down + up + heads * latent.value_dim * shape.hidden


def _mlps(shape: ModelShape) -> int:
    """Weights of all layers' MLPs together."""
    matrices = 3 if shape.gated else 2
    dense = matrices * shape.hidden * shape.intermediate
    experts = shape.experts
    if experts is None:
        return shape.layers * dense
    width = experts.count * experts.intermediate + experts.shared_intermediate
    mixed = matrices * shape.hidden * width + shape.hidden * experts.count
    return experts.dense_layers * dense + (shape.layers - experts.dense_layers) * mixed
