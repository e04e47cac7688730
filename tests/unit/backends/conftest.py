"""Toy llama models: two layers, written with the field's own libraries and no weights to fetch."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

import gguf
import libgguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from engine_pipeline.spec.lock import BuildLock
from engine_pipeline.spec.model import BuildSpec

DIGEST = "sha256:" + "a" * 64
RUNTIME = "2026.10.11549"
TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}"


@dataclass
class Toy:
    """Sizes of a toy and its weights as F32, by their names in GGUF."""

    hidden: int = 64
    feed_forward: int = 96
    heads: int = 4
    kv_heads: int = 2
    layers: int = 2
    tied: bool = True
    merges: tuple[str, ...] = ("a b", "Ġ a")
    tokens: list[str] = field(default_factory=list)
    weights: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        letters = [chr(number) for number in range(97, 123)]
        self.tokens = ["<|begin|>", "<|end|>", *letters, "Ġ", "ab", "Ġa", "<user>"]
        random = np.random.default_rng(7)

        def matrix(*shape: int) -> np.ndarray:
            # Values that F16 holds exactly, so that every format can be compared bit by bit.
            return (random.standard_normal(shape) * 0.1).astype(np.float16).astype(np.float32)

        head = self.hidden // self.heads
        self.weights["token_embd.weight"] = matrix(len(self.tokens), self.hidden)
        for layer in range(self.layers):
            block = f"blk.{layer}."
            self.weights |= {
                f"{block}attn_norm.weight": matrix(self.hidden),
                f"{block}attn_q.weight": matrix(self.heads * head, self.hidden),
                f"{block}attn_k.weight": matrix(self.kv_heads * head, self.hidden),
                f"{block}attn_v.weight": matrix(self.kv_heads * head, self.hidden),
                f"{block}attn_output.weight": matrix(self.hidden, self.heads * head),
                f"{block}ffn_norm.weight": matrix(self.hidden),
                f"{block}ffn_gate.weight": matrix(self.feed_forward, self.hidden),
                f"{block}ffn_up.weight": matrix(self.feed_forward, self.hidden),
                f"{block}ffn_down.weight": matrix(self.hidden, self.feed_forward),
            }
        self.weights["output_norm.weight"] = matrix(self.hidden)
        if not self.tied:
            self.weights["output.weight"] = matrix(len(self.tokens), self.hidden)


def write_gguf(path: Path, toy: Toy, kind: str = "F16", file_type: int = 1, **extra: int) -> None:
    """The toy as GGUF, matrices stored as `kind`, written by the gguf library."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(toy.layers)
    writer.add_context_length(512)
    writer.add_embedding_length(toy.hidden)
    writer.add_feed_forward_length(toy.feed_forward)
    writer.add_head_count(toy.heads)
    writer.add_head_count_kv(toy.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_file_type(file_type)
    writer.add_name("Toy")
    for key, value in extra.items():
        writer.add_uint32(key.replace("__", "."), value)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(toy.tokens)
    writer.add_token_types([3, 3] + [1] * (len(toy.tokens) - 3) + [4])
    writer.add_token_merges(list(toy.merges))
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template(TEMPLATE)
    number = gguf.GGMLQuantizationType[kind]
    for name, values in toy.weights.items():
        if values.ndim == 1 or kind == "F32":
            writer.add_tensor(name, values)
        elif kind == "F16":
            writer.add_tensor(name, values.astype(np.float16))
        else:
            writer.add_tensor(name, libgguf.quantize_rows(values, number), raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def split_halves(weight: np.ndarray, heads: int) -> np.ndarray:
    """Rows in transformers' order: llama.cpp's pairs (0,1), (2,3) … become halves, per head."""
    head = weight.shape[0] // heads
    order = [
        start + row
        for start in range(0, weight.shape[0], head)
        for row in (*range(0, head, 2), *range(1, head, 2))
    ]
    return weight[order]


def checkpoint_weights(toy: Toy) -> dict[str, np.ndarray]:
    """The toy's weights under transformers' names and in its row order."""
    names = {
        "attn_norm": "input_layernorm",
        "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj",
        "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj",
        "ffn_norm": "post_attention_layernorm",
        "ffn_gate": "mlp.gate_proj",
        "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj",
    }
    found = {}
    for name, values in toy.weights.items():
        parts = name.split(".")
        if parts[0] != "blk":
            top = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
            found[f"{top.get(parts[0], 'lm_head')}.weight"] = values
            continue
        heads = {"attn_q": toy.heads, "attn_k": toy.kv_heads}.get(parts[2])
        ordered = split_halves(values, heads) if heads else values
        found[f"model.layers.{parts[1]}.{names[parts[2]]}.weight"] = ordered
    return found


def write_checkpoint(directory: Path, toy: Toy, **config: object) -> None:
    """The toy as a Hugging Face checkpoint, written by the safetensors library."""
    directory.mkdir(exist_ok=True)
    save_file(checkpoint_weights(toy), directory / "model.safetensors")
    write_json(
        directory / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": toy.hidden,
            "intermediate_size": toy.feed_forward,
            "num_hidden_layers": toy.layers,
            "num_attention_heads": toy.heads,
            "num_key_value_heads": toy.kv_heads,
            "max_position_embeddings": 512,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000.0,
            "vocab_size": len(toy.tokens),
            "tie_word_embeddings": toy.tied,
        }
        | config,
    )
    write_json(directory / "tokenizer.json", tokenizer_json(toy))
    write_json(
        directory / "tokenizer_config.json",
        {"bos_token": "<|begin|>", "eos_token": {"content": "<|end|>"}, "chat_template": TEMPLATE},
    )


def tokenizer_json(toy: Toy) -> dict[str, object]:
    """A tokenizer.json as SmolLM2's is built."""
    ids = {token: number for number, token in enumerate(toy.tokens)}
    return {
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
            ],
        },
        "post_processor": None,
        "added_tokens": [
            {"id": 0, "content": "<|begin|>", "special": True},
            {"id": 1, "content": "<|end|>", "special": True},
            {"id": ids["<user>"], "content": "<user>", "special": False},
        ],
        "model": {
            "type": "BPE",
            "byte_fallback": False,
            "vocab": {token: number for token, number in ids.items() if token != "<user>"},
            "merges": [merge.split(" ") for merge in toy.merges],
        },
    }


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def make_spec(**changes: object) -> BuildSpec:
    """A valid INT8 spec; dotted names of `changes` use `__`."""
    value: dict[str, object] = {
        "schema_version": 1,
        "model": {"name": "toy", "source": "file://toy", "revision": "one"},
        "target": {"sku": "cpu-x86-64-v3"},
        "precision": {"weights": "int8"},
        "backend": {"kind": "llama-cpp", "version": RUNTIME},
        "limits": {
            "max_batch_size": 2,
            "max_input_tokens": 128,
            "max_sequence_tokens": 256,
            "max_batch_tokens": 512,
        },
        "suites": ["toy"],
    }
    for name, change in changes.items():
        place: dict[str, object] = value
        *parents, last = name.split("__")
        for parent in parents:
            place = place[parent]  # type: ignore[assignment]
        place[last] = change
    return BuildSpec.model_validate(value)


def make_lock(spec: BuildSpec, path: str = "toy.gguf", **changes: object) -> BuildLock:
    """A lock of that spec over one file of 1000 bytes."""
    value = {
        "spec": spec,
        "source": {
            "source": spec.model.source,
            "revision": "one",
            "files": [{"path": path, "size_bytes": 1000, "digest": DIGEST}],
        },
        "tokenizer": {"digest": DIGEST, "chat_template": None},
        "tools": {
            "engine-ci/convert": "1",
            "engine-ci/quantise": "1",
            "gguf": "0.19.0",
            "libgguf": "0.2.2",
            "numpy": "2.4.6",
        },
    }
    return BuildLock.model_validate(value | changes)


@dataclass
class Toys:
    """Everything above, for tests to reach without importing this file."""

    Toy = Toy
    write_gguf = staticmethod(write_gguf)
    write_checkpoint = staticmethod(write_checkpoint)
    checkpoint_weights = staticmethod(checkpoint_weights)
    tokenizer_json = staticmethod(tokenizer_json)
    write_json = staticmethod(write_json)
    make_spec = staticmethod(make_spec)
    make_lock = staticmethod(make_lock)
    template = TEMPLATE
    runtime = RUNTIME


@pytest.fixture(scope="session")
def toys() -> Toys:
    return Toys()
