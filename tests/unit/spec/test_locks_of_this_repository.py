"""The specs that ship with the project are locked, and their locks hold.

Those of models on a hub ship without locks: only a machine that reaches the hub can make them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_pipeline.spec.compare import check_lock
from engine_pipeline.spec.load import load_spec
from engine_pipeline.spec.lock_file import lock_path, lock_text, read_lock
from engine_pipeline.spec.resolve import resolve

ROOT = Path(__file__).resolve().parents[3]
SPECS = sorted((ROOT / "build_specs").rglob("*.yaml"))
LOCKED = [path for path in SPECS if not load_spec(path).model.source.startswith("hf://")]


def test_some_specs_are_locked_and_all_others_come_from_a_hub() -> None:
    assert LOCKED
    assert len(LOCKED) < len(SPECS)


@pytest.mark.parametrize("path", LOCKED, ids=lambda p: p.stem)
def test_the_lock_beside_a_spec_is_fresh_and_in_the_form_that_lock_writes(path: Path) -> None:
    lock = read_lock(lock_path(path))
    assert check_lock(load_spec(path), lock) == ()
    assert lock_path(path).read_text() == lock_text(lock)


def test_every_lock_has_a_spec() -> None:
    locks = sorted((ROOT / "build_specs").rglob("*.lock.json"))
    assert locks == sorted(lock_path(spec) for spec in LOCKED)


@pytest.mark.model
def test_locking_the_real_model_again_pins_the_same_bytes_and_tokenizer() -> None:
    from engine_pipeline.backends.llama_cpp.gguf_header import read_header
    from engine_pipeline.backends.llama_cpp.tokenizer import header_tokenizer

    path = ROOT / "build_specs" / "smollm2-135m-instruct" / "cpu-x86-64-v3-int8.yaml"
    committed = read_lock(lock_path(path))
    now = resolve(
        load_spec(path),
        path.parent,
        committed.tools,
        gguf_tokenizer=lambda file: header_tokenizer(read_header(file)),
    )
    assert now == committed
