"""What a checkpoint needs room for, for the capacity estimate. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from engine_pipeline.capacity.estimate import Sizing
from engine_pipeline.spec.model import LimitsSpec

if TYPE_CHECKING:
    from engine_pipeline.backends.checkpoint.quantisation import Quantisation
    from engine_pipeline.spec.shape import ModelShape

# Bits of one weight with its scales, by ModelOpt's name of the scheme.
_BITS = {
    None: 16.0,
    "FP8": 8.0,
    "FP8_PER_CHANNEL_PER_TOKEN": 8.0,
    "W4A16_AWQ": 4.125,
    "W4A8_AWQ": 4.125,
    "NVFP4": 4.5,
    "NVFP4_AWQ": 4.5,
    "W4A8_NVFP4_FP8": 4.5,
}


def sizing_of_checkpoint(
    shape: ModelShape,
    quantisation: Quantisation,
    serving: dict[str, Any] | None,
    tensor: int,
    pipeline: int,
) -> Sizing | None:
    """What it needs; None for a bare checkpoint, or where schemes are mixed."""
    bits = _BITS.get(quantisation.quant_algo)
    if bits is None or serving is None:
        return None
    cache = serving.get("kv_cache_config") or {}
    try:
        return Sizing(
            shape=shape,
            weight_bits=bits,
            cache_bytes=1 if quantisation.cache_algo or cache.get("dtype") == "fp8" else 2,
            tensor=tensor,
            pipeline=pipeline,
            limits=LimitsSpec(
                max_batch_size=serving["max_batch_size"],
                max_input_tokens=serving["max_input_len"],
                max_sequence_tokens=serving["max_seq_len"],
                max_batch_tokens=serving["max_num_tokens"],
            ),
            memory_fraction=cache.get("free_gpu_memory_fraction", 0.9),
        )
    except (KeyError, ValidationError):
        return None
