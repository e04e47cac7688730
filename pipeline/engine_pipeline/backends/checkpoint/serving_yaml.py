"""`serving.yaml`: how a checkpoint is served, promoted with it. Pure.

Field names are those of LlmArgs (docs/source/llm-api of TensorRT-LLM); the file is what
`--extra_llm_api_options`, from 1.3 on `--config`, takes. It is made from fields of the spec that
the build key covers, so that equal keys mean equal files.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from engine_pipeline.backends.checkpoint.options import read_options
from engine_pipeline.spec.model import CachePrecision

if TYPE_CHECKING:
    from engine_pipeline.spec.model import BuildSpec

SERVING_FILE = "serving.yaml"
_HEAD = "# How trtllm-serve is started for this checkpoint; part of the engine, never edited.\n"


def serving_config(spec: BuildSpec) -> dict[str, Any]:
    """The settings as plain values."""
    options, parallelism = read_options(spec.backend.options), spec.target.parallelism
    config: dict[str, Any] = {
        "tensor_parallel_size": parallelism.tensor,
        "pipeline_parallel_size": parallelism.pipeline,
        "max_batch_size": spec.limits.max_batch_size,
        "max_input_len": spec.limits.max_input_tokens,
        "max_num_tokens": spec.limits.max_batch_tokens,
        "max_seq_len": spec.limits.max_sequence_tokens,
        "enable_chunked_prefill": options.chunked_prefill,
        "enable_iter_perf_stats": options.iteration_stats,
        "kv_cache_config": {
            "dtype": "fp8" if spec.precision.kv_cache is CachePrecision.FP8 else "auto",
            "enable_block_reuse": options.block_reuse,
            "free_gpu_memory_fraction": options.kv_cache_fraction,
        },
    }
    if options.guided_decoding is not None:
        config["guided_decoding_backend"] = options.guided_decoding
    if options.moe_expert is not None:
        config["moe_expert_parallel_size"] = options.moe_expert
    return config


def serving_text(config: dict[str, Any]) -> str:
    """The file's content: block style, keys sorted, scalars as JSON has them."""
    return _HEAD + "".join(_lines(config, ""))


def _lines(config: dict[str, Any], indent: str) -> list[str]:
    lines: list[str] = []
    for key, value in sorted(config.items()):
        if isinstance(value, dict):
            lines += [f"{indent}{key}:\n", *_lines(value, indent + "  ")]
        else:
            lines.append(f"{indent}{key}: {json.dumps(value)}\n")
    return lines
