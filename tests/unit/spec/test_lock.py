from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from engine_pipeline.spec.compare import check_lock, diff_locks
from engine_pipeline.spec.lock import BuildLock, LockedFile, LockedImage, LockedTokenizer, build_key
from engine_pipeline.spec.lock_file import lock_path, lock_text, read_lock, write_lock
from engine_pipeline.spec.model import BuildSpec
from engine_pipeline.spec.shape import shape_of_config
from engine_registry.digest import Digest
from engine_registry.errors import InvalidInput, NotFound, Unavailable
from tests.unit.spec.specs import lock_with, source_of, spec_with

DATA = "hf://datasets/org/data"
SHAPE = shape_of_config(
    {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 2,
        "hidden_size": 8,
        "num_attention_heads": 2,
        "vocab_size": 16,
    }
)
CALIBRATED = {"calibration": {"source": DATA, "revision": "main"}}

# What changes the engine, and so must change the key.
INPUTS: dict[str, BuildLock] = {
    "model.name": lock_with({"model.name": "other"}),
    "model.allow_code": lock_with({"model.allow_code": True}),
    "target.sku": lock_with({"target.sku": "h100-pcie-80gb"}),
    "target.parallelism.tensor": lock_with({"target.parallelism": {"tensor": 2}}),
    "precision.weights": lock_with({"precision.weights": "int8"}),
    "precision.kv_cache": lock_with({"precision.kv_cache": "fp8"}),
    "precision.recipe": lock_with({"precision.recipe": "int8_sq"}),
    "precision.allow_fallback": lock_with({"precision.allow_fallback": ["q5_0"]}),
    "backend.kind": lock_with({"backend.kind": "hf-checkpoint"}),
    "backend.version": lock_with({"backend.version": "1.2.0"}),
    "backend.options.use_fused_mlp": lock_with({"backend.options": {"use_fused_mlp": True}}),
    "limits.max_batch_size": lock_with({"limits.max_batch_size": 8}),
    "source.files.config.json.digest": lock_with(
        source=source_of(**{"config.json": b"[]", "model.safetensors": b"w"})
    ),
    "tokenizer.digest": lock_with(
        tokenizer=LockedTokenizer(digest=Digest.of(b"other"), chat_template=Digest.of(b"template"))
    ),
    "tokenizer.chat_template": lock_with(
        tokenizer=LockedTokenizer(digest=Digest.of(b"vocabulary"), chat_template=None)
    ),
    "tools.tensorrt-llm": lock_with(tools={"tensorrt-llm": "1.2.0"}),
    "image.digest": lock_with(image=LockedImage(reference="r:1", digest=Digest.of(b"image"))),
    "calibration_source.files.a.jsonl.digest": lock_with(
        CALIBRATED, calibration=source_of(DATA, **{"a.jsonl": b"1"})
    ),
}
# What does not.
OTHERS: dict[str, BuildLock] = {
    "model.source": lock_with({"model.source": "hf://mirror/tiny"}),
    "model.revision": lock_with({"model.revision": "v1"}),
    "model.files": lock_with({"model.files": ["*.json"]}),
    "backend.image": lock_with({"backend.image": "repo:2"}),
    "serving.threads": lock_with({"serving": {"threads": 2}}),
    "suites": lock_with({"suites": ["core", "more"]}),
    "source.revision": lock_with(source=source_of().model_copy(update={"revision": "d" * 40})),
    "shape.layers": lock_with(shape=SHAPE),
    "source.source": lock_with(source=source_of("hf://mirror/tiny")),
}


def test_every_part_of_a_lock_is_known_to_change_the_engine_or_not_to() -> None:
    classified = {path.partition(".")[0] for path in (*INPUTS, *OTHERS)}
    parts = {"calibration_source" if p == "calibration" else p for p in BuildLock.model_fields}
    assert parts - classified == {"schema_version", "spec"}
    assert set(BuildSpec.model_fields) - classified == {"schema_version", "calibration"}


@pytest.mark.parametrize("path", INPUTS)
def test_every_input_of_the_engine_changes_the_build_key(path: str) -> None:
    assert build_key(INPUTS[path], {}) != build_key(lock_with(), {})


@pytest.mark.parametrize("path", OTHERS)
def test_what_does_not_change_the_engine_leaves_the_build_key(path: str) -> None:
    assert build_key(OTHERS[path], {}) == build_key(lock_with(), {})


def test_what_the_host_adds_changes_the_build_key() -> None:
    lock = lock_with()
    assert build_key(lock, {"driver": "550"}) != build_key(lock, {"driver": "570"})


@pytest.mark.parametrize("path", [*INPUTS, *OTHERS])
def test_a_difference_is_named_and_sorted_by_whether_it_changes_the_engine(path: str) -> None:
    base, other = lock_with(), {**INPUTS, **OTHERS}[path]
    moved = diff_locks(base, other)
    named = {item.path: item.changes_engine for item in moved}
    assert named[path] is (path in INPUTS)
    assert any(named.values()) == (build_key(base, {}) != build_key(other, {}))


def test_equal_locks_have_no_difference() -> None:
    assert diff_locks(lock_with(), lock_with()) == ()


def test_a_file_that_is_new_or_gone_is_a_difference_with_one_side() -> None:
    fewer = lock_with(source=source_of(**{"model.safetensors": b"w"}))
    gone = {item.path: (item.locked, item.now) for item in diff_locks(lock_with(), fewer)}
    assert gone["source.files.config.json.size_bytes"] == (2, None)
    assert str(diff_locks(lock_with(), fewer)[0]).endswith("now nothing")


def test_what_changes_the_engine_comes_first() -> None:
    other = lock_with({"suites": ["a"], "target.sku": "h100-pcie-80gb"})
    assert [item.path for item in diff_locks(lock_with(), other)] == ["target.sku", "suites"]


# A spec against its lock


def test_an_unchanged_spec_agrees_with_its_lock() -> None:
    assert check_lock(spec_with(), lock_with(), {"tensorrt-llm": "1.2.1"}) == ()


def test_a_spec_edited_after_locking_names_the_field_and_both_values() -> None:
    (moved,) = check_lock(spec_with({"precision.weights": "int8"}), lock_with())
    assert (moved.path, moved.locked, moved.now) == ("precision.weights", "fp8", "int8")
    assert str(moved) == "precision.weights: locked fp8, now int8"


def test_an_added_and_a_removed_field_are_both_named() -> None:
    locked = lock_with({"precision.recipe": "x", "backend.options": {"a": 1}})
    now = spec_with({"backend.options": {"b": 2}})
    assert [(m.path, m.locked, m.now) for m in check_lock(now, locked)] == [
        ("backend.options.a", 1, None),
        ("backend.options.b", None, 2),
        ("precision.recipe", "x", None),
    ]


def test_another_version_of_a_tool_is_named_when_tools_are_given() -> None:
    moved = check_lock(spec_with(), lock_with(), {"tensorrt-llm": "1.3.0", "modelopt": "0.4"})
    assert [(m.path, m.locked, m.now) for m in moved] == [
        ("tools.modelopt", None, "0.4"),
        ("tools.tensorrt-llm", "1.2.1", "1.3.0"),
    ]


# Values


@pytest.mark.parametrize(
    "path", ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a\\b", "a\n"]
)
def test_a_locked_path_cannot_leave_its_source(path: str) -> None:
    with pytest.raises(ValidationError):
        LockedFile(path=path, size_bytes=1, digest=Digest.of(b""))


def test_a_source_names_each_file_once() -> None:
    source = source_of()
    with pytest.raises(ValidationError):
        source.model_validate({**source.model_dump(), "files": [source.files[0].model_dump()] * 2})


# The file


def test_the_lock_lies_beside_its_spec() -> None:
    spec = Path("build_specs/m/cpu-x86-64-v3-int8.yaml")
    assert lock_path(spec) == Path("build_specs/m/cpu-x86-64-v3-int8.lock.json")


def test_a_lock_comes_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "a.lock.json"
    for lock in {**INPUTS, **OTHERS}.values():
        write_lock(lock, path)
        assert read_lock(path) == lock


def test_the_file_has_one_value_a_line_in_a_fixed_order(tmp_path: Path) -> None:
    text = lock_text(lock_with())
    assert text.endswith("}\n")
    plain = lock_with().model_dump(mode="json")
    assert json.loads(text) == {key: value for key, value in plain.items() if value is not None}
    assert list(json.loads(text)) == sorted(json.loads(text))
    other = lock_text(INPUTS["tools.tensorrt-llm"])
    changed = set(text.splitlines()) ^ set(other.splitlines())
    assert len(changed) == 2


def test_the_digest_does_not_depend_on_the_layout(tmp_path: Path) -> None:
    path = tmp_path / "a.lock.json"
    path.write_text(json.dumps(lock_with().model_dump(mode="json")))
    assert read_lock(path).digest == lock_with().digest


def test_writing_the_same_lock_again_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.lock.json"
    assert write_lock(lock_with(), path)
    before = path.stat()
    assert not write_lock(lock_with(), path)
    assert path.stat() == before
    assert write_lock(INPUTS["target.sku"], path)


def test_a_lock_is_replaced_whole_and_everybody_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "a.lock.json"
    path.write_text("old")
    with path.open() as old:
        write_lock(lock_with(), path)
        assert old.read() == "old"
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [item.name for item in tmp_path.iterdir()] == ["a.lock.json"]


def test_a_lock_that_cannot_be_written_is_unavailable(tmp_path: Path) -> None:
    with pytest.raises(Unavailable):
        write_lock(lock_with(), tmp_path / "no" / "a.lock.json")


def test_a_missing_lock_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(NotFound) as caught:
        read_lock(tmp_path / "a.lock.json")
    assert caught.value.name == "lock-missing"
    assert "enginectl lock" in caught.value.hint


def edited(change: Any) -> str:
    plain = lock_with().model_dump(mode="json")
    change(plain)
    return json.dumps(plain)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "document"),
        ("{", "document"),
        ("[]", "document"),
        (edited(lambda p: p.pop("tokenizer")), "tokenizer"),
        (edited(lambda p: p.update(extra=1)), "extra"),
        (edited(lambda p: p["source"]["files"][0].update(path="../../x")), "source.files.0.path"),
        (edited(lambda p: p["source"]["files"][0].update(digest="md5:1")), "files.0.digest"),
        (edited(lambda p: p["source"]["files"].clear()), "source.files"),
        (edited(lambda p: p.update(schema_version=2)), "schema_version"),
    ],
)
def test_a_file_that_is_no_lock_is_refused_with_the_place(
    tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "a.lock.json"
    path.write_text(text)
    with pytest.raises(InvalidInput) as caught:
        read_lock(path)
    assert caught.value.name == "lock-invalid"
    assert says in caught.value.message
