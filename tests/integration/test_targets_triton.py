"""Target `triton` against a strict stand-in: what is written, loaded, proven and brought back."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine_pipeline.targets.port import NothingRuns, Running
from engine_registry.errors import (
    EngineCIError,
    Incompatible,
    InvalidInput,
    JudgedAndRefused,
    NotFound,
    Unavailable,
)
from tests.servers.pbtxt import parameters, parse
from tests.servers.triton import Fault
from tests.unit.targets.gpu_engines import IMAGE
from tests.unit.targets.triton_yard import SEEN_AS, TritonYard
from tests.unit.targets.yard import memory_dir

MODELS = {"preprocessing", "tensorrt_llm", "postprocessing", "tensorrt_llm_bls", "ensemble"}


@pytest.fixture
def fast_dir() -> Iterator[Path]:
    with memory_dir() as folder:
        yield folder


@pytest.fixture
def yard(fast_dir: Path) -> Iterator[TritonYard]:
    yard = TritonYard(fast_dir)
    with yard.serving():
        yield yard


def running(yard: TritonYard) -> Running:
    serves = yard.target().read(deep=True).serves
    assert isinstance(serves, Running)
    return serves


def loads(yard: TritonYard) -> list[str]:
    return [f"{verb} {model}" for verb, model in yard.server.calls]


def test_an_engine_is_served_by_all_five_models_and_answers_by_itself(yard: TritonYard):
    release = yard.engine_release("a")
    yard.promote(release)
    assert yard.deploy().changed
    assert yard.server.versions() == dict.fromkeys(MODELS, 1)
    assert yard.answers() == 1
    assert loads(yard)[-1] == "generate ensemble"
    assert running(yard).deployment.release == release
    assert not yard.drift(deep=True).differences


def test_a_second_deployment_of_the_same_loads_nothing(yard: TritonYard):
    yard.promote(yard.engine_release("a"))
    yard.deploy()
    yard.server.calls.clear()
    assert not yard.deploy().changed
    assert yard.server.calls == []


def test_everything_that_the_engine_decides_is_in_the_configs(yard: TritonYard):
    yard.promote(
        yard.engine_release(
            "a", serving={"kv_cache_free_gpu_memory_fraction": 0.85}, logits_dtype="float16"
        )
    )
    yard.deploy()
    config = parse(yard.config("tensorrt_llm"))
    assert config["backend"] == ["tensorrtllm"]
    assert config["max_batch_size"] == [8]
    assert config["model_transaction_policy"] == [{"decoupled": ["true"]}]
    types = {entry["name"][0]: entry["data_type"][0] for entry in config["input"]}
    assert types["encoder_input_features"] == types["prompt_embedding_table"] == "TYPE_BF16"
    outputs = {entry["name"][0]: entry["data_type"][0] for entry in config["output"]}
    assert outputs["context_logits"] == "TYPE_FP16"
    told = parameters(config)
    engine = running(yard).deployment.engine
    assert told["gpt_model_path"] == f"{SEEN_AS}/engines/{engine.short}"
    assert told["tokenizer_dir"] == f"{SEEN_AS}/engines/{engine.short}/tokenizer"
    assert told["gpt_model_type"] == "inflight_fused_batching"
    assert told["kv_cache_free_gpu_mem_fraction"] == "0.85"
    assert told["max_beam_width"] == "1"
    assert told["exclude_input_in_output"] == "true"
    assert told["enable_kv_cache_reuse"].startswith("${")
    assert told["engine_ci_engine"] == str(engine)
    assert told["engine_ci_release"] == "llama/h100-sxm-80gb:1"


def test_the_logits_are_float32_where_the_engine_does_not_say(yard: TritonYard):
    yard.promote(yard.engine_release("a"))
    yard.deploy()
    assert "TYPE_FP32" in yard.config("ensemble")


def test_a_server_that_is_started_again_serves_the_same(yard: TritonYard):
    yard.promote(yard.engine_release("a"))
    yard.deploy()
    yard.promote(yard.engine_release("b"))
    yard.deploy()
    yard.server.restart()
    assert yard.answers() == 2
    assert not yard.drift().differences


def test_the_next_release_is_loaded_beside_the_old_one_and_nothing_is_taken_off(yard: TritonYard):
    yard.promote(yard.engine_release("a"))
    yard.deploy()
    yard.server.calls.clear()
    yard.promote(yard.engine_release("b"))
    assert yard.deploy().changed
    assert yard.answers() == 2
    assert not [call for call in loads(yard) if call.startswith("unload")]
    assert running(yard).generation == 2


def test_no_request_is_answered_in_the_wrong_tokens(yard: TritonYard):
    yard.promote(yard.engine_release("a", tokenizer="one"))
    yard.deploy()
    yard.promote(yard.engine_release("b", tokenizer="two"))
    seen: list[object] = []
    step = yard.server.on_call = lambda: seen.append(yard.answers())
    assert step
    yard.deploy()
    yard.server.on_call = None
    assert yard.answers() == 2
    assert set(seen) <= {1, 2, "503"}
    assert "503" in seen


def test_a_rollback_is_a_new_generation_with_the_old_engine_and_tokenizer(yard: TritonYard):
    old = yard.engine_release("a", tokenizer="one")
    yard.promote(old)
    yard.deploy()
    yard.promote(yard.engine_release("b", tokenizer="two"))
    yard.deploy()
    yard.roll_back(old)
    yard.deploy()
    assert yard.answers() == 1
    assert running(yard).generation == 3
    yard.server.restart()
    assert yard.answers() == 1


def test_one_gpu_without_room_for_two_replaces_and_says_so_otherwise(fast_dir: Path):
    yard = TritonYard(fast_dir)
    with yard.serving(places=1):
        yard.promote(yard.engine_release("a"))
        yard.deploy()
        yard.promote(yard.engine_release("b"))
        with pytest.raises(JudgedAndRefused, match="OutOfMemory") as caught:
            yard.deploy()
        assert "llama/h100-sxm-80gb:1 is served, as before" in caught.value.message
        assert yard.answers() == 1
        yard.definition["swap"] = "replace"
        assert yard.deploy().changed
        assert yard.answers() == 2


# What goes wrong, in which call, and the reference of the error.
FAILURES = [
    (
        Fault("load", "tensorrt_llm", text="Failed to deserialize cuda engine."),
        "triton-load-failed",
    ),
    (Fault("load", "preprocessing", text="Internal: OSError"), "triton-load-failed"),
    (Fault("load", "tensorrt_llm_bls", text="Internal: KeyError"), "triton-load-failed"),
    (Fault("load", "ensemble", text="ensemble is broken"), "triton-load-failed"),
    (Fault("load", "postprocessing", "ignore"), "triton-read-back-differs"),
    (Fault("generate", "ensemble", "empty"), "triton-prompt-failed"),
    (Fault("generate", "ensemble", text="CUDA error"), "triton-prompt-failed"),
    (Fault("load", "preprocessing", "cut"), "triton-unreachable"),
]


@pytest.mark.parametrize("tokenizer", ["one", "two"])
@pytest.mark.parametrize("swap", ["beside", "replace"])
@pytest.mark.parametrize(
    ("fault", "reference"),
    FAILURES,
    ids=lambda v: f"{v.verb}-{v.model}-{v.kind}" if v and hasattr(v, "verb") else None,
)
def test_whatever_fails_the_old_release_is_served_and_said_to_be(
    fast_dir: Path, fault: Fault, reference: str, swap: str, tokenizer: str
):
    yard = TritonYard(fast_dir, definition={"swap": swap})
    with yard.serving(places=2 if swap == "beside" else 1):
        yard.promote(yard.engine_release("a"))
        yard.deploy()
        yard.promote(yard.engine_release("b", tokenizer=tokenizer))
        yard.server.faults = [Fault(fault.verb, fault.model, fault.kind, fault.text)]
        with pytest.raises(EngineCIError) as caught:
            yard.deploy()
        assert caught.value.name == reference
        assert "llama/h100-sxm-80gb:1 is served, as before" in caught.value.message
        assert yard.answers() == 1
        assert yard.server.versions() == dict.fromkeys(MODELS, 1)
        found = [d.what for d in yard.drift(deep=True).differences]
        assert found == ["release", "release document", "engine"]
        yard.server.restart()
        assert yard.answers() == 1
        # The fault is gone: the same command finishes.
        assert yard.deploy().changed
        assert yard.answers() == 2
        assert running(yard).generation == 3


def test_a_first_deployment_that_fails_leaves_nothing_loaded(yard: TritonYard):
    yard.promote(yard.engine_release("a"))
    yard.server.faults = [Fault("load", "postprocessing", text="no")]
    with pytest.raises(JudgedAndRefused, match="nothing is served, as before"):
        yard.deploy()
    assert yard.server.versions() == {}
    assert isinstance(yard.target().read(deep=False).serves, NothingRuns)
    yard.server.restart()
    assert yard.server.versions() == {}
    assert yard.deploy().changed


def test_going_back_that_fails_too_is_said_plainly(yard: TritonYard):
    yard.promote(yard.engine_release("a"))
    yard.deploy()
    yard.promote(yard.engine_release("b"))
    yard.server.faults = [
        Fault("load", "preprocessing", text="first"),
        Fault("load", "tensorrt_llm", "ignore", times=0),
        Fault("unload", "tensorrt_llm", "cut", times=9),
    ]
    with pytest.raises(Unavailable) as caught:
        yard.deploy()
    assert caught.value.name == "triton-not-restored"
    assert "first" in caught.value.message
    assert "going back to llama/h100-sxm-80gb:1 failed" in caught.value.message
    yard.server.faults.clear()
    yard.server.restart()
    assert yard.answers() == 1
    assert yard.deploy().changed


def test_a_load_that_never_ends_is_given_up_and_the_old_one_brought_back(fast_dir: Path):
    yard = TritonYard(fast_dir, definition={"load_timeout_s": 1})
    with yard.serving():
        yard.promote(yard.engine_release("a"))
        yard.deploy()
        yard.promote(yard.engine_release("b"))
        yard.server.faults = [Fault("load", "tensorrt_llm", "stall")]
        with pytest.raises(Unavailable, match="within 1 s") as caught:
            yard.deploy()
        assert caught.value.name == "triton-not-answering"
        assert yard.answers() == 1


def test_somebody_who_loads_something_else_is_found_and_undone(yard: TritonYard):
    yard.promote(yard.engine_release("a"))
    yard.deploy()
    del yard.server.loaded["postprocessing"]
    (difference,) = yard.drift().differences
    assert difference.what == "running"
    assert "postprocessing" in difference.target
    assert yard.deploy().changed
    assert not yard.drift().differences


def test_a_server_that_lost_everything_is_drift_and_is_brought_back(yard: TritonYard):
    yard.promote(yard.engine_release("a"))
    yard.deploy()
    yard.server.loaded.clear()
    (difference,) = yard.drift().differences
    assert "no model of this target is loaded" in difference.target
    assert yard.deploy().changed
    assert yard.answers() == 1


def test_a_config_that_names_another_engine_is_found(yard: TritonYard):
    yard.promote(yard.engine_release("a"))
    yard.deploy()
    path = yard.place / "current/models/tensorrt_llm/config.pbtxt"
    path.write_text(path.read_text().replace("sha256:", "sha256:0"))
    yard.server.restart()
    (difference,) = yard.drift().differences
    assert "engine sha256:0" in difference.target


def test_a_server_that_cannot_be_asked_is_no_answer(fast_dir: Path):
    yard = TritonYard(fast_dir)
    with yard.serving():
        yard.promote(yard.engine_release("a"))
        yard.deploy()
    with pytest.raises(Unavailable) as caught:
        yard.drift()
    assert caught.value.name == "triton-unreachable"


def test_before_the_first_deployment_there_is_a_repository_to_start_the_server_on(fast_dir: Path):
    yard = TritonYard(fast_dir)
    with yard.serving():
        pass
    yard.promote(yard.engine_release("a"))
    with pytest.raises(Unavailable, match="cannot be reached") as caught:
        yard.deploy()
    assert f"--model-repository={SEEN_AS}/current/models" in caught.value.hint
    assert (yard.place / "current" / "models").is_dir()
    with yard.serving():
        assert yard.deploy().changed


def test_a_server_that_takes_no_orders_is_named_as_such(fast_dir: Path):
    yard = TritonYard(fast_dir)
    with yard.serving(explicit=False):
        yard.promote(yard.engine_release("a"))
        with pytest.raises(InvalidInput, match="does not take orders") as caught:
            yard.deploy()
    assert caught.value.name == "triton-not-explicit"


def test_a_server_on_another_repository_is_named_as_such(yard: TritonYard, fast_dir: Path):
    yard.server.repository = fast_dir / "elsewhere"
    yard.promote(yard.engine_release("a"))
    with pytest.raises(InvalidInput, match="looks at another repository") as caught:
        yard.deploy()
    assert caught.value.name == "triton-other-repository"
    assert SEEN_AS in caught.value.hint


def test_ranks_are_counted_in_the_engine(yard: TritonYard):
    yard.promote(yard.engine_release("a", tensor=2, pipeline=2))
    yard.deploy()
    serve = json.loads((yard.place / "current/serve.json").read_text())
    assert serve["gpus"] == 4
    assert serve["serving_image"] == IMAGE
    assert serve["argv"][:5] == ["mpirun", "--allow-run-as-root", "-n", "1", "tritonserver"]
    assert f"--model-repository={SEEN_AS}/current/models" in serve["argv"]
    assert "--cuda-memory-pool-byte-size=3:0" in serve["argv"]
    assert serve["env"]["TRTLLM_ORCHESTRATOR"] == "1"


def test_one_rank_needs_no_second_process(yard: TritonYard):
    yard.promote(yard.engine_release("a"))
    yard.deploy()
    serve = json.loads((yard.place / "current/serve.json").read_text())
    assert serve["argv"][0] == "tritonserver"
    assert serve["gpus"] == 1
    assert serve["env"] == {}


def test_gpus_may_be_chosen_but_only_as_many_as_there_are_ranks(yard: TritonYard):
    yard.promote(yard.engine_release("a", tensor=2))
    yard.definition["settings"] = {"gpu_device_ids": "4"}
    with pytest.raises(InvalidInput, match=r"names 1 GPU\(s\), the engine has 2 rank\(s\)"):
        yard.deploy()
    yard.definition["settings"] = {"gpu_device_ids": "4,5"}
    yard.deploy()
    assert parameters(parse(yard.config("tensorrt_llm")))["gpu_device_ids"] == "4,5"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"triton_max_batch_size": 64}, "the engine decides it: 8"),
        ({"engine_dir": "/elsewhere"}, "the engine decides it"),
        ({"kv_cache_free_gpu_mem_fraction": 0.5}, "the release decides it: 0.8"),
        ({"enable_kv_cache_resue": True}, "enable_kv_cache_reuse"),
        ({"decoupled_mode": "true }"}, "one word"),
    ],
)
def test_a_setting_that_is_not_the_targets_to_make_is_refused(yard: TritonYard, settings, said):
    yard.promote(yard.engine_release("a", serving={"kv_cache_free_gpu_memory_fraction": 0.8}))
    yard.definition["settings"] = settings
    with pytest.raises(InvalidInput, match=said):
        yard.deploy()
    assert yard.server.versions() == {}


def test_changed_settings_are_drift_and_are_brought_there(yard: TritonYard):
    yard.promote(yard.engine_release("a"))
    yard.deploy()
    yard.definition["settings"] = {"enable_kv_cache_reuse": True}
    assert [d.what for d in yard.drift().differences] == ["target settings"]
    assert yard.deploy().changed
    assert parameters(parse(yard.config("tensorrt_llm")))["enable_kv_cache_reuse"] == "true"
    assert not yard.drift().differences


def test_templates_of_another_image_are_drift(yard: TritonYard):
    yard.promote(yard.engine_release("a"))
    yard.deploy()
    path = yard.templates / "inflight_batcher_llm/preprocessing/1/model.py"
    path.write_text("# of a newer image\n")
    assert [d.what for d in yard.drift().differences] == ["target settings"]
    yard.deploy()
    version = yard.place / "current/models/preprocessing/2/model.py"
    assert version.read_text() == "# of a newer image\n"


def without_ensemble(templates: Path) -> None:
    shutil.rmtree(templates / "inflight_batcher_llm" / "ensemble")


def filled(templates: Path) -> None:
    path = templates / "inflight_batcher_llm" / "tensorrt_llm" / "config.pbtxt"
    path.write_text(path.read_text().replace("${engine_dir}", "/engines/mine"))


def of_a_newer_release(templates: Path) -> None:
    path = templates / "inflight_batcher_llm" / "tensorrt_llm" / "config.pbtxt"
    path.write_text(path.read_text().replace("TYPE_INT32", "${another_data_type}", 1))


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (without_ensemble, NotFound, "/app/all_models"),
        (filled, InvalidInput, "untouched"),
        (of_a_newer_release, InvalidInput, "another_data_type"),
    ],
)
def test_templates_that_are_not_those_of_an_image_are_refused_before_anything_is_told(
    yard: TritonYard, change: Callable[[Path], None], error: type[EngineCIError], said: str
):
    yard.promote(yard.engine_release("a"))
    change(yard.templates)
    with pytest.raises(error) as caught:
        yard.deploy()
    assert said in caught.value.message + caught.value.hint
    assert yard.server.calls == []


def test_another_kind_of_engine_is_refused_with_the_way_out(yard: TritonYard):
    yard.promote(yard.release("a"))
    with pytest.raises(Incompatible, match="cannot serve a llama-cpp") as caught:
        yard.deploy()
    assert "directory" in caught.value.hint


def test_an_engine_without_a_tokenizer_is_refused(yard: TritonYard):
    release = yard.engine_release("a")
    files = {
        path: data for path, data in gpu_files("bare").items() if not path.startswith("tokenizer/")
    }
    content = release.content.model_dump(exclude={"engine", "record"})
    yard.promote(yard.release("bare", files, **content))
    with pytest.raises(Incompatible, match="no tokenizer"):
        yard.deploy()


def gpu_files(name: str) -> dict[str, bytes]:
    from tests.unit.targets.gpu_engines import engine_files

    return engine_files(name)


def test_a_checkpoint_is_served_by_the_llm_api_with_what_was_promoted_with_it(yard: TritonYard):
    yard.promote(
        yard.checkpoint_release(
            "a", tensor=2, serving={"num_postprocess_workers": 4, "log_level": "info"}
        )
    )
    assert yard.deploy().changed
    assert yard.server.versions() == {"tensorrt_llm": 1}
    assert yard.answers() == 1
    place = yard.place / "current/models/tensorrt_llm/1"
    arguments = json.loads((place / "model.yaml").read_text())
    engine = running(yard).deployment.engine
    assert arguments == {
        "backend": "pytorch",
        "kv_cache_config": {"dtype": "auto", "free_gpu_memory_fraction": 0.9},
        "max_batch_size": 8,
        "max_num_tokens": 64,
        "max_seq_len": 128,
        "model": f"{SEEN_AS}/engines/{engine.short}",
        "num_postprocess_workers": 4,
        "pipeline_parallel_size": 1,
        "tensor_parallel_size": 2,
        "tokenizer": f"{SEEN_AS}/engines/{engine.short}",
        "triton_config": {"decoupled": True, "max_batch_size": 0},
    }
    assert (place / "helpers.py").is_file()
    assert json.loads((yard.place / "current/serve.json").read_text())["gpus"] == 2


def test_a_model_moves_from_engine_to_checkpoint_and_back(yard: TritonYard):
    old = yard.engine_release("a")
    yard.promote(old)
    yard.deploy()
    yard.promote(yard.checkpoint_release("b", tokenizer="two"))
    assert yard.deploy().changed
    assert yard.server.versions() == {"tensorrt_llm": 2}
    assert yard.answers() == 2
    yard.roll_back(old)
    assert yard.deploy().changed
    assert yard.server.versions() == dict.fromkeys(MODELS, 3)
    assert yard.answers() == 1


def test_a_checkpoint_that_does_not_load_leaves_the_engine_serving(yard: TritonYard):
    yard.promote(yard.engine_release("a"))
    yard.deploy()
    yard.promote(yard.checkpoint_release("b"))
    yard.server.faults = [Fault("load", "tensorrt_llm", text="CUDA out of memory")]
    with pytest.raises(JudgedAndRefused, match="out of memory"):
        yard.deploy()
    assert yard.server.versions() == dict.fromkeys(MODELS, 1)
    assert yard.answers() == 1


@pytest.mark.parametrize("settings", [{"decoupled_mode": False}, {}])
def test_a_checkpoint_takes_only_settings_that_are_tritons(yard: TritonYard, settings):
    yard.promote(yard.checkpoint_release("a"))
    yard.definition["settings"] = settings
    yard.deploy()
    place = yard.place / "current/models/tensorrt_llm/1/model.yaml"
    wanted = settings.get("decoupled_mode", True)
    assert json.loads(place.read_text())["triton_config"]["decoupled"] is wanted
    yard.definition["settings"] = {"max_batch_size": 64}
    with pytest.raises(InvalidInput, match="promoted with it|decoupled_mode") as caught:
        yard.deploy()
    assert caught.value.name == "setting-unknown"


def test_models_of_other_people_on_the_same_server_stay(yard: TritonYard):
    yard.promote(yard.engine_release("a"))
    yard.deploy()
    other = next(iter(yard.server.loaded.values()))
    yard.server.loaded["resnet"] = other
    yard.promote(yard.engine_release("b", tokenizer="two"))
    yard.deploy()
    assert yard.server.versions()["resnet"] == 1
    assert not yard.drift().differences
