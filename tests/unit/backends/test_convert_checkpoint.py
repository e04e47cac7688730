"""Hugging Face checkpoints of the llama family → F16 GGUF."""

from __future__ import annotations

import json
import math

import gguf
import numpy as np
import pytest
from safetensors.numpy import save_file

from engine_pipeline.backends.llama_cpp.checkpoint_config import read_shape, rope_factors
from engine_pipeline.backends.llama_cpp.convert import convert
from engine_pipeline.backends.llama_cpp.gguf_header import read_header
from engine_pipeline.progress import Silent
from engine_registry.errors import InvalidInput


@pytest.fixture
def source(tmp_path, toys):
    toys.write_checkpoint(tmp_path / "source", toys.Toy())
    return tmp_path / "source"


def converted(source):
    output = source.parent / "f16.gguf"
    convert(source, output, Silent())
    return output


def refusal(source):
    with pytest.raises(InvalidInput) as caught:
        converted(source)
    assert not (source.parent / "f16.gguf").exists()
    return caught.value


def weights_of(path):
    return {tensor.name: tensor.data for tensor in gguf.GGUFReader(path).tensors}


def change(path, **values):
    content = json.loads(path.read_text()) | values
    path.write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def test_checkpoint_and_gguf_of_one_model_convert_to_the_same_weights(source, tmp_path, toys):
    toys.write_gguf(tmp_path / "direct.gguf", toys.Toy())
    ours, wanted = weights_of(converted(source)), weights_of(tmp_path / "direct.gguf")
    assert ours.keys() == wanted.keys()
    for name, values in wanted.items():
        assert ours[name].dtype == values.dtype, name
        assert np.array_equal(ours[name], values), name


def test_metadata_says_what_the_configuration_says(source, tmp_path, toys):
    toys.write_gguf(tmp_path / "direct.gguf", toys.Toy())
    ours, wanted = read_header(converted(source)), read_header(tmp_path / "direct.gguf")
    for key in wanted.metadata:
        if key != "general.name":
            assert ours.metadata[key] == wanted.metadata[key], key
    assert ours.integer("llama.rope.dimension_count") == 16
    assert ours.integer("llama.vocab_size") == len(toys.Toy().tokens)


def test_converting_twice_gives_the_same_bytes(source):
    first = converted(source).read_bytes()
    assert converted(source).read_bytes() == first


def test_bf16_weights_are_read_exactly(source, toys):
    wanted = {}
    table, body = {}, b""
    for name, values in toys.checkpoint_weights(toys.Toy()).items():
        high = (np.ascontiguousarray(values).view(np.uint32) >> 16).astype("<u2")
        wanted[name] = (high.astype(np.uint32) << 16).view(np.float32)
        begin, body = len(body), body + high.tobytes()
        table[name] = {
            "dtype": "BF16",
            "shape": list(values.shape),
            "data_offsets": [begin, len(body)],
        }
    head = json.dumps(table).encode()
    path = source / "model.safetensors"
    path.write_bytes(len(head).to_bytes(8, "little") + head + body)
    ours = weights_of(converted(source))
    expected = wanted["model.layers.1.mlp.up_proj.weight"].astype(np.float16)
    assert np.array_equal(ours["blk.1.ffn_up.weight"], expected)
    assert np.array_equal(
        ours["blk.0.attn_norm.weight"], wanted["model.layers.0.input_layernorm.weight"]
    )


def test_a_checkpoint_in_shards_converts_like_one_in_a_single_file(source, toys):
    single = converted(source).read_bytes()
    weights = toys.checkpoint_weights(toys.Toy())
    (source / "model.safetensors").unlink()
    shards = {"one.safetensors": {}, "two.safetensors": {}}
    for number, (name, values) in enumerate(weights.items()):
        shards[["one.safetensors", "two.safetensors"][number % 2]][name] = values
    for name, part in shards.items():
        save_file(part, source / name)
    toys.write_json(
        source / "model.safetensors.index.json",
        {"weight_map": {tensor: name for name, part in shards.items() for tensor in part}},
    )
    assert converted(source).read_bytes() == single
    (source.parent / "f16.gguf").unlink()
    (source / "two.safetensors").unlink()
    assert "two.safetensors" in refusal(source).message


def test_an_untied_model_keeps_its_output_matrix(tmp_path, toys):
    toys.write_checkpoint(tmp_path / "source", toys.Toy(tied=False))
    ours = weights_of(converted(tmp_path / "source"))
    assert np.array_equal(ours["output.weight"], toys.Toy(tied=False).weights["output.weight"])


def test_another_architecture_is_refused_by_name(source):
    change(source / "config.json", architectures=["Qwen2ForCausalLM"])
    error = refusal(source)
    assert error.name == "architecture-unsupported"
    assert "Qwen2ForCausalLM" in error.message
    assert "LlamaForCausalLM" in error.message


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("quantization_config", {"quant_method": "awq"}, "awq"),
        ("hidden_act", "gelu", "gelu"),
        ("rope_scaling", {"rope_type": "yarn", "factor": 4}, "yarn"),
    ],
)
def test_what_would_compute_something_else_is_refused_by_name(source, field, value, said):
    change(source / "config.json", **{field: value})
    error = refusal(source)
    assert error.name == "architecture-unsupported"
    assert said in error.message


def rewrite(source, toys, edit):
    weights = toys.checkpoint_weights(toys.Toy())
    edit(weights)
    save_file(weights, source / "model.safetensors")


def test_a_missing_tensor_is_named(source, toys):
    rewrite(source, toys, lambda weights: weights.pop("model.layers.1.mlp.up_proj.weight"))
    assert "blk.1.ffn_up.weight is missing" in refusal(source).message


def test_a_tensor_without_a_place_is_named(source, toys):
    name = "model.layers.0.self_attn.q_norm.weight"
    rewrite(source, toys, lambda weights: weights.update({name: np.ones(4, dtype=np.float32)}))
    assert name in refusal(source).message


def test_a_layer_too_many_is_named(source):
    change(source / "config.json", num_hidden_layers=1)
    assert "model.layers.1." in refusal(source).message


def test_a_shape_that_the_configuration_does_not_imply_is_shown_with_both_sides(source):
    change(source / "config.json", intermediate_size=128)
    message = refusal(source).message
    assert "[96, 64]" in message
    assert "[128, 64]" in message


def test_a_cut_checkpoint_is_refused(source):
    path = source / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    assert refusal(source).name == "checkpoint-unreadable"


def test_tokens_have_the_types_that_the_tokenizer_gives_them(source, toys):
    change(source / "config.json", vocab_size=len(toys.Toy().tokens) + 2)
    toy = toys.Toy()
    pad = np.zeros((2, toy.hidden), dtype=np.float32)
    rewrite(
        source,
        toys,
        lambda weights: weights.update(
            {
                "model.embed_tokens.weight": np.concatenate(
                    [weights["model.embed_tokens.weight"], pad]
                )
            }
        ),
    )
    header = read_header(converted(source))
    tokens = header.metadata["tokenizer.ggml.tokens"].decode()
    types = header.metadata["tokenizer.ggml.token_type"].decode()
    assert tokens[:2] == ["<|begin|>", "<|end|>"]
    assert types[:3] == [3, 3, 1]
    assert dict(zip(tokens, types, strict=True))["<user>"] == 4
    assert tokens[-2:] == [f"[PAD{len(toy.tokens)}]", f"[PAD{len(toy.tokens) + 1}]"]
    assert types[-2:] == [5, 5]


LLAMA3_WORDS = (
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|"
    " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
)


@pytest.mark.parametrize(
    ("name", "stated"),
    [
        ("gpt-2", {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}),
        (
            "llama-bpe",
            {
                "type": "Sequence",
                "pretokenizers": [
                    {
                        "type": "Split",
                        "pattern": {"Regex": LLAMA3_WORDS},
                        "behavior": "Isolated",
                        "invert": False,
                    },
                    {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
                ],
            },
        ),
    ],
)
def test_known_splitters_are_found_by_what_they_do(source, name, stated):
    change(source / "tokenizer.json", pre_tokenizer=stated)
    assert read_header(converted(source)).text("tokenizer.ggml.pre") == name


def test_an_unknown_splitter_is_refused_and_the_known_ones_are_named(source):
    change(source / "tokenizer.json", pre_tokenizer={"type": "Metaspace"})
    error = refusal(source)
    assert error.name == "tokenizer-unsupported"
    assert "Metaspace" in error.message
    assert "smollm" in error.message


def test_a_sentencepiece_tokenizer_is_refused(source, toys):
    stated = toys.tokenizer_json(toys.Toy())["model"]
    change(source / "tokenizer.json", model=stated | {"byte_fallback": True})
    assert "byte fallback" in refusal(source).message


def test_a_begin_token_that_the_template_adds_is_added_by_the_engine(source):
    template = {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<|begin|>"}}, {"Sequence": {"id": "A"}}],
    }
    change(
        source / "tokenizer.json",
        post_processor={"type": "Sequence", "processors": [{"type": "ByteLevel"}, template]},
    )
    metadata = read_header(converted(source)).metadata
    assert metadata["tokenizer.ggml.add_bos_token"].decode() is True
    assert metadata["tokenizer.ggml.add_eos_token"].decode() is False


def test_a_template_file_goes_before_the_one_in_the_settings(source):
    (source / "chat_template.jinja").write_text("{{ messages }} ü")
    assert read_header(converted(source)).text("tokenizer.chat_template") == "{{ messages }} ü"


def test_several_named_templates_are_refused(source):
    change(source / "tokenizer_config.json", chat_template=[{"name": "a"}, {"name": "b"}])
    assert refusal(source).name == "chat-template-ambiguous"


def test_llama_3_1_position_factors_follow_its_three_ranges():
    shape = read_shape(
        {
            "architectures": ["LlamaForCausalLM"],
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "max_position_embeddings": 131072,
            "vocab_size": 128256,
            "rope_theta": 500000.0,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192,
            },
        }
    )
    factors = rope_factors(shape)
    assert len(factors) == 64
    waves = [2 * math.pi * 500000 ** (pair / 64) for pair in range(64)]
    assert all(f == 1 for f, wave in zip(factors, waves, strict=True) if wave < 2048)
    assert all(f == 8 for f, wave in zip(factors, waves, strict=True) if wave > 8192)
    between = [f for f, wave in zip(factors, waves, strict=True) if 2048 < wave < 8192]
    assert between == sorted(between)
    assert all(1 < f < 8 for f in between)
    assert between
