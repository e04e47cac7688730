"""Shapes of models, from the config files of the field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine_pipeline.spec.shape import shape_of_config
from tests.unit.trtllm.models import DEEPSEEK_V3, GEMMA_9B, LLAMA_8B, MIXTRAL, QWEN_7B

FACTS = Path(__file__).parents[2] / "data" / "trtllm" / "facts"


def test_grouped_heads_and_their_width_are_read():
    shape = shape_of_config(LLAMA_8B)
    assert shape is not None
    assert (shape.heads, shape.kv_heads, shape.head_dim) == (32, 8, 128)
    assert not shape.tied_embeddings


def test_a_stated_head_width_goes_before_the_quotient():
    assert shape_of_config(GEMMA_9B).head_dim == 256


def test_every_second_layer_of_gemma_2_is_local():
    shape = shape_of_config(GEMMA_9B)
    assert (shape.window, shape.windowed_layers) == (4096, 21)


def test_layer_types_go_before_what_the_architecture_does_by_default():
    kinds = ["sliding_attention"] * 5 + ["full_attention"]
    config = LLAMA_8B | {"num_hidden_layers": 6, "sliding_window": 512, "layer_types": kinds}
    assert shape_of_config(config).windowed_layers == 5


def test_a_window_that_is_switched_off_is_none():
    config = QWEN_7B | {"sliding_window": 131072, "use_sliding_window": False}
    assert shape_of_config(config).window is None


@pytest.mark.parametrize(
    ("scaling", "longest"),
    [
        (None, 131072),
        ({"rope_type": "llama3", "factor": 8.0}, 131072),
        ({"type": "linear", "factor": 4.0}, 524288),
        ({"rope_type": "yarn", "factor": 4.0}, 524288),
        ({"type": "longrope", "factor": 32.0}, 131072),
    ],
)
def test_rope_scaling_lengthens_what_the_builder_lengthens(scaling, longest):
    assert shape_of_config(LLAMA_8B | {"rope_scaling": scaling}).max_positions == longest


def test_experts_are_counted():
    experts = shape_of_config(MIXTRAL).experts
    assert (experts.count, experts.active, experts.intermediate) == (8, 2, 14336)
    deep = shape_of_config(DEEPSEEK_V3)
    assert (deep.experts.shared_intermediate, deep.experts.dense_layers) == (2048, 3)
    assert (deep.latent.kv_rank, deep.latent.rope_dim) == (512, 64)


def test_the_text_part_of_a_multimodal_model_is_taken():
    config = {"architectures": ["LlavaForConditionalGeneration"], "text_config": LLAMA_8B}
    assert shape_of_config(config).layers == 32


def test_an_engine_and_its_checkpoint_have_the_shape_of_their_model():
    engine = json.loads(
        (FACTS / "engine_config_examples/llama31_8b_fp8_trtllm_1.0.0_h100.json").read_text()
    )["config"]["pretrained_config"]
    wanted = shape_of_config(LLAMA_8B)
    for field in ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocabulary"):
        assert getattr(shape_of_config(engine), field) == getattr(wanted, field)
    assert shape_of_config(engine).experts is None


@pytest.mark.parametrize("config", [{}, {"architectures": []}, {"architectures": ["X"]}])
def test_what_is_no_decoder_has_no_shape(config):
    assert shape_of_config(config) is None


def test_names_and_versions_are_no_structure():
    plain = shape_of_config(LLAMA_8B).structure
    assert (
        shape_of_config(LLAMA_8B | {"_name_or_path": "x", "transformers_version": "9"}).structure
        == plain
    )
    assert shape_of_config(LLAMA_8B | {"rms_norm_eps": 1e-6}).structure != plain


def test_infinities_of_some_configs_do_not_matter():
    assert shape_of_config(LLAMA_8B | {"time_step_limit": [0.0, float("inf")]}) is not None
