"""Small engines of the TensorRT-LLM kinds, real enough for the real backends to read."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from engine_pipeline.backends.checkpoint.backend import CheckpointBackend
from engine_pipeline.backends.checkpoint.runtime_file import CheckpointRuntime, runtime_bytes
from engine_pipeline.backends.checkpoint.serving_yaml import serving_text
from engine_pipeline.backends.port import Backend
from engine_pipeline.backends.trtllm.backend import TrtllmBackend
from engine_registry.record import Parallelism, Platform

VERSION, TENSORRT = "1.2.1", (10, 14, 1, 48)
SKU = "h100-sxm-80gb"
IMAGE = "nvcr.io/nvidia/tritonserver@sha256:" + "b" * 64
_MODEL = {
    "architecture": "LlamaForCausalLM",
    "dtype": "bfloat16",
    "vocab_size": 32,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 128,
    "hidden_act": "silu",
}


def backend_for(kind: str) -> Backend:
    return TrtllmBackend() if kind == "trtllm-engine" else CheckpointBackend()


def platform(tensor: int = 1, pipeline: int = 1, kind: str = "trtllm-engine") -> Platform:
    runtime = {"tensorrt_llm": VERSION}
    if kind == "trtllm-engine":
        runtime["tensorrt"] = ".".join(map(str, TENSORRT))
    return Platform(
        sku=SKU,
        sm=90,
        parallelism=Parallelism(tensor=tensor, pipeline=pipeline),
        runtime=runtime,
    )


def tokenizer_files(name: str) -> dict[str, bytes]:
    vocab = {"a": 0, name: 1}
    return {"tokenizer.json": json.dumps({"model": {"type": "BPE", "vocab": vocab}}).encode()}


def engine_files(
    name: str, *, tensor: int = 1, pipeline: int = 1, tokenizer: str = "one", **model: Any
) -> dict[str, bytes]:
    """A TensorRT engine: config.json, one plan per rank, the tokenizer beside."""
    ranks = tensor * pipeline
    config = {
        "version": VERSION,
        "pretrained_config": {
            **_MODEL,
            "mapping": {"world_size": ranks, "tp_size": tensor, "pp_size": pipeline},
            "quantization": {"quant_algo": None, "kv_cache_quant_algo": None},
            **model,
        },
        "build_config": {
            "max_batch_size": 8,
            "max_input_len": 64,
            "max_seq_len": 128,
            "max_num_tokens": 64,
            "max_beam_width": 1,
            "kv_cache_type": "PAGED",
            "plugin_config": {"gpt_attention_plugin": "auto", "tokens_per_block": 32},
        },
    }
    head = b"ftrt" + bytes(20) + bytes(TENSORRT)
    plans = {
        f"rank{rank}.engine": head + hashlib.sha256(f"{name} {rank}".encode()).digest() * 800
        for rank in range(ranks)
    }
    words = {f"tokenizer/{path}": data for path, data in tokenizer_files(tokenizer).items()}
    return {"config.json": json.dumps(config).encode(), **plans, **words}


def checkpoint_files(name: str, *, tensor: int = 1, tokenizer: str = "one") -> dict[str, bytes]:
    """A Hugging Face checkpoint with its serving settings, as the build leaves it."""
    weights = hashlib.sha256(name.encode()).digest()
    header = json.dumps(
        {"lm_head.weight": {"dtype": "BF16", "shape": [16], "data_offsets": [0, len(weights)]}}
    ).encode()
    parallelism = Parallelism(tensor=tensor)
    return {
        "config.json": json.dumps(
            {**_MODEL, "architectures": ["LlamaForCausalLM"], "model_type": "llama"}
        ).encode(),
        "model.safetensors": len(header).to_bytes(8, "little") + header + weights,
        "serving.yaml": serving_text(
            {
                "tensor_parallel_size": tensor,
                "pipeline_parallel_size": 1,
                "max_batch_size": 8,
                "max_num_tokens": 64,
                "max_seq_len": 128,
                "kv_cache_config": {"dtype": "auto", "free_gpu_memory_fraction": 0.9},
            }
        ).encode(),
        "runtime.json": runtime_bytes(
            CheckpointRuntime(
                tensorrt_llm=VERSION, image="sha256:" + "b" * 64, sku=SKU, parallelism=parallelism
            )
        ),
        **tokenizer_files(tokenizer),
    }
