"""What an engine's config says of its size, for the capacity estimate. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine_pipeline.backends.trtllm.engine_config import limits_of
from engine_pipeline.capacity.estimate import Sizing
from engine_pipeline.spec.model import LimitsSpec

if TYPE_CHECKING:
    from engine_pipeline.backends.trtllm.engine_config import EngineConfig

# Bits of one weight with its scales, by what config.json calls the scheme (QuantConfig of
# modeling_utils.py; docs/source/architecture/checkpoint.md). Beginnings: plugin variants follow.
_BITS = (
    ("W8A", 8.0),
    ("FP8", 8.0),
    ("INT8", 8.0),
    ("NVFP4", 4.5),
    ("W4A16_AWQ", 4.125),
    ("W4A8_AWQ", 4.125),
    ("W4A16_GPTQ", 4.25),
    ("W4A", 4.0),
)
_PLAIN_BITS = 16.0


def bits_of(quant_algo: str | None) -> float | None:
    """Bits of one weight inside the layers; None for a scheme that mixes several."""
    if quant_algo in (None, "NO_QUANT"):
        return _PLAIN_BITS
    for start, bits in _BITS:
        if str(quant_algo).startswith(start):
            return bits
    return None


def sizing_of_engine(config: EngineConfig) -> Sizing | None:
    """What the engine needs room for; None if its config leaves something out."""
    bits, sizes = bits_of(config.quant_algo), limits_of(config)
    if config.shape is None or bits is None:
        return None
    block = config.plugins.get("tokens_per_block")
    try:
        return Sizing(
            shape=config.shape,
            weight_bits=bits,
            cache_bytes=1 if config.cache_algo else 2,
            tensor=config.tensor,
            pipeline=config.pipeline,
            limits=LimitsSpec(
                max_batch_size=sizes["max_batch_size"],
                # Not checked against max_seq_len with packed input; see docs/tensorrt-llm.md.
                max_input_tokens=min(sizes["max_input_len"], sizes["max_seq_len"] - 1),
                max_sequence_tokens=sizes["max_seq_len"],
                max_batch_tokens=sizes["max_num_tokens"],
            ),
            tokens_per_block=block if isinstance(block, int) and block > 0 else 64,
        )
    except (KeyError, ValidationError):
        return None
