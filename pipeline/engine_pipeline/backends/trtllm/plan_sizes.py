"""Which plans hold their weights, and which are cut off, by size alone. Pure.

A plan's header has no length, so a cut-off file looks whole. What it cannot do is be smaller than
the weights it holds (Llama 3.1 8B: 16.1 GB of plan for 16.1 GB of weights), or much smaller than
the plans of its fellow ranks, which hold as much. Registered engines are checked by digest instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.backends.trtllm.sizing import bits_of
from engine_pipeline.capacity.parameters import least_plan_bytes
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from engine_pipeline.backends.trtllm.engine_config import EngineConfig

# Scales and padding aside, weights are incompressible; a tenth covers what the estimate leaves out.
_WHOLE = 0.9
# Ranks of one stage differ in tables and padding only.
_FELLOWS = 0.75
# The largest stripped plan on record has 29 MB of 6.5 GB; the next is what nobody stripped.
_BARE = 0.5


def without_weights(config: EngineConfig, sizes: dict[str, int]) -> bool:
    """Whether a stripped build was not refitted yet: its plans are smaller than their weights.

    `trtllm-refit` copies config.json as it is, so `use_strip_plan` says nothing of that.
    """
    if not config.stripped:
        return False
    least = _least(config)
    return least is None or min(sizes.values()) < least * _BARE


def refuse_cut_off(config: EngineConfig, sizes: dict[str, int]) -> None:
    """Refuse plans that cannot hold what they must.

    Args:
        config: of the engine.
        sizes: bytes of each plan, by file name, in the order of ranks.

    Raises:
        InvalidInput: `engine-truncated`, with both sizes.
    """
    least = _least(config)
    for name, size in sizes.items():
        if least is not None and size < least * _WHOLE:
            raise InvalidInput(
                f"{name} is truncated: {size:,} bytes, the weights of its layers alone have "
                f"{least:,}",
                hint="copy it again from where it was built, or build the engine again",
                reference="engine-truncated",
            )
    ordered = list(sizes.items())
    for start in range(0, len(ordered), config.tensor):
        stage = ordered[start : start + config.tensor]
        largest, most = max(stage, key=lambda item: item[1])
        for name, size in stage:
            if size < most * _FELLOWS:
                raise InvalidInput(
                    f"{name} is truncated: {size:,} bytes, its fellow {largest} has {most:,}",
                    hint="copy it again from where it was built, or build the engine again",
                    reference="engine-truncated",
                )


def _least(config: EngineConfig) -> int | None:
    bits = bits_of(config.quant_algo)
    if config.shape is None or bits is None or config.build.get("weight_sparsity") is True:
        return None
    return least_plan_bytes(config.shape, bits, config.tensor, config.pipeline)
