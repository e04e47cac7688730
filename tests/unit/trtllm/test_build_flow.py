"""From a source to an inspected engine, by the plan's own commands, against the stand-in."""

from __future__ import annotations

import hashlib
import json

import pytest

from engine_pipeline.backends.trtllm.backend import TrtllmBackend
from tests.unit.trtllm.conftest import StepFailed
from tests.unit.trtllm.models import CALIBRATION, lock, spec, toy_config, write_model

BACKEND = TrtllmBackend()
H100, B200 = "NVIDIA H100 80GB HBM3", "NVIDIA B200"
GPTQ = {"quantization_config": {"quant_method": "gptq", "bits": 4}}


class Story:
    """A source on disk, its lock and its plan."""

    def __init__(self, tmp_path, family="llama", config=None, seed="weights", **changes):
        self.source = tmp_path / f"source-{seed}"
        config = config or toy_config(family)
        files = write_model(self.source, config, seed)
        self.calibration = tmp_path / "calibration"
        self.calibration.mkdir(exist_ok=True)
        (self.calibration / "data.jsonl").write_text('{"text": "a"}\n')
        self.spec = spec(**changes)
        BACKEND.check(self.spec)
        self.lock = lock(self.spec, config, files)
        self.steps = BACKEND.plan(self.lock)

    def build(self, bench, **given):
        outputs = {"fetch": self.source, "calibration": self.calibration} | given
        self.point_at(bench)
        return bench.run(self.steps, **outputs)

    def point_at(self, bench):
        """The plan's scripts, where the stand-in has them; a spec would say examples-dir."""
        root = "/app/tensorrt_llm/examples"
        there = str(bench.installed.examples_dir)
        self.steps = tuple(
            step.model_copy(update={"argv": tuple(a.replace(root, there) for a in step.argv)})
            for step in self.steps
        )


def precision(weights, kv_cache, recipe=None):
    return {"weights": weights, "kv_cache": kv_cache, "recipe": recipe}


@pytest.mark.parametrize("version", ["0.17.0.post1", "0.19.0", "1.1.0", "1.2.1"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"precision": precision("bf16", "bf16")},
        {"precision": precision("fp8", "fp8"), "calibration": CALIBRATION},
        {"precision": precision("fp8", "bf16"), "calibration": CALIBRATION},
        {"precision": precision("int8", "fp16")},
        {"precision": precision("int8", "int8", "int8_sq"), "calibration": CALIBRATION},
        {"precision": precision("fp16", "int8"), "calibration": CALIBRATION},
        {"precision": precision("int4", "fp16"), "calibration": CALIBRATION},
        {"precision": precision("int4", "fp8"), "calibration": CALIBRATION},
        {"target__parallelism": {"tensor": 2, "pipeline": 2}},
        {"backend__options": {"fast-build": True}},
        {"backend__options": {"multiple-profiles": True, "gemm-plugin": "float16"}},
    ],
    ids=lambda changes: ",".join(str(value) for value in changes.values()) or "fp16",
)
def test_what_is_built_is_what_the_lock_asks_for(tmp_path, bench, version, changes):
    story = Story(tmp_path, backend__version=version, **changes)
    facts = BACKEND.inspect(story.build(bench(version)))
    assert BACKEND.compare(story.lock, facts) == ()
    assert facts.runtime["tensorrt_llm"] == version
    assert facts.tokenizer == story.lock.tokenizer.digest


@pytest.mark.parametrize("family", ["llama", "mixtral", "qwen", "gemma", "phi", "gpt"])
@pytest.mark.parametrize("recipe", ["fp16", "int8_wo", "int4_awq"])
def test_every_family_goes_through_its_own_script(tmp_path, bench, family, recipe):
    weights = {"fp16": "fp16", "int8_wo": "int8", "int4_awq": "int4"}[recipe]
    changes = {"calibration": CALIBRATION} if recipe == "int4_awq" else {}
    story = Story(tmp_path, family, precision=precision(weights, "fp16", recipe), **changes)
    facts = BACKEND.inspect(story.build(bench()))
    assert BACKEND.compare(story.lock, facts) == ()


@pytest.mark.parametrize("family", ["llama", "qwen"])
def test_a_gptq_source_keeps_its_own_weights(tmp_path, bench, family):
    story = Story(
        tmp_path,
        config=toy_config(family) | GPTQ,
        precision=precision("int4", "fp16", "int4_gptq"),
    )
    facts = BACKEND.inspect(story.build(bench()))
    assert facts.details["quantisation"] == "W4A16_GPTQ"
    assert BACKEND.compare(story.lock, facts) == ()


def test_nvfp4_is_built_on_blackwell(tmp_path, bench):
    story = Story(
        tmp_path,
        target__sku="b200-sxm-180gb",
        precision=precision("nvfp4", "bf16"),
        calibration=CALIBRATION,
    )
    facts = BACKEND.inspect(story.build(bench(board=B200, gpus=1)))
    assert facts.details["plugins"]["gemm_plugin"] == "nvfp4"
    assert BACKEND.compare(story.lock, facts) == ()


def test_experts_are_spread_over_ranks(tmp_path, bench):
    story = Story(
        tmp_path,
        "mixtral",
        target__parallelism={"tensor": 2},
        backend__options={"moe-expert-parallel": 2},
    )
    engine = story.build(bench())
    mapping = json.loads((engine / "config.json").read_text())["pretrained_config"]["mapping"]
    assert (mapping["moe_tp_size"], mapping["moe_ep_size"]) == (1, 2)


def test_a_rank_has_a_file_and_the_timing_cache_is_kept_apart_from_the_engine(tmp_path, bench):
    story = Story(tmp_path, target__parallelism={"tensor": 2, "pipeline": 2})
    engine = story.build(bench())
    assert sorted(path.name for path in engine.glob("rank*")) == [
        f"rank{rank}.engine" for rank in range(4)
    ]
    compiled = next(step for step in story.steps if step.name == "compile")
    assert compiled.keep == ("model.cache",)
    assert (engine.parent / "compile" / "model.cache").is_file()
    assert not (engine / "model.cache").exists()


def test_two_builds_of_one_lock_differ_in_bytes_and_agree_in_everything_else(tmp_path, bench):
    story = Story(tmp_path)
    first = story.build(bench())
    one = (first / "rank0.engine").read_bytes()
    facts = BACKEND.inspect(first)
    (tmp_path / "outputs").rename(tmp_path / "before")
    second = story.build(bench())
    assert (second / "rank0.engine").read_bytes() != one
    assert BACKEND.inspect(second).details == facts.details


class TestTimingCache:
    def given(self, tmp_path, digest=None):
        path = tmp_path / "h100.cache"
        path.write_text('{"tensorrt": "10.14.1.48", "sm": 90}')
        digest = digest or f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
        return {"timing-cache": "h100.cache", "timing-cache-digest": digest}

    def test_is_checked_and_handed_to_the_builder(self, tmp_path, bench):
        story = Story(tmp_path, backend__options=self.given(tmp_path))
        names = [step.name for step in story.steps]
        assert names == ["fetch", "checkpoint", "timing-cache", "compile", "engine"]
        facts = BACKEND.inspect(story.build(bench()))
        assert BACKEND.compare(story.lock, facts) == ()
        assert facts.details["build_config"]["input_timing_cache"].endswith("model.cache")

    def test_with_other_bytes_stops_the_build(self, tmp_path, bench):
        story = Story(tmp_path, backend__options=self.given(tmp_path, "sha256:" + "0" * 64))
        with pytest.raises(StepFailed, match="timing-cache-differs"):
            story.build(bench())
        assert not list((tmp_path / "outputs" / "timing-cache").iterdir())

    def test_that_is_not_there_stops_the_build(self, tmp_path, bench):
        story = Story(tmp_path, backend__options=self.given(tmp_path))
        (tmp_path / "h100.cache").unlink()
        with pytest.raises(StepFailed, match="timing-cache-missing"):
            story.build(bench())

    def test_is_an_input_of_the_compilation_alone(self, tmp_path):
        plain = {s.name: s.key for s in Story(tmp_path).steps}
        with_cache = {
            s.name: s.key for s in Story(tmp_path, backend__options=self.given(tmp_path)).steps
        }
        assert plain["checkpoint"] == with_cache["checkpoint"]
        assert plain["compile"] != with_cache["compile"]


class TestStripped:
    OPTIONS = {"strip-plan": True}

    def test_plans_are_compiled_without_weights_and_refitted(self, tmp_path, bench):
        story = Story(tmp_path, backend__options=self.OPTIONS)
        engine = story.build(bench())
        facts = BACKEND.inspect(engine)
        assert facts.details["stripped"]
        assert not facts.details["needs_refit"]
        assert BACKEND.compare(story.lock, facts) == ()

    def test_other_weights_of_the_same_model_reuse_the_plan(self, tmp_path, bench):
        first = Story(tmp_path, backend__options=self.OPTIONS)
        other = Story(tmp_path, seed="tuned", backend__options=self.OPTIONS)
        keys = [{step.name: step.key for step in story.steps} for story in (first, other)]
        assert keys[0]["checkpoint"] != keys[1]["checkpoint"]
        assert keys[0]["compile"] == keys[1]["compile"]
        assert keys[0]["refit"] != keys[1]["refit"]
        built = bench()
        engine = first.build(built)
        plan, stripped = (engine / "rank0.engine").read_bytes(), engine.parent / "compile"
        kept = stripped.rename(tmp_path / "kept")
        engine.parent.rename(tmp_path / "before")
        refitted = other.build(built, compile=kept)
        assert (refitted / "rank0.engine").read_bytes() != plan
        assert BACKEND.compare(other.lock, BACKEND.inspect(refitted)) == ()

    def test_another_structure_does_not_reuse_it(self, tmp_path):
        config = toy_config("llama")
        keys = [
            {
                step.name: step.key
                for step in Story(tmp_path, config=c, backend__options=self.OPTIONS).steps
            }
            for c in (config, config | {"rope_theta": 1e6}, config | {"_name_or_path": "copy"})
        ]
        assert keys[0]["compile"] != keys[1]["compile"]
        assert keys[0]["compile"] == keys[2]["compile"]

    def test_a_plan_without_weights_is_not_taken_for_an_engine(self, tmp_path, bench):
        story = Story(tmp_path, backend__options=self.OPTIONS)
        engine = story.build(bench())
        facts = BACKEND.inspect(engine.parent / "compile")
        assert facts.details["needs_refit"]
        wrong = BACKEND.compare(story.lock, facts)
        assert ("weights", "stripped and not refitted") in [(m.what, m.found) for m in wrong]


class TestCorrections:
    """What the builder sets otherwise than asked, read back from build_config."""

    def test_fail_the_build_with_both_sides(self, tmp_path, bench):
        story = Story(tmp_path)
        engine = story.build(
            bench(adjust={"max_num_tokens": 1024, "use_paged_context_fmha": False})
        )
        found = {
            m.what: (m.wanted, m.found)
            for m in BACKEND.compare(story.lock, BACKEND.inspect(engine))
        }
        assert found == {
            "build_config.max_num_tokens": ("2048", "1024"),
            "build_config.use_paged_context_fmha": ("enable", "disable"),
        }

    def test_are_recorded_where_the_spec_allows_them(self, tmp_path, bench):
        story = Story(tmp_path, backend__options={"allow-adjusted": "max_num_tokens"})
        facts = BACKEND.inspect(story.build(bench(adjust={"max_num_tokens": 1024})))
        assert BACKEND.compare(story.lock, facts) == ()
        assert facts.details["limits"]["max_num_tokens"] == 1024

    def test_of_the_converter_are_seen_too(self, tmp_path, bench):
        # int4_awq checkpoints with an FP8 KV cache nobody asked for were seen in the field.
        story = Story(
            tmp_path,
            precision=precision("int4", "fp16"),
            calibration=CALIBRATION,
            backend__options={"use-paged-context-fmha": False},
        )
        facts = BACKEND.inspect(story.build(bench(hidden_awq_cache=True)))
        assert [(m.what, m.wanted, m.found) for m in BACKEND.compare(story.lock, facts)] == [
            ("kv cache", "float16", "FP8")
        ]


def test_another_release_in_the_image_than_the_spec_says_is_found(tmp_path, bench):
    story = Story(tmp_path, backend__version="1.2.0")
    facts = BACKEND.inspect(story.build(bench("1.2.1")))
    assert [(m.what, m.wanted, m.found) for m in BACKEND.compare(story.lock, facts)] == [
        ("TensorRT-LLM", "1.2.0", "1.2.1")
    ]


def test_calibration_data_is_a_local_path(tmp_path, bench):
    story = Story(tmp_path, precision=precision("fp8", "fp8"), calibration=CALIBRATION)
    checkpoint = next(step for step in story.steps if step.name == "checkpoint")
    assert checkpoint.inputs == ("fetch", "calibration")
    argv = checkpoint.argv
    assert argv[argv.index("--calib_dataset") + 1] == "{input:calibration}"
    assert not checkpoint.network
    (story.calibration / "data.jsonl").unlink()
    with pytest.raises(StepFailed, match="holds no data"):
        story.build(bench())


def test_only_fetching_may_reach_the_network_and_no_secret_goes_further(tmp_path):
    story = Story(tmp_path, precision=precision("fp8", "fp8"), calibration=CALIBRATION)
    for step in story.steps:
        assert step.network == (step.name in ("fetch", "calibration"))
        assert ("HF_TOKEN" in step.env) == step.network
    toolkit = [step for step in story.steps if step.name in ("checkpoint", "compile")]
    assert all(step.variables["HF_HUB_OFFLINE"] == "1" for step in toolkit)
    assert all(step.gpus for step in toolkit)


def test_toolkit_steps_run_in_the_pinned_image_and_ours_do_not(tmp_path):
    build_spec = spec(backend__image="nvcr.io/nvidia/tensorrt-llm/release:1.2.1")
    config = toy_config("llama")
    steps = BACKEND.plan(lock(build_spec, config, image=build_spec.backend.image))
    images = {step.name: step.image for step in steps}
    pinned = "nvcr.io/nvidia/tensorrt-llm/release@sha256:" + "ab" * 32
    assert images == {"fetch": None, "checkpoint": pinned, "compile": pinned, "engine": None}


def test_a_limit_repeats_the_compilation_and_not_the_quantisation(tmp_path):
    def keys(tokens):
        story = Story(
            tmp_path,
            precision=precision("fp8", "fp8"),
            calibration=CALIBRATION,
            limits__max_batch_tokens=tokens,
        )
        return {step.name: step.key for step in story.steps}

    one, two = keys(2048), keys(1024)
    assert [name for name in one if one[name] != two[name]] == ["compile", "engine"]
