"""What is refused before anything runs, and what each refusal says."""

from __future__ import annotations

import pytest

from engine_pipeline.backends.trtllm.backend import TrtllmBackend
from engine_registry.errors import EngineCIError, Incompatible, InvalidInput
from tests.unit.trtllm.models import (
    CALIBRATION,
    GEMMA_9B,
    GPT,
    LLAMA_8B,
    LLAMA_70B,
    MIXTRAL,
    QWEN_7B,
    lock,
    spec,
    toy_config,
)

BACKEND = TrtllmBackend()
AWQ = {"precision": {"weights": "int4", "kv_cache": "fp16"}, "calibration": CALIBRATION}
FP8 = {"precision": {"weights": "fp8", "kv_cache": "fp8"}, "calibration": CALIBRATION}


def refused(*, config=None, **changes):
    """The error that check, or plan if check has none, ends with."""
    with pytest.raises(EngineCIError) as error:
        check_and_plan(spec(**changes), config or toy_config("llama"))
    assert error.value.hint
    return error.value


def check_and_plan(wanted, config):
    BACKEND.check(wanted)
    return BACKEND.plan(lock(wanted, config))


class TestReleases:
    @pytest.mark.parametrize("version", ["1.3.0rc21", "1.3.0rc24", "1.3.0", "1.4.0", "2.0.0"])
    def test_after_the_removal_name_the_reason_and_both_ways_on(self, version):
        error = refused(backend__version=version)
        assert error.name == "builder-removed"
        assert isinstance(error, Incompatible)
        assert "removed upstream after 1.3.0rc20" in error.message
        assert "1.2.1" in error.hint
        assert "trtllm-checkpoint" in error.hint

    @pytest.mark.parametrize("version", ["0.16.0", "1.2.2", "0.9.0"])
    def test_that_nobody_described_are_refused_with_those_that_are(self, version):
        error = refused(backend__version=version)
        assert error.name == "backend-version-unsupported"
        assert "0.17.0" in error.message
        assert "1.3.0rc20" in error.message

    def test_from_0_17_to_the_last_candidate_are_built_with(self):
        for version in ("0.17.0", "0.18.2", "1.0.0", "1.2.1", "1.3.0rc20"):
            BACKEND.check(spec(backend__version=version))


class TestPrecision:
    @pytest.mark.parametrize(
        ("changes", "reference", "says"),
        [
            ({**FP8, "target__sku": "a100-sxm-80gb"}, "precision-not-on-sku", "bf16, int8, int4"),
            (
                {"precision": {"weights": "nvfp4", "kv_cache": "bf16"}, "calibration": CALIBRATION},
                "precision-not-on-sku",
                "nvfp4 weights",
            ),
            (
                {**AWQ, "precision": {"weights": "int4", "kv_cache": "fp16", "recipe": "w4a8_awq"}}
                | {"target__sku": "a100-sxm-80gb"},
                "recipe-not-on-sku",
                "needs SM 89 or newer, a100-sxm-80gb has SM 80",
            ),
            (
                {"precision": {"weights": "int4", "kv_cache": "fp16", "recipe": "int3"}},
                "unknown-value",
                "int4_awq, int4_wo, int4_gptq, w4a8_awq",
            ),
            (
                {"precision": {"weights": "int8", "kv_cache": "fp16", "recipe": "int4_awq"}},
                "precision-contradicts",
                "int8_wo, int8_sq",
            ),
            (
                {"precision": {"weights": "bf16", "kv_cache": "fp16"}},
                "precision-contradicts",
                "bf16 computes in bfloat16, the spec asks for float16",
            ),
            (
                {**AWQ, "backend__options": {"dtype": "bfloat16"}},
                "precision-contradicts",
                "kv_cache fp16 means float16",
            ),
            (
                {"precision": {"weights": "int4", "kv_cache": "int8", "recipe": "int4_gptq"}},
                "cache-not-with-recipe",
                "quantised already",
            ),
            (
                {"precision": {"weights": "fp16", "allow_fallback": ["q5_0"]}},
                "field-without-use",
                "allow-adjusted",
            ),
        ],
    )
    def test_that_cannot_be_names_both_sides(self, changes, reference, says):
        error = refused(**changes)
        assert error.name == reference
        assert says in error.message + error.hint

    def test_nvfp4_came_to_quantize_py_with_0_19(self):
        changes = {
            "precision": {"weights": "nvfp4", "kv_cache": "bf16"},
            "calibration": CALIBRATION,
            "target__sku": "b200-sxm-180gb",
        }
        error = refused(backend__version="0.18.2", **changes)
        assert error.name == "recipe-not-in-release"
        assert "0.19.0" in error.message
        BACKEND.check(spec(backend__version="0.19.0", **changes))


class TestCalibration:
    def test_that_a_recipe_needs_has_to_be_named(self):
        error = refused(precision={"weights": "fp8", "kv_cache": "fp8"})
        assert error.name == "calibration-missing"

    def test_that_nothing_uses_is_refused(self):
        assert refused(calibration=CALIBRATION).name == "field-without-use"

    def test_is_needed_for_a_quantised_cache_too(self):
        error = refused(precision={"weights": "fp16", "kv_cache": "int8"})
        assert error.name == "calibration-missing"


class TestAttention:
    """Paged context FMHA and the KV cache; defaults moved, so it is decided here and given."""

    def paged(self, **changes):
        wanted = spec(**changes)
        BACKEND.check(wanted)
        argv = next(
            s.argv for s in BACKEND.plan(lock(wanted, toy_config("llama"))) if s.name == "compile"
        )
        return argv[argv.index("--use_paged_context_fmha") + 1]

    @pytest.mark.parametrize("version", ["0.17.0", "0.19.0", "1.2.1"])
    def test_is_switched_off_for_an_int8_cache(self, version):
        changes = {"precision": {"weights": "fp16", "kv_cache": "int8"}}
        paged = self.paged(backend__version=version, calibration=CALIBRATION, **changes)
        assert paged == "disable"

    def test_is_switched_off_for_an_fp8_cache_of_weights_that_are_not_fp8(self):
        assert (
            self.paged(**AWQ | {"precision": {"weights": "int4", "kv_cache": "fp8"}}) == "disable"
        )

    def test_is_on_for_fp8_on_both_sides(self):
        assert self.paged(**FP8) == "enable"

    def test_cannot_be_forced_on(self):
        error = refused(
            precision={"weights": "fp16", "kv_cache": "int8"},
            calibration=CALIBRATION,
            backend__options={"use-paged-context-fmha": True},
        )
        assert error.name == "paged-fmha-with-this-cache"

    def test_cannot_be_switched_off_for_quantised_checkpoints_in_0_20(self):
        changes = {
            "precision": {"weights": "fp16", "kv_cache": "int8"},
            "calibration": CALIBRATION,
        }
        assert refused(backend__version="0.20.0", **changes).name == "paged-fmha-cannot-be-disabled"
        BACKEND.check(spec(backend__version="0.21.0", **changes))


class TestOptions:
    @pytest.mark.parametrize(
        ("options", "reference", "says"),
        [
            ({"gemm-plugins": "auto"}, "unknown-value", "gemm-plugin"),
            ({"gemm-plugin": "int4"}, "option-value-invalid", "float16"),
            ({"strip-plan": "yes"}, "option-value-invalid", "true, false"),
            ({"tokens-per-block": "many"}, "option-value-invalid", "whole number"),
            ({"examples-dir": "--model_dir"}, "option-value-invalid", "dash"),
            ({"family": "mamba"}, "unknown-value", "llama, mixtral, qwen, gemma, phi, gpt"),
            ({"timing-cache": "x.cache"}, "option-incomplete", "timing-cache only"),
            ({"timing-cache-digest": "sha256:" + "0" * 64}, "option-incomplete", "go together"),
            (
                {"timing-cache": "x", "timing-cache-digest": "abc"},
                "invalid-digest",
                "not a digest",
            ),
            ({"strip-plan": True, "fast-build": True}, "options-contradict", "both are set"),
            (
                {"multiple-profiles": True, "opt-num-tokens": 8},
                "options-contradict",
                "refuses both together",
            ),
            ({"opt-num-tokens": 9999}, "limits-inconsistent", "above limits.max_batch_tokens"),
            ({"reduce-fusion": True}, "builder-would-adjust", "on one rank"),
            ({"user-buffer": True}, "builder-would-adjust", "without reduce-fusion"),
            ({"moe-expert-parallel": 2}, "field-without-use", "no experts"),
        ],
    )
    def test_that_are_wrong_name_what_works(self, options, reference, says):
        error = refused(backend__options=options)
        assert error.name == reference
        assert says in error.message

    def test_of_later_releases_name_them(self):
        error = refused(backend__version="0.18.0", backend__options={"norm-quant-fusion": True})
        assert error.name == "option-not-in-release"
        assert "0.19.0" in error.message

    def test_that_the_builder_would_change_can_be_accepted(self):
        options = {"reduce-fusion": True, "allow-adjusted": "reduce_fusion"}
        BACKEND.check(spec(backend__options=options))

    def test_refused_on_blackwell_are_refused_here_first(self):
        error = refused(
            precision={"weights": "fp8", "kv_cache": "fp8"},
            calibration=CALIBRATION,
            target__sku="b200-sxm-180gb",
            backend__options={"low-latency-gemm-plugin": "fp8"},
        )
        assert error.name == "plugin-refused-on-sku"
        assert "SM 100" in error.message

    def test_reach_the_builder(self):
        wanted = spec(backend__options={"gemm-plugin": "float16", "tokens-per-block": 64})
        steps = BACKEND.plan(lock(wanted, toy_config("llama")))
        argv = next(step.argv for step in steps if step.name == "compile")
        assert argv[argv.index("--gemm_plugin") + 1] == "float16"
        assert argv[argv.index("--tokens_per_block") + 1] == "64"


class TestLimits:
    def limits(self, batch, tokens, longest=1024):
        return {
            "limits": {
                "max_batch_size": batch,
                "max_input_tokens": 512,
                "max_sequence_tokens": longest,
                "max_batch_tokens": tokens,
            }
        }

    @pytest.mark.parametrize(
        ("batch", "tokens", "says"),
        [
            (64, 32, "each sequence decodes one token"),
            (8, 16, "tokens-per-block 32"),
            (1, 4096, "the builder would lower it"),
        ],
    )
    def test_that_contradict_each_other_are_refused(self, batch, tokens, says):
        error = refused(**self.limits(batch, tokens))
        assert error.name == "limits-inconsistent"
        assert says in error.message

    def test_longer_than_the_model_are_refused(self):
        error = refused(config=GEMMA_9B, **self.limits(8, 2048, longest=16384))
        assert error.name == "sequence-too-long"
        assert "16384" in error.message
        assert "8192" in error.message


class TestModels:
    def test_of_unknown_architecture_need_a_family(self):
        config = toy_config("llama") | {"architectures": ["BrandNewForCausalLM"]}
        error = refused(config=config)
        assert error.name == "family-unknown"
        assert "BrandNewForCausalLM" in error.message
        wanted = spec(backend__options={"family": "llama"})
        assert BACKEND.plan(lock(wanted, config))

    def test_of_known_architecture_cannot_be_called_otherwise(self):
        error = refused(config=QWEN_7B, backend__options={"family": "llama"})
        assert error.name == "family-differs"
        assert "Qwen2ForCausalLM" in error.message

    def test_without_a_readable_config_need_a_family(self):
        with pytest.raises(InvalidInput, match="no readable config.json"):
            BACKEND.plan(lock(spec(), None))

    @pytest.mark.parametrize(
        ("config", "changes", "reference"),
        [
            (
                GPT,
                {"precision": {"weights": "int4", "recipe": "int4_gptq"}},
                "recipe-not-for-family",
            ),
            (
                QWEN_7B,
                {
                    "precision": {"weights": "nvfp4", "kv_cache": "bf16"},
                    "calibration": CALIBRATION,
                    "target__sku": "b200-sxm-180gb",
                },
                "recipe-not-for-family",
            ),
            (GEMMA_9B, {"target__parallelism": {"pipeline": 2}}, "parallelism-not-for-model"),
            (QWEN_7B, {"target__parallelism": {"tensor": 8}}, "parallelism-not-for-model"),
            (
                LLAMA_8B | {"num_hidden_layers": 1},
                {"target__parallelism": {"pipeline": 2}},
                "parallelism-not-for-model",
            ),
            (
                LLAMA_8B | {"intermediate_size": 14336 + 64},
                {**AWQ, "target__parallelism": {"tensor": 1}},
                "parallelism-not-for-model",
            ),
            (
                LLAMA_8B | {"quantization_config": {"quant_method": "gptq"}},
                AWQ,
                "source-quantised-already",
            ),
            (
                LLAMA_8B,
                {"precision": {"weights": "int4", "recipe": "int4_gptq"}},
                "source-quantised-already",
            ),
        ],
    )
    def test_that_do_not_go_with_the_spec_are_refused_before_a_download(
        self, config, changes, reference
    ):
        assert refused(config=config, **changes).name == reference

    def test_other_than_llama_have_no_reduce_fusion(self):
        changes = {"target__parallelism": {"tensor": 2}}
        options = {"reduce-fusion": True}
        error = refused(config=QWEN_7B, backend__options=options, **changes)
        assert error.name == "builder-would-adjust"
        assert check_and_plan(spec(backend__options=options, **changes), LLAMA_8B)

    def test_that_would_not_fit_the_board_are_refused_before_a_download(self):
        error = refused(config=LLAMA_70B)
        assert error.name == "does-not-fit-memory"
        assert isinstance(error, Incompatible)
        assert "131.4 GiB weights" in error.message
        assert "79.6 GiB" in error.message
        assert "tensor" in error.hint
        fits = spec(target__parallelism={"tensor": 4})
        assert BACKEND.plan(lock(fits, LLAMA_70B))

    def test_with_experts_are_counted_whole(self):
        error = refused(config=MIXTRAL, **AWQ | {"target__sku": "rtx-4090-24gb"})
        assert error.name == "does-not-fit-memory"

    def test_stripping_needs_to_know_the_structure(self):
        wanted = spec(backend__options={"strip-plan": True, "family": "llama"})
        with pytest.raises(InvalidInput) as error:
            BACKEND.plan(lock(wanted, None))
        assert error.value.name == "structure-unknown"
