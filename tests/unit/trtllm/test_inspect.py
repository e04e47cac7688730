"""Engine directories of every period, whole and damaged, read without TensorRT."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from engine_pipeline.backends.directory import kind_of_directory
from engine_pipeline.backends.trtllm.backend import TrtllmBackend
from engine_pipeline.backends.trtllm.plan_header import read_plan_header
from engine_pipeline.capacity.verdict import capacity_on, sizing_of_facts
from engine_registry.errors import InvalidInput, NotFound
from tests.standin.toolchain.plan_file import write_plan

BACKEND = TrtllmBackend()
FACTS = Path(__file__).parents[2] / "data" / "trtllm" / "facts"
EXAMPLES = FACTS / "engine_config_examples"
GIB = 1 << 30


def example(name):
    return json.loads((EXAMPLES / f"{name}.json").read_text())["config"]


def plan(path, size, tensorrt="10.14.1.48"):
    """A plan of a size that is only said to be there: a hole after the header."""
    write_plan(path, tensorrt, {"sm": 90}, b"")
    os.truncate(path, size)


def engine(tmp_path, config, sizes, tensorrt="10.14.1.48"):
    directory = tmp_path / "engine"
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(config, indent=4))
    for rank, size in enumerate(sizes):
        plan(directory / f"rank{rank}.engine", size, tensorrt)
    return directory


@pytest.mark.parametrize(
    ("name", "tensorrt", "sizes", "details"),
    [
        (
            "llama31_8b_fp16_trtllm_0.17.0_h100",
            "10.8.0.43",
            [16 * GIB],
            {"quantisation": None, "kv_cache": "float16", "board_label": "H100-PCIe"},
        ),
        (
            "llama31_8b_int8wo_trtllm_0.17.0_rtx4090",
            "10.8.0.43",
            [9 * GIB],
            {"quantisation": "W8A16", "board_label": "NVIDIA-GeForce-RTX-4090"},
        ),
        (
            "llama31_70b_fp8_tp2_trtllm_0.21.0_h100",
            "10.11.0.33",
            [35 * GIB, 35 * GIB],
            {"quantisation": "FP8", "kv_cache": "FP8", "tensor": 2, "pipeline": 1},
        ),
        (
            "llama31_8b_fp8_trtllm_1.0.0_h100",
            "10.11.0.33",
            [9 * GIB],
            {"quantisation": "FP8", "kv_cache": "FP8", "producer": "modelopt 0.33.0"},
        ),
        (
            "llama31_8b_int4_awq_trtllm_1.2.1_l40s",
            "10.14.1.48",
            [int(5.7e9)],
            {"quantisation": "W4A16_AWQ", "board_label": None, "stripped": False},
        ),
        (
            "llama31_8b_fp16_stripped_trtllm_1.2.1",
            "10.14.1.48",
            [30 << 20],
            {"stripped": True, "needs_refit": True},
        ),
    ],
)
def test_an_engine_of_each_period_says_what_it_is(tmp_path, name, tensorrt, sizes, details):
    config = example(name)
    facts = BACKEND.inspect(engine(tmp_path, config, sizes, tensorrt))
    assert facts.runtime == {"tensorrt_llm": config["version"], "tensorrt": tensorrt}
    assert facts.architecture == "LlamaForCausalLM"
    assert facts.context_tokens == 8192
    assert facts.details["limits"]["max_batch_size"] == 64
    assert facts.details["kv_cache_type"] == "PAGED"
    assert {key: facts.details[key] for key in details} == details
    assert [file.path for file in facts.files] == [
        "config.json",
        *(f"rank{rank}.engine" for rank in range(len(sizes))),
    ]


def test_an_engine_says_what_it_needs_room_for(tmp_path):
    config = example("llama31_70b_fp8_tp2_trtllm_0.21.0_h100")
    facts = BACKEND.inspect(engine(tmp_path, config, [35 * GIB, 35 * GIB], "10.11.0.33"))
    sizing = sizing_of_facts(facts)
    assert sizing is not None
    assert (sizing.weight_bits, sizing.cache_bytes, sizing.tensor) == (8.0, 1, 2)
    assert sizing.limits.max_batch_size == 64
    found = capacity_on(sizing, "h100-sxm-80gb")
    assert found is not None
    assert found.loads


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        ({"model.gguf": b""}, "llama-cpp"),
        ({"rank0.engine": b""}, "trtllm-engine"),
        ({"config.json": b'{"pretrained_config": {}}'}, "trtllm-engine"),
        ({"config.json": b'{"builder_config": {}}'}, "trtllm-engine"),
        ({"config.json": b"[]", "model.safetensors": b""}, "trtllm-checkpoint"),
    ],
)
def test_the_kind_of_a_bare_directory_is_found(tmp_path, names, kind):
    for name, data in names.items():
        (tmp_path / name).write_bytes(data)
    assert kind_of_directory(tmp_path) == kind


def test_a_directory_of_no_kind_is_refused(tmp_path):
    with pytest.raises(InvalidInput, match="empty directory"):
        kind_of_directory(tmp_path)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(InvalidInput, match=r"there are: notes\.txt"):
        kind_of_directory(tmp_path)
    with pytest.raises(NotFound):
        kind_of_directory(tmp_path / "nowhere")


def test_a_config_as_0_13_wrote_it_is_read(tmp_path):
    config = example("llama31_8b_fp16_trtllm_0.17.0_h100")
    config["version"] = "0.13.0"
    for key in ("monitor_memory", "use_mrope"):
        del config["build_config"][key]
    for key in ("user_buffer", "pp_reduce_scatter", "explicitly_disable_gemm_plugin"):
        del config["build_config"]["plugin_config"][key]
    facts = BACKEND.inspect(engine(tmp_path, config, [16 * GIB], "10.4.0.26"))
    assert facts.runtime["tensorrt_llm"] == "0.13.0"


def test_a_refitted_engine_still_says_that_it_was_stripped_and_needs_no_refit(tmp_path):
    config = example("llama31_8b_fp16_stripped_trtllm_1.2.1")
    facts = BACKEND.inspect(engine(tmp_path, config, [16 * GIB]))
    assert facts.details["stripped"]
    assert not facts.details["needs_refit"]


def test_managed_weights_are_part_of_the_engine(tmp_path):
    config = example("llama31_8b_fp8_trtllm_1.0.0_h100")
    config["build_config"]["plugin_config"]["manage_weights"] = True
    directory = engine(tmp_path, config, [1 << 20], "10.11.0.33")
    with pytest.raises(InvalidInput, match="missing: rank0_managed_weights.safetensors"):
        BACKEND.inspect(directory)
    (directory / "rank0_managed_weights.safetensors").write_bytes(b"weights")
    facts = BACKEND.inspect(directory)
    assert facts.details["managed_weights"]
    assert "rank0_managed_weights.safetensors" in [file.path for file in facts.files]


def test_the_timing_cache_beside_it_is_not(tmp_path):
    config = example("llama31_8b_fp8_trtllm_1.0.0_h100")
    directory = engine(tmp_path, config, [9 * GIB], "10.11.0.33")
    (directory / "model.cache").write_bytes(b"tactics")
    assert "model.cache" not in [file.path for file in BACKEND.inspect(directory).files]


class TestRefused:
    CONFIG = example("llama31_70b_fp8_tp2_trtllm_0.21.0_h100")
    TENSORRT = "10.11.0.33"

    def refused(self, directory, reference):
        with pytest.raises(InvalidInput) as error:
            BACKEND.inspect(directory)
        assert error.value.name == reference
        assert error.value.hint
        return error.value.message

    def whole(self, tmp_path, sizes=(35 * GIB, 35 * GIB), config=None):
        return engine(tmp_path, config or self.CONFIG, sizes, self.TENSORRT)

    def test_no_directory(self, tmp_path):
        with pytest.raises(NotFound):
            BACKEND.inspect(tmp_path / "nowhere")

    def test_an_empty_directory(self, tmp_path):
        self.refused(tmp_path, "engine-empty")

    def test_a_missing_rank(self, tmp_path):
        directory = self.whole(tmp_path)
        (directory / "rank1.engine").unlink()
        assert "missing: rank1.engine" in self.refused(directory, "engine-incomplete")

    def test_a_rank_too_many(self, tmp_path):
        directory = self.whole(tmp_path)
        plan(directory / "rank2.engine", GIB)
        assert "rank2.engine" in self.refused(directory, "engine-versions-mixed")

    def test_an_empty_plan(self, tmp_path):
        directory = self.whole(tmp_path)
        (directory / "rank1.engine").write_bytes(b"")
        assert "rank1.engine is empty" in self.refused(directory, "engine-empty")

    def test_a_plan_that_ends_in_its_header(self, tmp_path):
        directory = self.whole(tmp_path)
        (directory / "rank1.engine").write_bytes(b"ftrt" + bytes(10))
        assert "rank1.engine is truncated: 14 bytes" in self.refused(directory, "engine-truncated")

    def test_a_plan_smaller_than_its_weights(self, tmp_path):
        directory = self.whole(tmp_path, (35 * GIB, 20 * GIB))
        said = self.refused(directory, "engine-truncated")
        assert "rank1.engine is truncated: 21,474,836,480 bytes" in said
        assert "34,2" in said

    def test_a_plan_smaller_than_its_fellow(self, tmp_path):
        directory = self.whole(tmp_path, (60 * GIB, 35 * GIB))
        assert "fellow rank0.engine" in self.refused(directory, "engine-truncated")

    @pytest.mark.parametrize(
        ("head", "name"),
        [
            (b"GGUF" + bytes(40), "GGUF"),
            (b"PK\x03\x04" + bytes(40), "zip"),
            (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
            (bytes(64), "zeros"),
        ],
    )
    def test_something_else_under_a_plans_name(self, tmp_path, head, name):
        directory = self.whole(tmp_path)
        (directory / "rank0.engine").write_bytes(head)
        assert name in self.refused(directory, "engine-foreign")

    def test_plans_of_two_tensorrt_versions(self, tmp_path):
        directory = self.whole(tmp_path)
        plan(directory / "rank1.engine", 35 * GIB, "10.10.0.31")
        said = self.refused(directory, "engine-versions-mixed")
        assert "rank0.engine 10.11.0.33, rank1.engine 10.10.0.31" in said

    def test_plans_of_another_release_than_the_config(self, tmp_path):
        directory = self.whole(tmp_path, config=self.CONFIG | {"version": "1.2.1"})
        said = self.refused(directory, "engine-versions-mixed")
        assert "1.2.1, which has TensorRT 10.14.1.48" in said
        assert "10.11.0.33" in said

    @pytest.mark.parametrize(
        ("config", "reference", "says"),
        [
            ({"builder_config": {}}, "engine-too-old", "before TensorRT-LLM 0.8"),
            ({"model_type": "llama"}, "engine-foreign", "Hugging Face checkpoint"),
            ({"mapping": {}, "quantization": {}}, "engine-foreign", "not compiled yet"),
            ({"edgellm_version": "0.11"}, "engine-foreign", "Edge-LLM"),
            ({"version": "1.2.1", "pretrained_config": {}}, "engine-config-unreadable", "no build"),
            ([], "engine-config-unreadable", "not a JSON object"),
        ],
    )
    def test_another_kind_of_config(self, tmp_path, config, reference, says):
        directory = self.whole(tmp_path)
        (directory / "config.json").write_text(json.dumps(config))
        assert says in self.refused(directory, reference)

    def test_half_a_config(self, tmp_path):
        directory = self.whole(tmp_path)
        text = (directory / "config.json").read_text()
        (directory / "config.json").write_text(text[: len(text) // 2])
        assert "not JSON" in self.refused(directory, "engine-config-unreadable")

    def test_plans_without_a_config(self, tmp_path):
        directory = self.whole(tmp_path)
        (directory / "config.json").unlink()
        assert "plans alone" in self.refused(directory, "engine-incomplete")

    def test_directories_of_other_tools(self, tmp_path):
        for name in ("encoder", "decoder"):
            (tmp_path / name).mkdir()
        assert "encoder-decoder" in self.refused(tmp_path, "engine-foreign")


def test_the_header_is_read_where_tensorrt_writes_it(tmp_path):
    path = tmp_path / "rank0.engine"
    head = bytearray(64)
    head[0:4] = bytes.fromhex("66747274")
    head[24:28] = bytes((10, 14, 1, 48))
    path.write_bytes(head)
    header = read_plan_header(path)
    assert (header.tensorrt, header.serialisation, header.size_bytes) == ("10.14.1.48", 0, 64)
