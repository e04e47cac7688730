from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_pipeline.sources.port import Purpose
from engine_pipeline.sources.rules import is_code, is_pickle, is_weights, select_files
from engine_registry.errors import EngineCIError, InvalidInput, NotFound

CHECKPOINT = [
    ".gitattributes",
    "README.md",
    "config.json",
    "generation_config.json",
    "model-00001-of-00002.safetensors",
    "model-00002-of-00002.safetensors",
    "model.safetensors.index.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
]


def taken(paths: list[str], **options: object) -> list[str]:
    return list(select_files(paths, name="hf://o/m", **options).paths)  # type: ignore[arg-type]


def refusal(paths: list[str], **options: object) -> EngineCIError:
    with pytest.raises(EngineCIError) as caught:
        taken(paths, **options)
    assert caught.value.message.startswith("hf://o/m: ")
    return caught.value


def test_a_checkpoint_gives_weights_index_configuration_and_tokenizer() -> None:
    assert taken(CHECKPOINT) == [p for p in CHECKPOINT if p not in {".gitattributes", "README.md"}]


def test_files_of_subdirectories_are_left_alone_by_default() -> None:
    assert taken([*CHECKPOINT, "onnx/model.safetensors", "onnx/config.json"]) == taken(CHECKPOINT)


def test_safetensors_go_before_gguf_and_before_their_own_second_copy() -> None:
    more = ["m.Q4_K_M.gguf", "consolidated.safetensors", "params.json"]
    assert taken([*CHECKPOINT, *more]) == sorted([*taken(CHECKPOINT), "params.json"])
    assert taken(["consolidated.safetensors", "params.json"]) == [
        "consolidated.safetensors",
        "params.json",
    ]


def test_pickle_weights_beside_safetensors_are_left_out_and_said() -> None:
    selection = select_files([*CHECKPOINT, "pytorch_model.bin"], name="hf://o/m")
    assert "pytorch_model.bin" not in selection.paths
    assert selection.notes == ("pytorch_model.bin: left out, pickle",)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.PT", "a.pth", "x.ckpt", "w.pkl"])
def test_a_source_with_pickle_weights_alone_is_refused_by_name(name: str) -> None:
    error = refusal(["config.json", name])
    assert isinstance(error, InvalidInput)
    assert error.name == "pickle-weights-refused"
    assert name in error.message


@pytest.mark.parametrize("patterns", [("*.bin",), ("pytorch_model.bin", "config.json"), ("*",)])
def test_no_pattern_takes_pickle(patterns: tuple[str, ...]) -> None:
    assert refusal(["config.json", "pytorch_model.bin"], patterns=patterns).name == (
        "pickle-weights-refused"
    )


def test_a_pattern_for_everything_leaves_pickle_out() -> None:
    paths = [*CHECKPOINT, "pytorch_model.bin", "optimizer.pt"]
    assert taken(paths, patterns=("*",)) == sorted(CHECKPOINT)


def test_a_source_without_weights_is_refused_with_what_it_has() -> None:
    error = refusal(["README.md", "config.json"])
    assert error.name == "source-has-no-weights"
    assert "README.md, config.json" in error.message


def test_one_gguf_model_is_taken_whole() -> None:
    split = ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]
    assert taken([*split, "README.md"]) == split


def test_several_gguf_models_are_refused_until_one_is_named() -> None:
    models = ["m.Q4_0.gguf", "m.Q8_0.gguf"]
    error = refusal(models)
    assert error.name == "source-ambiguous"
    assert "m.Q4_0.gguf, m.Q8_0.gguf" in error.message
    assert taken(models, patterns=("*Q8_0.gguf",)) == ["m.Q8_0.gguf"]


def test_patterns_take_exactly_what_they_match() -> None:
    paths = [*CHECKPOINT, "sub/model.safetensors"]
    assert taken(paths, patterns=("sub/*",)) == ["sub/model.safetensors"]
    assert taken(paths, patterns=("*.safetensors",)) == [
        p for p in sorted(paths) if p.endswith(".safetensors")
    ]


def test_a_pattern_that_matches_nothing_is_an_error() -> None:
    error = refusal(CHECKPOINT, patterns=("config.json", "*.gguff"))
    assert isinstance(error, NotFound)
    assert "*.gguff" in error.message


@pytest.mark.parametrize(
    ("options", "reference"),
    [
        ({}, "code-refused"),
        ({"pinned": True}, "code-refused"),
        ({"allow_code": True}, "code-not-pinned"),
        ({"patterns": ("*",)}, "code-refused"),
    ],
)
def test_code_is_refused_unless_the_spec_opts_in_at_a_commit(
    options: dict[str, object], reference: str
) -> None:
    error = refusal([*CHECKPOINT, "modeling_x.py"], **options)
    assert error.name == reference
    assert "modeling_x.py" in error.message


def test_code_that_was_opted_into_is_taken_and_so_pinned() -> None:
    assert "modeling_x.py" in taken([*CHECKPOINT, "modeling_x.py"], allow_code=True, pinned=True)


def test_code_that_no_loader_runs_is_no_reason_to_refuse() -> None:
    assert taken([*CHECKPOINT, "scripts/convert.py", "build.sh"]) == taken(CHECKPOINT)
    assert taken([*CHECKPOINT, "x.py"], patterns=("*.safetensors",)) == [
        p for p in CHECKPOINT if p.endswith(".safetensors")
    ]


@pytest.mark.parametrize(
    "path", ["../x.gguf", "/x.gguf", "a/../../x.gguf", "a\\x.gguf", "a//x.gguf", "x\n.gguf", "-x"]
)
def test_a_name_that_could_leave_the_directory_is_refused(path: str) -> None:
    assert refusal([*CHECKPOINT, path]).name == "source-path-unsafe"


def test_calibration_takes_data_and_no_notes() -> None:
    paths = ["README.md", "data/train.jsonl", "data/x.parquet", "dataset_infos.json", "load.pkl"]
    assert taken(paths, purpose=Purpose.CALIBRATION) == ["data/train.jsonl", "data/x.parquet"]


def test_calibration_without_data_is_refused() -> None:
    assert refusal(["README.md"], purpose=Purpose.CALIBRATION).name == "source-has-no-data"


NAMES = st.text(st.sampled_from("ab/.-_01 \n\\"), min_size=1, max_size=12)
SUFFIXES = st.sampled_from(["", ".safetensors", ".gguf", ".bin", ".py", ".json", ".PT"])


@given(
    st.lists(st.builds(str.__add__, NAMES, SUFFIXES), max_size=8),
    st.booleans(),
    st.booleans(),
    st.lists(st.sampled_from(["*", "*.bin", "a*"]), max_size=2),
)
def test_whatever_is_there_nothing_dangerous_is_ever_taken(
    paths: list[str], allow_code: bool, pinned: bool, patterns: list[str]
) -> None:
    try:
        found = taken(paths, allow_code=allow_code, pinned=pinned, patterns=patterns)
    except EngineCIError:
        return
    assert found == sorted(set(found) & set(paths))
    assert any(is_weights(path) for path in found)
    assert not any(is_pickle(path) for path in found)
    assert (allow_code and pinned) or not any(is_code(path) for path in found)
    assert not any(".." in path.split("/") or path.startswith("/") for path in found)
