"""What the backend refuses, plans, sees and serves, without running anything."""

from __future__ import annotations

import time

import pytest

from engine_pipeline.backends.llama_cpp import server
from engine_pipeline.backends.llama_cpp.backend import LlamaCppBackend
from engine_pipeline.backends.llama_cpp.quantise import quantise
from engine_pipeline.backends.llama_cpp.recipes import RECIPES
from engine_pipeline.backends.llama_cpp.tokenizer import gguf_tokenizer
from engine_pipeline.backends.port import Backend
from engine_pipeline.build.workshop import BuildBackend
from engine_pipeline.progress import Silent
from engine_registry.digest import Digest
from engine_registry.errors import Incompatible, InvalidInput

BACKEND: BuildBackend = LlamaCppBackend()


def test_it_is_a_backend():
    backend: Backend = BACKEND
    assert backend.kind == "llama-cpp"


@pytest.mark.parametrize(
    ("weights", "recipe"),
    [
        ("fp16", None),
        ("fp16", "f16"),
        ("int8", None),
        ("int8", "q8_0"),
        ("int4", None),
        ("int4", "q4_0"),
        ("int4", "q4_k_m"),
    ],
)
def test_what_it_can_build_passes(toys, weights, recipe):
    BACKEND.check(toys.make_spec(precision={"weights": weights, "recipe": recipe}))


@pytest.mark.parametrize("weights", ["fp8", "bf16", "nvfp4"])
def test_impossible_weights_are_refused_in_milliseconds_and_the_possible_ones_named(toys, weights):
    spec = toys.make_spec(precision={"weights": weights})
    started = time.perf_counter()
    with pytest.raises(Incompatible) as caught:
        BACKEND.check(spec)
    assert time.perf_counter() - started < 0.05
    assert weights in caught.value.message
    for works in ("fp16 (f16)", "int8 (q8_0)", "int4 (q4_1 or q4_0 or q4_k_m)"):
        assert works in caught.value.message


@pytest.mark.parametrize(
    ("changes", "error", "reference", "said"),
    [
        ({"precision__recipe": "q4_1"}, InvalidInput, "unknown-value", "q8_0"),
        ({"precision__kv_cache": "fp8"}, Incompatible, "precision-unsupported", "fp16"),
        ({"precision__allow_fallback": ["q9_9"]}, InvalidInput, "unknown-value", "q5_0"),
        (
            {"target__parallelism": {"tensor": 2}},
            Incompatible,
            "parallelism-unsupported",
            "2 ranks",
        ),
        ({"target__sku": "h100-sxm-80gb"}, Incompatible, "kind-not-on-sku", "h100-sxm-80gb"),
        (
            {"backend__version": "2025.1.1"},
            Incompatible,
            "backend-version-unsupported",
            "2026.10.11549",
        ),
        ({"backend__options": {"flash": True}}, InvalidInput, "field-without-use", "flash"),
        ({"backend__image": "img:1"}, InvalidInput, "field-without-use", "img:1"),
        (
            {"calibration": {"source": "file://c", "revision": "1"}},
            InvalidInput,
            "field-without-use",
            "calibration",
        ),
        ({"serving": {"treads": 2}}, InvalidInput, "unknown-value", "threads, prompt_cache_mib"),
        ({"serving": {"threads": 0}}, InvalidInput, "serving-value-invalid", "from 1"),
        ({"serving": {"threads": "2"}}, InvalidInput, "serving-value-invalid", "'2'"),
        ({"limits__max_batch_tokens": 1}, InvalidInput, "limits-inconsistent", "max_batch_size 2"),
    ],
)
def test_what_cannot_work_is_refused_with_what_can(toys, changes, error, reference, said):
    with pytest.raises(error) as caught:
        BACKEND.check(toys.make_spec(**changes))
    assert caught.value.name == reference
    assert said in caught.value.message


def keys(toys, **changes):
    spec = toys.make_spec(**changes)
    return {step.name: step.key for step in BACKEND.plan(toys.make_lock(spec))}


def test_int8_and_int4_share_fetch_and_convert(toys):
    int8, int4 = keys(toys), keys(toys, precision={"weights": "int4"})
    assert list(int8) == list(int4) == ["fetch", "convert", "quantise"]
    assert int8["fetch"] == int4["fetch"]
    assert int8["convert"] == int4["convert"]
    assert int8["quantise"] != int4["quantise"]


def test_f16_ends_with_convert(toys):
    assert list(keys(toys, precision={"weights": "fp16"})) == ["fetch", "convert"]


@pytest.mark.parametrize(
    "changes",
    [
        {"limits__max_batch_size": 1},
        {"serving": {"threads": 1}},
        {"suites": ["other"]},
        {"model__name": "renamed"},
    ],
)
def test_what_does_not_touch_the_bytes_repeats_no_step(toys, changes):
    assert keys(toys, **changes) == keys(toys)


@pytest.mark.parametrize(
    ("tool", "repeated"),
    [
        ("gguf", {"convert", "quantise"}),
        ("engine-ci/convert", {"convert", "quantise"}),
        ("libgguf", {"quantise"}),
        ("engine-ci/quantise", {"quantise"}),
    ],
)
def test_a_new_tool_repeats_exactly_what_it_touches(toys, tool, repeated):
    lock = toys.make_lock(toys.make_spec())
    newer = lock.model_copy(update={"tools": lock.tools | {tool: "999"}})
    before = {step.name: step.key for step in BACKEND.plan(lock)}
    after = {step.name: step.key for step in BACKEND.plan(newer)}
    assert {name for name in before if before[name] != after[name]} == repeated


def test_a_moved_repository_with_the_same_files_repeats_nothing(toys):
    assert keys(toys, model__source="hf://some/where") == keys(toys)


def test_a_lock_that_does_not_name_a_tool_is_refused(toys):
    lock = toys.make_lock(toys.make_spec(), tools={"gguf": "1"})
    with pytest.raises(InvalidInput, match="engine-ci/convert, numpy"):
        BACKEND.plan(lock)


def test_commands_are_lists_with_placeholders_and_only_fetching_reaches_the_network(toys):
    fetch, convert, quantise_step = BACKEND.plan(toys.make_lock(toys.make_spec()))
    assert (fetch.network, convert.network, quantise_step.network) == (True, False, False)
    assert fetch.outputs == ("toy.gguf",)
    assert convert.inputs == ("fetch",)
    assert quantise_step.argv[:3] == (
        "{python}",
        "-m",
        "engine_pipeline.backends.llama_cpp.quantise",
    )
    assert "{input:convert}/model.gguf" in quantise_step.argv
    assert "HF_TOKEN" in fetch.env
    assert not convert.env


def test_tools_name_every_version_that_decides_bytes():
    tools = BACKEND.tools()
    assert set(tools) == {"engine-ci/convert", "engine-ci/quantise", "gguf", "libgguf", "numpy"}
    assert all(tools.values())
    assert BACKEND.runtime().keys() == {"xllamacpp"}


@pytest.fixture
def engine_dir(tmp_path, toys):
    toys.write_gguf(tmp_path / "f16.gguf", toys.Toy())
    directory = tmp_path / "engine"
    directory.mkdir()
    quantise(RECIPES["q8_0"], (), tmp_path / "f16.gguf", directory / "model.gguf", Silent())
    return directory


def locked(toys, engine_dir, **changes):
    """A lock whose tokenizer is that of the engine."""
    digest, template = gguf_tokenizer(engine_dir / "model.gguf")
    spec = toys.make_spec(**changes)
    return toys.make_lock(spec, tokenizer={"digest": digest, "chat_template": template})


def test_inspect_reads_what_the_file_holds(engine_dir, toys):
    facts = BACKEND.inspect(engine_dir)
    toy = toys.Toy()
    assert facts.architecture == "llama"
    assert facts.format_version == "3"
    assert facts.tensor_types == {"Q8_0": 15, "F32": 5}
    assert facts.parameters == sum(values.size for values in toy.weights.values())
    assert facts.context_tokens == 512
    assert facts.chat_template == Digest.of(toys.template.encode())
    assert [file.path for file in facts.files] == ["model.gguf"]
    assert facts.details["recipe"] == "q8_0"
    assert facts.details["fallbacks"] == []


def test_inspect_works_on_a_bare_directory_with_one_model_of_any_name(tmp_path, toys):
    toys.write_gguf(tmp_path / "whatever.gguf", toys.Toy())
    assert BACKEND.inspect(tmp_path).files[0].path == "whatever.gguf"
    toys.write_gguf(tmp_path / "second.gguf", toys.Toy())
    with pytest.raises(InvalidInput, match="second.gguf, whatever.gguf"):
        BACKEND.inspect(tmp_path)


def test_an_engine_as_locked_has_no_mismatch(engine_dir, toys):
    assert BACKEND.compare(locked(toys, engine_dir), BACKEND.inspect(engine_dir)) == ()


def mismatches(toys, engine_dir, lock=None, **changes):
    lock = lock or locked(toys, engine_dir, **changes)
    return {m.what: m for m in BACKEND.compare(lock, BACKEND.inspect(engine_dir))}


def test_an_engine_of_another_recipe_is_shown_with_both_sides(engine_dir, toys):
    found = mismatches(toys, engine_dir, precision={"weights": "int4"})
    assert list(found) == ["recipe"]
    assert (found["recipe"].wanted, found["recipe"].found) == ("q4_1", "q8_0")


def test_a_context_shorter_than_the_limits_is_shown(engine_dir, toys):
    found = mismatches(toys, engine_dir, limits__max_sequence_tokens=4096)
    assert found["context"].found == "512 tokens"
    assert "4096" in found["context"].wanted


def test_another_tokenizer_or_template_than_locked_is_shown(engine_dir, toys):
    lock = toys.make_lock(toys.make_spec())
    assert set(mismatches(toys, engine_dir, lock)) == {"tokenizer", "chat template"}


def test_a_checkpoints_tokenizer_is_compared_by_template_only(engine_dir, toys):
    _, template = gguf_tokenizer(engine_dir / "model.gguf")
    tokenizer = {"digest": "sha256:" + "b" * 64, "chat_template": template}
    lock = toys.make_lock(toys.make_spec(), "model.safetensors", tokenizer=tokenizer)
    assert mismatches(toys, engine_dir, lock) == {}


@pytest.fixture
def fallen_back(engine_dir):
    quantise(
        RECIPES["q4_k_m"],
        ("q5_0", "q8_0"),
        engine_dir.parent / "f16.gguf",
        engine_dir / "model.gguf",
        Silent(),
    )
    return engine_dir


def test_a_fallback_is_shown_and_fails_unless_allowed(fallen_back, toys):
    precision = {"weights": "int4", "recipe": "q4_k_m"}
    found = mismatches(toys, fallen_back, precision=precision)
    assert "Q5_0 instead of Q4_K" in found["tensor types"].found or (
        "Q8_0 instead of Q6_K" in found["tensor types"].found
    )
    allowed = precision | {"allow_fallback": ["q5_0", "q8_0"]}
    assert mismatches(toys, fallen_back, precision=allowed) == {}
    half = precision | {"allow_fallback": ["q5_0"]}
    assert (
        "Q8_0 instead of Q6_K"
        in mismatches(toys, fallen_back, precision=half)["tensor types"].found
    )


def test_a_file_that_only_claims_its_type_is_found_out(engine_dir, toys):
    toys.write_gguf(engine_dir / "model.gguf", toys.Toy(), "Q4_0", file_type=7)
    found = mismatches(toys, engine_dir)
    assert "Q4_0 instead of Q8_0" in found["tensor types"].found


def test_the_server_is_told_limits_serving_and_runtime(engine_dir, toys):
    spec = toys.make_spec(serving={"threads": 3})
    config = {"limits": spec.limits.model_dump(mode="json"), "serving": spec.serving}
    facts = BACKEND.inspect(engine_dir).model_copy(update={"runtime": {"xllamacpp": "1.2.3"}})
    command = BACKEND.serve(facts, config)
    argv = dict(zip(command.argv[3::2], command.argv[4::2], strict=True))
    assert argv == {
        "--model": "{engine}/model.gguf",
        "--port": "{port}",
        "--slots": "2",
        "--context": "256",
        "--batch-tokens": "512",
        "--alias": "engine",
        "--runtime": "1.2.3",
        "--threads": "3",
    }
    assert command.request_extra == {"cache_prompt": False}
    assert command.model_name == "engine"


def test_another_runtime_than_released_for_is_refused_with_both_versions():
    with pytest.raises(Incompatible) as caught:
        server.check_runtime("1.0")
    assert caught.value.name == "runtime-version-differs"
    assert "1.0" in caught.value.message
    assert BACKEND.runtime()["xllamacpp"] in caught.value.message


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (8, 7)])
def test_the_server_leaves_one_core_to_others(monkeypatch, cores, threads):
    monkeypatch.setattr(server, "usable_cores", lambda: cores)
    assert server.default_threads() == threads
