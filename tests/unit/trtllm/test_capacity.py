"""Memory: counted against published figures and worked by hand."""

from __future__ import annotations

import pytest

from engine_pipeline.capacity.estimate import (
    Sizing,
    activation_bytes,
    cache_bytes_of,
    cache_bytes_per_token,
    estimate,
    sizing_of_spec,
)
from engine_pipeline.capacity.parameters import (
    least_plan_bytes,
    linear_bytes,
    parameters_of,
    rank_bytes,
)
from engine_pipeline.capacity.verdict import capacity_on, memory_bytes_of, refuse_unloadable
from engine_pipeline.spec.model import LimitsSpec
from engine_pipeline.spec.shape import shape_of_config
from engine_registry.errors import Incompatible
from tests.unit.trtllm.models import (
    CALIBRATION,
    DEEPSEEK_V3,
    GEMMA_9B,
    LLAMA_8B,
    LLAMA_70B,
    MIXTRAL,
    QWEN_7B,
    spec,
)

GIB = 1 << 30
MISTRAL_V01 = LLAMA_8B | {
    "architectures": ["MistralForCausalLM"],
    "vocab_size": 32000,
    "sliding_window": 4096,
}
STARCODER_MQA = LLAMA_8B | {
    "architectures": ["GPTBigCodeForCausalLM"],
    "n_layer": 40,
    "n_embd": 6144,
    "n_head": 48,
    "multi_query": True,
    "n_inner": 24576,
    "vocab_size": 49152,
}
for key in (
    "num_hidden_layers",
    "hidden_size",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
):
    del STARCODER_MQA[key]


def shape(config):
    found = shape_of_config(config)
    assert found is not None
    return found


def sizing(config, *, bits=16.0, cache=2, tensor=1, pipeline=1, batch=8, longest=1024, **more):
    return Sizing(
        shape=shape(config),
        weight_bits=bits,
        cache_bytes=cache,
        tensor=tensor,
        pipeline=pipeline,
        limits=LimitsSpec(
            max_batch_size=batch,
            max_input_tokens=512,
            max_sequence_tokens=longest,
            max_batch_tokens=2048,
        ),
        **more,
    )


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (LLAMA_8B, 8.03),
        (LLAMA_70B, 70.55),
        (MIXTRAL, 46.70),
        (QWEN_7B, 7.62),
        (GEMMA_9B, 9.24),
        (DEEPSEEK_V3, 671.0),
    ],
)
def test_a_model_has_as_many_weights_as_its_card_says(config, billions):
    assert parameters_of(shape(config)).total / 1e9 == pytest.approx(billions, rel=0.002)


class TestCache:
    def test_of_grouped_heads_is_two_vectors_per_group_and_layer(self):
        # 2 × 32 layers × 8 heads × 128 × 2 bytes: 128 KiB per token.
        assert cache_bytes_per_token(sizing(LLAMA_8B)) == 131072

    def test_in_fp8_takes_half(self):
        assert cache_bytes_per_token(sizing(LLAMA_8B, cache=1)) == 65536

    def test_is_split_between_ranks_by_heads_and_by_layers(self):
        assert cache_bytes_per_token(sizing(LLAMA_8B, tensor=2)) == 131072 // 2
        assert cache_bytes_per_token(sizing(LLAMA_8B, pipeline=2)) == 131072 // 2

    def test_is_copied_when_there_are_fewer_heads_than_ranks(self):
        # Qwen2.5-7B has 4 key-value heads: 8 ranks hold one each.
        assert cache_bytes_per_token(sizing(QWEN_7B, tensor=8)) == 2 * 28 * 1 * 128 * 2

    def test_of_multi_query_attention_has_one_head(self):
        assert shape(STARCODER_MQA).kv_heads == 1
        assert cache_bytes_per_token(sizing(STARCODER_MQA)) == 2 * 40 * 128 * 2

    def test_of_latent_attention_is_the_compressed_vector_on_every_rank(self):
        # DeepSeek-V3: (512 + 64) × 61 layers × 2 bytes, however many ranks.
        assert cache_bytes_per_token(sizing(DEEPSEEK_V3)) == 576 * 61 * 2
        assert cache_bytes_per_token(sizing(DEEPSEEK_V3, tensor=8)) == 576 * 61 * 2

    def test_of_windowed_layers_stops_growing(self):
        windowed = sizing(MISTRAL_V01)
        assert cache_bytes_of(windowed, 4096) == cache_bytes_of(windowed, 32768)

    def test_of_alternating_layers_grows_by_half(self):
        gemma = sizing(GEMMA_9B)
        per_layer = 2 * 8 * 256 * 2
        assert cache_bytes_of(gemma, 8192) == per_layer * 21 * (8192 + 4096)

    def test_is_handed_out_in_whole_blocks(self):
        blocks = sizing(LLAMA_8B, tokens_per_block=64)
        assert cache_bytes_of(blocks, 65) == cache_bytes_of(blocks, 128) == 128 * 131072


class TestWeights:
    def test_are_split_between_ranks_but_for_the_input_table(self):
        table = 128256 * 4096 * 2
        whole, half = (rank_bytes(shape(LLAMA_8B), 16, tensor, 1) for tensor in (1, 2))
        assert whole == pytest.approx(8.03e9 * 2, rel=0.001)
        assert half == pytest.approx((whole - table) / 2 + table, rel=0.001)

    def test_of_a_stage_are_those_of_its_layers(self):
        assert linear_bytes(shape(LLAMA_8B), 16, 1, 4) * 4 == linear_bytes(
            shape(LLAMA_8B), 16, 1, 1
        )

    def test_in_four_bits_are_little_more_than_a_quarter_inside_the_layers(self):
        plain, small = (linear_bytes(shape(LLAMA_8B), bits, 1, 1) for bits in (16, 4.25))
        assert small / plain == pytest.approx(4.25 / 16)

    def test_of_a_plan_are_never_estimated_above_what_a_rank_holds(self):
        for config in (LLAMA_8B, MIXTRAL, GEMMA_9B, QWEN_7B):
            for tensor, pipeline in ((1, 1), (2, 1), (4, 2)):
                least = least_plan_bytes(shape(config), 8, tensor, pipeline)
                assert least <= rank_bytes(shape(config), 8, tensor, pipeline)


class TestEstimate:
    def test_of_llama_8b_on_an_a100_leaves_most_of_the_board_to_the_cache(self):
        found = estimate(sizing(LLAMA_8B), 80 * GIB)
        assert found.weights_bytes == pytest.approx(16.06e9, rel=0.001)
        assert 0 < found.activation_bytes < 2 * GIB
        used = found.weights_bytes + found.activation_bytes + found.reserve_bytes
        assert found.pool_bytes == int((80 * GIB - used) * 0.9)
        assert found.pool_tokens == found.pool_bytes // 131072
        assert found.largest_batch == found.pool_bytes // (1024 * 131072)
        assert found.loads
        assert found.holds_limits

    def test_gives_a_longest_sequence_that_fits_and_one_more_block_that_does_not(self):
        wanted = sizing(LLAMA_8B, batch=64)
        found = estimate(wanted, 24 * GIB)
        longest = found.largest_sequence_tokens
        assert 64 * cache_bytes_of(wanted, longest) <= found.pool_bytes
        assert 64 * cache_bytes_of(wanted, longest + 1) > found.pool_bytes

    def test_never_promises_more_than_the_model_can(self):
        found = estimate(sizing(LLAMA_8B, batch=1), 10_000 * GIB)
        assert found.largest_sequence_tokens == 131072

    def test_tells_asking_too_much_from_not_loading(self):
        found = estimate(sizing(LLAMA_8B, batch=4096, longest=8192), 80 * GIB)
        assert found.loads
        assert not found.holds_limits
        assert found.asked_bytes == 4096 * 8192 * 131072

    def test_needs_what_it_says_it_needs(self):
        wanted = sizing(LLAMA_8B)
        needed = estimate(wanted, 80 * GIB).needed_bytes
        assert estimate(wanted, needed + 16).loads
        assert not estimate(wanted, needed - (1 << 20)).loads

    def test_grows_with_the_tokens_in_flight(self):
        small = sizing(LLAMA_8B)
        limits = small.limits.model_copy(update={"max_batch_tokens": 4096})
        assert activation_bytes(small.model_copy(update={"limits": limits})) > activation_bytes(
            small
        )


class TestVerdict:
    FP8_TP2 = {
        "target__parallelism": {"tensor": 2},
        "precision": {"weights": "fp8", "kv_cache": "fp8"},
        "calibration": CALIBRATION,
        "limits": {
            "max_batch_size": 8,
            "max_input_tokens": 130000,
            "max_sequence_tokens": 131072,
            "max_batch_tokens": 8192,
        },
    }

    def test_llama_70b_in_fp8_fits_two_h100_at_full_length(self):
        refuse_unloadable(spec(**self.FP8_TP2), shape(LLAMA_70B))

    def test_and_not_one(self):
        alone = spec(**self.FP8_TP2 | {"target__parallelism": {"tensor": 1}})
        with pytest.raises(Incompatible) as error:
            refuse_unloadable(alone, shape(LLAMA_70B))
        assert error.value.name == "does-not-fit-memory"
        assert "each of 1 rank(s) needs" in error.value.message
        assert "20.0 GiB KV cache of one sequence of 131072 tokens" in error.value.message
        assert "max_sequence_tokens" in error.value.hint

    def test_nothing_is_said_where_model_or_board_are_not_known(self):
        refuse_unloadable(spec(), None)
        refuse_unloadable(spec(target__sku="h20-sxm-141gb"), shape(LLAMA_70B))
        assert memory_bytes_of("cpu-x86-64-v3") is None

    def test_the_share_of_the_cache_is_the_specs(self):
        plain = sizing_of_spec(spec(), shape(LLAMA_8B))
        key = "kv-cache-free-gpu-memory-fraction"
        half = sizing_of_spec(spec(serving={key: 0.5}), shape(LLAMA_8B))
        assert (plain.memory_fraction, half.memory_fraction) == (0.9, 0.5)

    def test_a_spec_asks_for_what_its_precision_takes(self):
        wanted = sizing_of_spec(spec(**self.FP8_TP2), shape(LLAMA_70B))
        assert (wanted.weight_bits, wanted.cache_bytes, wanted.tensor) == (8.0, 1, 2)
        found = capacity_on(wanted, "h100-sxm-80gb")
        assert found is not None
        assert found.memory_bytes == 81559 << 20
