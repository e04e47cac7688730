"""The stand-in is strict: a double that takes anything would prove nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from tests.standin.install import facts_of, image_files, install
from tests.standin.toolchain.plan_file import read_plan
from tests.standin.toolchain.weights import read_safetensors
from tests.unit.trtllm.models import toy_config, write_model


class Toolkit:
    """Runs single tools of one installed stand-in."""

    def __init__(self, root, version="1.2.1", **settings):
        self.root = root
        self.installed = install(root / "standin", version, **settings)
        self.env = {"PATH": f"{self.installed.bin_dir}:{os.environ['PATH']}"}

    def run(self, *words, env=None):
        return subprocess.run(
            [str(self.installed.bin_dir / words[0]), *map(str, words[1:])],
            cwd=self.root,
            env=self.env | (env or {}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def checkpoint(self, config=None, *flags):
        """A checkpoint made by the conversion script of the model's family."""
        write_model(self.root / "model", config or toy_config("llama"))
        examples = self.installed.examples_dir
        script = next(examples.rglob("llama/convert_checkpoint.py"))
        done = self.run(
            "python3",
            script,
            *("--model_dir", self.root / "model", "--output_dir", self.root / "checkpoint"),
            *flags,
        )
        assert done.returncode == 0, done.stderr
        return self.root / "checkpoint"

    def build(self, *flags, env=None):
        given = ("--checkpoint_dir", self.root / "checkpoint", "--output_dir", self.root / "engine")
        return self.run("trtllm-build", *given, *flags, env=env)

    def config(self):
        return json.loads((self.root / "engine" / "config.json").read_text())


@pytest.fixture
def toolkit(tmp_path):
    return Toolkit(tmp_path)


class TestFlags:
    def test_that_a_release_does_not_have_end_with_two(self, toolkit):
        done = toolkit.build("--multi_block_mode", "enable")
        assert done.returncode == 2
        assert facts_of("1.2.1")["messages"]["build"]["unknown_flag"]["match"][0] in done.stderr

    def test_take_only_their_choices(self, toolkit):
        done = toolkit.build("--gemm_plugin", "int4")
        assert done.returncode == 2
        assert ": invalid choice: " in done.stderr

    def test_are_not_abbreviated(self, toolkit):
        assert toolkit.build("--max_batch", "4").returncode == 2

    def test_of_another_release_are_unknown(self, tmp_path):
        done = Toolkit(tmp_path, "1.1.0").build("--cluster_key", "H100-SXM")
        assert "unrecognized" not in done.stderr
        done = Toolkit(tmp_path, "1.2.1").build("--cluster_key", "H100-SXM")
        assert "unrecognized arguments: --cluster_key" in done.stderr

    def test_of_a_server_end_with_two(self, toolkit):
        done = toolkit.run("trtllm-serve", toolkit.root, "--revision", "main")
        assert done.returncode == 2


@pytest.mark.parametrize(("version", "block", "paged"), [("0.17.0", 64, None), ("1.2.1", 32, True)])
def test_defaults_moved_between_releases(tmp_path, version, block, paged):
    toolkit = Toolkit(tmp_path, version)
    toolkit.checkpoint()
    assert toolkit.build("--max_seq_len", "1024").returncode == 0
    plugins = toolkit.config()["build_config"]["plugin_config"]
    assert plugins["tokens_per_block"] == block
    assert (plugins["use_paged_context_fmha"] or None) == paged


class TestInputs:
    def test_neither_checkpoint_nor_model_dies_as_the_real_one(self, toolkit):
        done = toolkit.run("trtllm-build", "--output_dir", toolkit.root / "engine")
        assert done.returncode == 1
        assert "'NoneType' object has no attribute 'lower'" in done.stderr

    def test_no_gpu_no_build(self, toolkit):
        toolkit.checkpoint()
        assert toolkit.build(env={"CUDA_VISIBLE_DEVICES": ""}).returncode == 1

    def test_a_missing_rank_is_noticed(self, toolkit):
        folder = toolkit.checkpoint(None, "--tp_size", "2")
        (folder / "rank1.safetensors").unlink()
        assert "rank1.safetensors" in toolkit.build().stderr

    def test_a_rank_that_is_cut_off_is_noticed(self, toolkit):
        path = toolkit.checkpoint() / "rank0.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        assert toolkit.build().returncode == 1

    def test_a_checkpoint_without_a_mandatory_field_is_noticed(self, toolkit):
        path = toolkit.checkpoint() / "config.json"
        config = json.loads(path.read_text())
        del config["hidden_act"]
        path.write_text(json.dumps(config))
        assert "KeyError: 'hidden_act'" in toolkit.build().stderr

    def test_a_script_reads_its_own_family(self, toolkit):
        write_model(toolkit.root / "model", toolkit_config := toy_config("qwen"))
        assert toolkit_config["architectures"] == ["Qwen2ForCausalLM"]
        script = toolkit.installed.examples_dir / "models/core/llama/convert_checkpoint.py"
        done = toolkit.run(
            "python3", script, "--model_dir", toolkit.root / "model", "--output_dir", "out"
        )
        assert "Unsupported model architecture" in done.stderr

    def test_a_data_set_by_name_would_need_the_hub(self, toolkit):
        write_model(toolkit.root / "model", toy_config("llama"))
        script = toolkit.installed.examples_dir / "quantization/quantize.py"
        done = toolkit.run(
            *("python3", script, "--model_dir", toolkit.root / "model", "--qformat", "fp8")
        )
        assert "cnn_dailymail" in done.stderr
        assert done.returncode == 1


class TestCorrections:
    def test_are_made_silently(self, toolkit):
        toolkit.checkpoint(None, "--use_weight_only", "--weight_only_precision", "int8")
        done = toolkit.build(
            *("--max_seq_len", "256", "--max_batch_size", "2", "--max_num_tokens", "8192"),
            *("--reduce_fusion", "enable", "--use_fused_mlp", "enable", "--paged_state", "enable"),
        )
        assert done.returncode == 0
        build = toolkit.config()["build_config"]
        assert build["max_num_tokens"] == 512
        assert build["max_input_len"] == 256
        switches = ("reduce_fusion", "use_fused_mlp", "paged_state")
        assert [build["plugin_config"][name] for name in switches] == [False, False, False]

    @pytest.mark.parametrize(
        ("convert", "build", "fact"),
        [
            (("--int8_kv_cache", "--calib_dataset", "data"), (), "int8kv_paged"),
            (("--fp8_kv_cache",), (), "fp8_paged"),
            ((), ("--multiple_profiles", "enable", "--opt_num_tokens", "8"), "profiles_conflict"),
        ],
    )
    def test_end_where_the_builder_refuses(self, toolkit, convert, build, fact):
        (toolkit.root / "data").mkdir()
        (toolkit.root / "data" / "train.jsonl").write_text("{}")
        toolkit.checkpoint(None, *convert)
        done = toolkit.build("--max_seq_len", "512", *build)
        assert done.returncode == 1
        assert facts_of("1.2.1")["messages"]["build"][fact]["match"][0] in done.stderr

    def test_some_plugins_are_refused_on_blackwell(self, tmp_path):
        toolkit = Toolkit(tmp_path, board="NVIDIA B200")
        toolkit.checkpoint()
        done = toolkit.build("--max_seq_len", "512", "--low_latency_gemm_plugin", "fp8")
        assert "NotImplementedError: low_latency_gemm_plugin=fp8" in done.stderr


class TestLeft:
    def test_behind_is_a_timing_cache_in_the_working_directory_unless_told_otherwise(self, toolkit):
        toolkit.checkpoint()
        assert toolkit.build("--max_seq_len", "512").returncode == 0
        assert (toolkit.root / "model.cache").is_file()

    def test_in_the_plan_is_the_release_tensorrt_and_the_weights(self, toolkit):
        folder = toolkit.checkpoint()
        assert toolkit.build("--max_seq_len", "512").returncode == 0
        version, bound, weights = read_plan(toolkit.root / "engine" / "rank0.engine")
        assert version == "10.14.1.48"
        assert bound["sm"] == 90
        assert weights == read_safetensors(folder / "rank0.safetensors")

    def test_out_of_a_stripped_plan_are_the_weights(self, toolkit):
        toolkit.checkpoint()
        assert toolkit.build("--max_seq_len", "512", "--strip_plan").returncode == 0
        assert read_plan(toolkit.root / "engine" / "rank0.engine")[2] == b""

    def test_in_config_json_is_the_wrong_label_of_an_h100_sxm(self, tmp_path):
        toolkit = Toolkit(tmp_path, "1.1.0", board="NVIDIA H100 80GB HBM3")
        toolkit.checkpoint()
        assert toolkit.build("--max_seq_len", "512").returncode == 0
        label = toolkit.config()["build_config"]["auto_parallel_config"]["cluster_key"]
        assert label == "H100-PCIe"

    def test_a_refit_needs_a_stripped_plan(self, toolkit):
        folder = toolkit.checkpoint()
        toolkit.build("--max_seq_len", "512")
        done = toolkit.run(
            *("trtllm-refit", "--engine_dir", toolkit.root / "engine", "--checkpoint_dir", folder),
            *("--output_dir", toolkit.root / "refit"),
        )
        assert done.returncode == 1
        assert "--strip_plan" in done.stderr


def test_silence_lasts_until_it_is_killed(tmp_path):
    toolkit = Toolkit(tmp_path, fail={"trtllm-build": "silence"})
    process = subprocess.Popen(
        [str(toolkit.installed.bin_dir / "trtllm-build")],
        env=toolkit.env,
        stdout=subprocess.PIPE,
    )
    try:
        assert b"calibrating" in process.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
    finally:
        process.kill()
        process.stdout.close()
    assert process.wait() == -signal.SIGKILL


def test_an_image_has_the_tools_where_the_release_has_them():
    files = image_files("1.2.1")
    assert {
        "/usr/local/bin/trtllm-build",
        "/usr/local/bin/trtllm-refit",
        "/usr/local/bin/trtllm-serve",
        "/app/tensorrt_llm/examples/quantization/quantize.py",
        "/app/tensorrt_llm/examples/models/core/llama/convert_checkpoint.py",
    } <= set(files)
    assert "/app/tensorrt_llm/examples/llama/convert_checkpoint.py" in image_files("0.19.0")
    assert all(path.startswith("/") for path in files)


def test_every_tool_says_that_it_is_a_double(tmp_path):
    installed = install(tmp_path, "1.2.1")
    for path in (*installed.bin_dir.glob("trtllm-*"), *installed.examples_dir.rglob("*.py")):
        assert "a test double" in path.read_text()
