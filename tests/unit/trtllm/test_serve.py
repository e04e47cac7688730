"""The command that serves an engine: per release, and against the stand-in's server."""

from __future__ import annotations

import json
import shutil

import pytest

from engine_pipeline.backends.trtllm.build_flags import build_versions
from engine_pipeline.backends.trtllm.failures import explain_load, load_warnings
from engine_registry.errors import Incompatible, InvalidInput
from tests.standin.install import facts_of
from tests.standin.toolchain.serve import parse
from tests.unit.trtllm.conftest import DidNotLoad, make_bench
from tests.unit.trtllm.models import spec
from tests.unit.trtllm.test_build_flow import BACKEND, Story

RUNTIME = {"limits": {}, "serving": {}}


@pytest.fixture
def engine(tmp_path, bench):
    """An engine of 1.2.1 with two ranks, and the bench it was built on."""
    built = bench()
    directory = Story(tmp_path, target__parallelism={"tensor": 2}).build(built)
    return directory, built


@pytest.fixture(scope="module")
def facts(tmp_path_factory):
    """What such an engine says, for tests that only read it."""
    root = tmp_path_factory.mktemp("engine")
    return BACKEND.inspect(Story(root, target__parallelism={"tensor": 2}).build(make_bench(root)))


def command(engine_dir, **serving_settings):
    facts = BACKEND.inspect(engine_dir)
    return BACKEND.serve(facts, RUNTIME | {"serving": serving_settings})


@pytest.mark.parametrize("version", build_versions())
def test_every_release_takes_the_command_that_is_made_for_it(facts, monkeypatch, version):
    facts = facts.model_copy(update={"runtime": facts.runtime | {"tensorrt_llm": version}})
    serve = BACKEND.serve(facts, RUNTIME)
    words = [w.replace("{port}", "8000").replace("{host}", "127.0.0.1") for w in serve.argv]
    monkeypatch.setattr("sys.argv", words)
    parsed = parse(facts_of(version)["serve"]["flags"])
    assert parsed.tokenizer == "{engine}/tokenizer"
    # From 1.0 on PyTorch is the default, and an engine is not recognised by itself.
    assert getattr(parsed, "backend", None) == (None if version.startswith("0.") else "tensorrt")
    assert serve.env["HF_HUB_OFFLINE"] == "1"


def test_the_number_of_boards_comes_from_the_engine(facts):
    serve = BACKEND.serve(facts, RUNTIME)
    assert serve.gpus == 2
    assert not [word for word in serve.argv if "tp_size" in word or "pp_size" in word]


def test_an_engine_is_loaded_and_asked(engine, started):
    directory, built = engine
    serve = command(directory, **{"kv-cache-free-gpu-memory-fraction": 0.5, "log-level": "warning"})
    with started(serve, directory, built) as server:
        assert server.get("/health_generate") == (200, "")
        assert json.loads(server.get("/version")[1]) == {"version": "1.2.1"}
        models = json.loads(server.get("/v1/models")[1])["data"]
        assert models[0]["owned_by"] == "tensorrt_llm"
        status, text = server.chat(max_tokens=3, temperature=0)
        assert status == 200
        assert json.loads(text)["choices"][0]["message"]["content"] == "The stand-in heard:"
        status, text = server.chat(stream=True, stream_options={"include_usage": True})
        assert text.rstrip().endswith("data: [DONE]")
        assert '"usage"' in text
        status, text = server.chat(cache_prompt=False)
        assert (status, "cache_prompt" in text) == (400, True)
        # Iteration statistics are emptied by reading them.
        assert json.loads(server.get("/metrics")[1])
        assert json.loads(server.get("/metrics")[1]) == []


@pytest.mark.parametrize(
    ("settings", "reference"),
    [
        ({"board": "NVIDIA L40S"}, "other-compute-capability"),
        (
            {"fail": {"trtllm-serve": "say"}, "message": "Assertion failed: d == a + length"},
            "other-tensorrt-llm",
        ),
        (
            {"fail": {"trtllm-serve": "say"}, "message": "Failed to allocate memory for weights."},
            "weights-do-not-fit",
        ),
    ],
)
def test_a_load_that_fails_is_explained(engine, started, settings, reference):
    directory, built = engine
    built.installed.set(**settings)
    with pytest.raises(DidNotLoad) as failed, started(command(directory), directory, built):
        pass
    error = explain_load("engine", str(failed.value).splitlines())
    assert error is not None
    assert error.name == reference


def test_another_tensorrt_than_the_plans_is_explained(engine, started):
    directory, built = engine
    serve = command(directory)
    for rank in range(2):
        path = directory / f"rank{rank}.engine"
        data = bytearray(path.read_bytes())
        data[24:28] = bytes((10, 13, 3, 9))
        path.write_bytes(data)
    with pytest.raises(DidNotLoad) as failed, started(serve, directory, built):
        pass
    error = explain_load("engine", str(failed.value).splitlines())
    assert error is not None
    assert error.name == "other-tensorrt"


def test_another_board_of_the_same_capability_loads_with_a_warning(engine, started):
    directory, built = engine
    built.installed.set(board="NVIDIA H200")
    with started(command(directory), directory, built) as server:
        assert [warning.name for warning in load_warnings(server.log())] == ["other-board"]


def test_an_engine_without_weights_or_tokenizer_is_not_served(tmp_path, bench):
    story = Story(tmp_path, backend__options={"strip-plan": True})
    directory = story.build(bench())
    bare = BACKEND.inspect(directory.parent / "compile")
    with pytest.raises(Incompatible) as error:
        BACKEND.serve(bare, RUNTIME)
    assert error.value.name == "engine-not-refitted"
    shutil.rmtree(directory / "tokenizer")
    with pytest.raises(Incompatible) as error:
        BACKEND.serve(BACKEND.inspect(directory), RUNTIME)
    assert error.value.name == "tokenizer-missing"


def test_a_release_without_the_engine_runtime_does_not_serve_one(facts):
    facts = facts.model_copy(update={"runtime": {"tensorrt_llm": "1.3.0"}})
    with pytest.raises(Incompatible) as error:
        BACKEND.serve(facts, RUNTIME)
    assert error.value.name == "release-cannot-serve-engines"


@pytest.mark.parametrize(
    ("version", "settings", "reference"),
    [
        ("1.2.1", {"max-batch-size": 4}, "unknown-value"),
        ("1.2.1", {"kv-cache-free-gpu-memory-fraction": 1.5}, "serving-value-invalid"),
        ("1.2.1", {"kv-cache-free-gpu-memory-fraction": True}, "serving-value-invalid"),
        ("1.2.1", {"log-level": "loud"}, "serving-value-invalid"),
        ("0.21.0", {"log-level": "info"}, "unknown-value"),
    ],
)
def test_serving_settings_are_those_of_the_release(version, settings, reference):
    with pytest.raises(InvalidInput) as error:
        BACKEND.check(spec(backend__version=version, serving=settings))
    assert error.value.name == reference
