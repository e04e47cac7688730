"""Model configs and specs for these tests: published dimensions, and toys of the same families."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from engine_pipeline.spec.lock import BuildLock
from engine_pipeline.spec.model import BuildSpec
from engine_pipeline.spec.shape import shape_of_config
from engine_pipeline.spec.tokenizer import tokenizer_of_files

LLAMA_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "rope_scaling": {"rope_type": "llama3", "factor": 8.0},
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LLAMA_70B = LLAMA_8B | {
    "num_hidden_layers": 80,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "intermediate_size": 28672,
}
MIXTRAL = LLAMA_8B | {
    "architectures": ["MixtralForCausalLM"],
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "rope_scaling": None,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
QWEN_7B = LLAMA_8B | {
    "architectures": ["Qwen2ForCausalLM"],
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "rope_scaling": None,
}
GEMMA_9B = LLAMA_8B | {
    "architectures": ["Gemma2ForCausalLM"],
    "num_hidden_layers": 42,
    "hidden_size": 3584,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 256,
    "intermediate_size": 14336,
    "vocab_size": 256000,
    "max_position_embeddings": 8192,
    "rope_scaling": None,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
}
PHI = LLAMA_8B | {"architectures": ["Phi3ForCausalLM"], "rope_scaling": None}
GPT = LLAMA_8B | {"architectures": ["Starcoder2ForCausalLM"], "rope_scaling": None}
DEEPSEEK_V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
FAMILIES = {
    "llama": LLAMA_8B,
    "mixtral": MIXTRAL,
    "qwen": QWEN_7B,
    "gemma": GEMMA_9B,
    "phi": PHI,
    "gpt": GPT,
}
# Small enough to be written in a moment, and of every family's own architecture.
_TOY = {
    "num_hidden_layers": 2,
    "hidden_size": 256,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "intermediate_size": 512,
    "vocab_size": 128,
    "max_position_embeddings": 4096,
}
IMAGE = "nvcr.io/nvidia/tensorrt-llm/release:1.2.1"
DIGEST = "sha256:" + "ab" * 32
CALIBRATION = {"source": "file://calibration", "revision": "v1", "samples": 64, "max_tokens": 128}


def toy_config(family: str) -> dict[str, Any]:
    return FAMILIES[family] | _TOY


def spec(**changes: Any) -> BuildSpec:
    """A spec with these fields replaced; nested ones by `section__field`."""
    value: dict[str, Any] = {
        "schema_version": 1,
        "model": {"name": "toy", "source": "file://model", "revision": "v1"},
        "target": {"sku": "h100-sxm-80gb", "parallelism": {}},
        "precision": {"weights": "fp16"},
        "backend": {"kind": "trtllm-engine", "version": "1.2.1", "options": {}},
        "limits": {
            "max_batch_size": 8,
            "max_input_tokens": 512,
            "max_sequence_tokens": 1024,
            "max_batch_tokens": 2048,
        },
        "suites": ["core"],
    }
    for path, change in changes.items():
        section, _, field = path.partition("__")
        if field:
            value[section] = value[section] | {field: change}
        else:
            value[section] = change
    return BuildSpec.model_validate(value)


def lock(
    build_spec: BuildSpec,
    config: dict[str, Any] | None,
    files: dict[str, bytes] | None = None,
    image: str | None = None,
) -> BuildLock:
    """A lock of a source with these files; without any, of one named after the config."""
    contents = files or {
        "config.json": json.dumps(config).encode(),
        "model.safetensors": b"weights",
        "tokenizer.json": b"{}",
    }
    locked = {
        "source": build_spec.model.source,
        "revision": "v1",
        "files": [
            {"path": name, "size_bytes": len(data), "digest": _digest(data)}
            for name, data in sorted(contents.items())
        ],
    }
    data = {"source": "file://calibration", "revision": "v1"}
    tokenizer = tokenizer_of_files(contents, "toy")
    return BuildLock.model_validate(
        {
            "spec": build_spec.model_dump(mode="json"),
            "source": locked,
            "tokenizer": tokenizer.model_dump(mode="json") if tokenizer else None,
            "image": {"reference": image, "digest": DIGEST} if image else None,
            "calibration": data
            | {"files": [{"path": "data.jsonl", "size_bytes": 3, "digest": DIGEST}]}
            if build_spec.calibration
            else None,
            "tools": {},
            "shape": shape.model_dump(mode="json")
            if config is not None and (shape := shape_of_config(config))
            else None,
        }
    )


def write_model(directory: Path, config: dict[str, Any], seed: str = "weights") -> dict[str, bytes]:
    """A Hugging Face model on disk with these dimensions; its files, by name."""
    header = json.dumps(
        {"weights": {"dtype": "U8", "shape": [64], "data_offsets": [0, 64]}}
    ).encode()
    body = hashlib.sha512(seed.encode()).digest()
    files = {
        "config.json": json.dumps(config).encode(),
        "generation_config.json": b'{"eos_token_id": 2}',
        "model.safetensors": len(header).to_bytes(8, "little") + header + body,
        "tokenizer.json": b'{"model": {"vocab": {"a": 0}}}',
        "tokenizer_config.json": b'{"chat_template": "{{ messages }}"}',
    }
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return files


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
