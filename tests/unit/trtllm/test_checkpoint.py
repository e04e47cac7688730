"""Kind trtllm-checkpoint: a pre-quantised checkpoint is checked, put together, and served."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from engine_pipeline.backends.checkpoint import assemble
from engine_pipeline.backends.checkpoint.backend import CheckpointBackend
from engine_pipeline.spec.lock_file import write_lock
from engine_pipeline.yaml_file import load_yaml
from engine_registry.errors import EngineCIError, Incompatible, InvalidInput
from tests.standin.install import facts_of
from tests.standin.toolchain.serve import parse, read_yaml
from tests.unit.trtllm.conftest import DidNotLoad, StepFailed
from tests.unit.trtllm.models import CALIBRATION, DIGEST, LLAMA_70B, lock, spec, toy_config
from tests.unit.trtllm.models import write_model as write_plain_model

BACKEND = CheckpointBackend()
EXAMPLES = Path(__file__).parents[2] / "data/trtllm/facts/checkpoint_config_examples"
IMAGE = "nvcr.io/nvidia/tensorrt-llm/release:1.2.1"


def example(name):
    return json.loads((EXAMPLES / f"{name}.json").read_text())["config"]


def checkpoint_spec(version="1.2.1", weights="nvfp4", kv_cache="fp8", **changes):
    backend = {"kind": "trtllm-checkpoint", "version": version, "image": IMAGE, "options": {}}
    return spec(
        **{
            "target__sku": "b200-sxm-180gb",
            "precision": {"weights": weights, "kv_cache": kv_cache},
            "backend": backend | changes.pop("backend", {}),
        }
        | changes
    )


def write_checkpoint(directory, quantisation="nvfp4", *, inside=None, config=None):
    """A toy in Hugging Face's layout with ModelOpt's files beside it."""
    config = (config or toy_config("llama")) | (inside or {})
    files = write_plain_model(directory, config)
    if quantisation is not None:
        content = json.dumps(example(f"hf_quant_config_{quantisation}")).encode()
        files["hf_quant_config.json"] = content
        (directory / "hf_quant_config.json").write_bytes(content)
    return files


@pytest.fixture
def story(tmp_path, bench):
    """Writes a checkpoint, locks and builds it: lock, engine directory."""

    def build(wanted, quantisation="nvfp4", **checkpoint):
        source = tmp_path / "source"
        files = write_checkpoint(source, quantisation, **checkpoint)
        config = json.loads(files["config.json"])
        BACKEND.check(wanted)
        made = lock(wanted, config, files, image=wanted.backend.image)
        made_bench = bench()
        write_lock(made, made_bench.lock_path)
        return made, made_bench.run(BACKEND.plan(made), fetch=source)

    return build


def test_what_is_built_is_what_the_lock_asks_for(story):
    made, engine = story(checkpoint_spec())
    facts = BACKEND.inspect(engine)
    assert BACKEND.compare(made, facts) == ()
    assert facts.runtime == {"tensorrt_llm": "1.2.1"}
    assert facts.details["quantisation"] == "NVFP4"
    assert facts.details["group_size"] == 16
    assert facts.details["producer"] == "modelopt 0.40.0"
    assert facts.details["image"] == DIGEST
    assert facts.tensor_types == {"U8": 1}


def test_the_image_and_the_serving_settings_are_part_of_the_engine(story):
    _, engine = story(checkpoint_spec())
    assert json.loads((engine / "runtime.json").read_text())["image"] == DIGEST
    served, _ = load_yaml(engine / "serving.yaml")
    assert served["max_num_tokens"] == 2048
    assert served["kv_cache_config"] == {
        "dtype": "fp8",
        "enable_block_reuse": True,
        "free_gpu_memory_fraction": 0.9,
    }
    assert served == read_yaml(engine / "serving.yaml")
    paths = {file.path for file in BACKEND.inspect(engine).files}
    assert {"runtime.json", "serving.yaml", "config.json", "model.safetensors"} <= paths


def test_settings_that_change_what_is_served_change_the_step(tmp_path):
    files = write_checkpoint(tmp_path / "source")
    config = json.loads(files["config.json"])

    def key(**changes):
        made = lock(checkpoint_spec(**changes), config, files, image=IMAGE)
        return BACKEND.plan(made)[-1].key

    plain = key()
    assert key(backend={"options": {"block-reuse": False}}) != plain
    assert key(limits__max_batch_tokens=1024) != plain
    assert key(serving={"log-level": "warning"}) == plain


class TestPrecision:
    """hf_quant_config.json and config.json are read, and held against the spec."""

    def refused(self, story, wanted, reference, *args, **checkpoint):
        with pytest.raises((StepFailed, EngineCIError)) as error:
            story(wanted, *args, **checkpoint)
        said = str(error.value)
        name = getattr(error.value, "name", None)
        assert name == reference or f'"reference": "{reference}"' in said
        return said

    def test_of_other_weights_stops_the_build_before_anything_is_stored(self, story):
        said = self.refused(
            story, checkpoint_spec(), "checkpoint-precision-differs", quantisation="fp8"
        )
        assert "weights: spec NVFP4, checkpoint FP8" in said

    def test_of_another_cache_too(self, story):
        said = self.refused(story, checkpoint_spec(kv_cache="bf16"), "checkpoint-precision-differs")
        assert "KV cache: spec not quantised, checkpoint FP8" in said

    def test_that_is_none_is_known_before_the_download(self, story):
        wanted = checkpoint_spec(weights="bf16", kv_cache="bf16")
        said = self.refused(story, wanted, "checkpoint-precision-differs")
        assert "the source is quantised" in said

    def test_that_should_be_there_is_known_before_the_download(self, story):
        said = self.refused(story, checkpoint_spec(), "checkpoint-precision-differs", None)
        assert "the source is not quantised" in said

    def test_of_another_tool_is_known_before_the_download(self, story):
        inside = {"quantization_config": {"quant_method": "compressed-tensors"}}
        said = self.refused(
            story, checkpoint_spec(), "checkpoint-quantised-otherwise", None, inside=inside
        )
        assert "compressed-tensors" in said

    def test_in_config_json_alone_is_enough(self, story):
        inside = example("hf_config_quantization_config_fp8")
        made, engine = story(checkpoint_spec(weights="fp8"), None, inside=inside)
        assert BACKEND.compare(made, BACKEND.inspect(engine)) == ()

    def test_that_two_files_contradict_is_refused(self, story):
        inside = example("hf_config_quantization_config_fp8")
        said = self.refused(story, checkpoint_spec(), "checkpoint-contradicts", inside=inside)
        assert "NVFP4" in said
        assert "FP8" in said

    def test_of_unquantised_weights_is_their_type(self, story):
        made, engine = story(checkpoint_spec(weights="bf16", kv_cache="bf16"), None)
        assert BACKEND.compare(made, BACKEND.inspect(engine)) == ()
        said = self.refused(
            story,
            checkpoint_spec(weights="fp16", kv_cache="fp16"),
            "checkpoint-precision-differs",
            None,
        )
        assert "activations: spec float16, checkpoint bfloat16" in said


class TestRefusedSpecs:
    @pytest.mark.parametrize(
        ("changes", "reference"),
        [
            ({"version": "0.21.0"}, "backend-version-unsupported"),
            ({"version": "1.2.2"}, "backend-version-unsupported"),
            ({"weights": "int8", "kv_cache": "bf16"}, "precision-unsupported"),
            ({"target__sku": "h100-sxm-80gb"}, "precision-not-on-sku"),
            ({"weights": "bf16", "kv_cache": "fp16"}, "precision-contradicts"),
            ({"calibration": CALIBRATION}, "field-without-use"),
            ({"limits__max_batch_tokens": 4}, "limits-inconsistent"),
            ({"backend": {"options": {"gemm-plugin": "auto"}}}, "unknown-value"),
            ({"backend": {"options": {"guided-decoding": "regex"}}}, "option-value-invalid"),
            ({"backend": {"options": {"kv-cache-fraction": 2}}}, "option-value-invalid"),
            ({"serving": {"max-batch-size": 4}}, "unknown-value"),
            ({"serving": {"log-level": "loud"}}, "serving-value-invalid"),
        ],
    )
    def test_name_what_would_work(self, changes, reference):
        with pytest.raises(EngineCIError) as error:
            BACKEND.check(checkpoint_spec(**changes))
        assert error.value.name == reference
        assert error.value.hint

    def test_of_a_scheme_that_the_board_cannot(self):
        wanted = spec(
            target__sku="a100-sxm-80gb",
            precision={"weights": "int4", "kv_cache": "fp16", "recipe": "w4a8_awq"},
            backend__kind="trtllm-checkpoint",
        )
        with pytest.raises(Incompatible) as error:
            BACKEND.check(wanted)
        assert error.value.name == "recipe-not-on-sku"

    def test_that_would_not_fit_the_board(self, tmp_path):
        files = write_checkpoint(tmp_path / "source", None, config=LLAMA_70B)
        wanted = checkpoint_spec(weights="bf16", kv_cache="bf16", target__sku="h100-sxm-80gb")
        with pytest.raises(Incompatible) as error:
            BACKEND.plan(lock(wanted, LLAMA_70B, files))
        assert error.value.name == "does-not-fit-memory"

    def test_of_a_source_with_files_of_our_names(self, tmp_path):
        files = write_checkpoint(tmp_path / "source") | {"serving.yaml": b"x: 1"}
        with pytest.raises(InvalidInput) as error:
            BACKEND.plan(lock(checkpoint_spec(), toy_config("llama"), files))
        assert error.value.name == "source-file-clashes"


class TestInspect:
    def refused(self, directory, reference):
        with pytest.raises(InvalidInput) as error:
            BACKEND.inspect(directory)
        assert error.value.name == reference
        return error.value.message

    def test_reads_a_bare_checkpoint_which_names_no_release(self, tmp_path):
        write_checkpoint(tmp_path / "bare")
        facts = BACKEND.inspect(tmp_path / "bare")
        assert facts.runtime == {}
        with pytest.raises(Incompatible) as error:
            BACKEND.serve(facts, {})
        assert error.value.name == "release-unknown"

    def test_names_a_shard_that_is_cut_off(self, tmp_path):
        write_checkpoint(tmp_path / "bare")
        path = tmp_path / "bare" / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-10])
        said = self.refused(tmp_path / "bare", "engine-truncated")
        assert "model.safetensors is truncated" in said

    def test_names_a_shard_that_ends_in_its_header(self, tmp_path):
        write_checkpoint(tmp_path / "bare")
        path = tmp_path / "bare" / "model.safetensors"
        path.write_bytes(path.read_bytes()[:30])
        self.refused(tmp_path / "bare", "engine-truncated")

    def test_names_shards_of_the_index_that_are_not_there(self, tmp_path):
        write_checkpoint(tmp_path / "bare")
        index = {"weight_map": {"weights": "model.safetensors", "more": "model-2.safetensors"}}
        (tmp_path / "bare" / "model.safetensors.index.json").write_text(json.dumps(index))
        assert "model-2" in self.refused(tmp_path / "bare", "engine-incomplete")

    def test_names_what_is_no_shard(self, tmp_path):
        write_checkpoint(tmp_path / "bare")
        (tmp_path / "bare" / "model.safetensors").write_bytes(b"PK\x03\x04" + bytes(40))
        self.refused(tmp_path / "bare", "engine-foreign")

    def test_names_an_engine_and_an_empty_directory(self, tmp_path):
        self.refused(tmp_path, "engine-empty")
        (tmp_path / "config.json").write_text(json.dumps({"pretrained_config": {}}))
        assert "trtllm-engine" not in self.refused(tmp_path, "engine-foreign")

    def test_does_not_believe_a_hostile_header(self, tmp_path):
        write_checkpoint(tmp_path / "bare")
        path = tmp_path / "bare" / "model.safetensors"
        path.write_bytes((1 << 60).to_bytes(8, "little") + b"{}")
        self.refused(tmp_path / "bare", "engine-foreign")


class TestServe:
    @pytest.mark.parametrize("version", ["1.0.0", "1.2.1", "1.3.0rc20", "1.3.0rc24", "1.3.0"])
    def test_every_release_takes_the_command_that_is_made_for_it(self, story, monkeypatch, version):
        _, engine = story(checkpoint_spec(version))
        serve = BACKEND.serve(BACKEND.inspect(engine), {"serving": {"log-level": "warning"}})
        monkeypatch.setattr("sys.argv", [w.replace("{port}", "1") for w in serve.argv])
        parsed = parse(facts_of(version)["serve"]["flags"])
        given = getattr(parsed, "extra_llm_api_options", None)
        assert given == "{engine}/serving.yaml"
        assert parsed.backend == "pytorch"
        assert not [word for word in serve.argv if word.startswith("--max_")]

    def test_the_server_reads_the_settings_and_answers(self, story, bench, started):
        _, engine = story(checkpoint_spec(target__parallelism={"tensor": 2}))
        serve = BACKEND.serve(BACKEND.inspect(engine), {})
        assert serve.gpus == 2
        with started(serve, engine, bench()) as server:
            assert server.chat(max_tokens=4)[0] == 200

    def test_the_server_refuses_a_setting_that_it_does_not_know(self, story, bench, started):
        _, engine = story(checkpoint_spec())
        path = engine / "serving.yaml"
        path.chmod(0o644)
        path.write_text(path.read_text() + "max_batchsize: 4\n")
        serve = BACKEND.serve(BACKEND.inspect(engine), {})
        with pytest.raises(DidNotLoad, match="max_batchsize"), started(serve, engine, bench()):
            pass


def test_a_changed_serving_file_is_found(story):
    made, engine = story(checkpoint_spec())
    path = engine / "serving.yaml"
    path.chmod(0o644)
    path.write_text(path.read_text().replace("2048", "4096"))
    found = BACKEND.compare(made, BACKEND.inspect(engine))
    assert [(m.what, m.wanted, m.found) for m in found] == [
        ("serving.yaml: max_num_tokens", "2048", "4096")
    ]


def test_the_step_is_a_program_of_its_own(capsys, tmp_path):
    with pytest.raises(SystemExit):
        assemble.main(["--help"])
    assert "--lock" in capsys.readouterr().out


class TestWords:
    """What the server says when a checkpoint does not load."""

    @pytest.mark.parametrize(
        ("line", "reference"),
        [
            ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate", "gpu-memory-short"),
            ("RuntimeError: no CUDA-capable device is detected", "no-gpu"),
            ("kv_cache: Extra inputs are not permitted [type=extra]", "serving-setting-unknown"),
        ],
    )
    def test_that_are_known_say_what_is_wrong(self, line, reference):
        error = CheckpointBackend().words.load_error("engine", ["loading", line, "Traceback"])
        assert error is not None
        assert error.name == reference
        assert line in error.message

    def test_that_are_not_known_say_nothing(self):
        words = CheckpointBackend().words
        assert words.load_error("engine", ["Segmentation fault"]) is None
        assert words.load_warnings(["Segmentation fault"]) == ()
        assert words.step_error("fetch", ["CUDA out of memory"]) is None
