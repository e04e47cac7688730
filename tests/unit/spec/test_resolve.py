from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.progress import Silent
from engine_pipeline.sources.local import LocalSource
from engine_pipeline.sources.port import Source
from engine_pipeline.spec.lock import BuildLock, LockedTokenizer, build_key
from engine_pipeline.spec.resolve import resolve
from engine_registry.digest import Digest
from engine_registry.errors import EngineCIError, Incompatible, InvalidInput, NotFound
from tests.unit.spec.specs import spec_with

CHECKPOINT = {
    "config.json": b"{}",
    "tokenizer.json": b'{"model": {}}',
    "tokenizer_config.json": b'{"chat_template": "T"}',
    "model.safetensors": b"weights",
}
INSIDE = LockedTokenizer(digest=Digest.of(b"inside"), chat_template=None)
IMAGE = "nvcr.io/nvidia/tensorrt-llm"
PINNED = f"{IMAGE}@sha256:{'a' * 64}"


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    root = tmp_path / "model"
    root.mkdir()
    for name, data in CHECKPOINT.items():
        (root / name).write_bytes(data)
    return root


def no_gguf(path: Path) -> LockedTokenizer | None:
    raise AssertionError(f"{path} is no GGUF file")


def resolved(
    base_dir: Path,
    changes: dict[str, Any] | None = None,
    gguf: Callable[[Path], LockedTokenizer | None] = no_gguf,
    **options: Any,
) -> BuildLock:
    spec = spec_with({"model.source": "file://model", "model.revision": "r1", **(changes or {})})
    tools = {"b": "2", "a": "1"}
    return resolve(spec, base_dir, tools, gguf_tokenizer=gguf, **options)


def refusal(base_dir: Path, changes: dict[str, Any], **options: Any) -> EngineCIError:
    with pytest.raises(EngineCIError) as caught:
        resolved(base_dir, changes, **options)
    return caught.value


def test_a_lock_holds_the_spec_and_everything_it_refers_to(model_dir: Path) -> None:
    lock = resolved(model_dir.parent)
    assert lock.spec.model.source == "file://model"
    assert {f.path: f.digest for f in lock.source.files} == {
        name: Digest.of(data) for name, data in CHECKPOINT.items()
    }
    assert lock.tokenizer.chat_template == Digest.of(b"T")
    assert lock.tools == {"a": "1", "b": "2"}
    assert (lock.image, lock.calibration) == (None, None)


def test_locking_twice_gives_the_same_lock(model_dir: Path) -> None:
    assert resolved(model_dir.parent) == resolved(model_dir.parent)


def test_another_chat_template_is_another_lock_and_another_build(model_dir: Path) -> None:
    before = resolved(model_dir.parent)
    (model_dir / "chat_template.jinja").write_text("other")
    after = resolved(model_dir.parent)
    assert after.tokenizer.digest == before.tokenizer.digest
    assert after.tokenizer.chat_template != before.tokenizer.chat_template
    assert build_key(after, {}) != build_key(before, {})


def test_the_tokenizer_of_a_gguf_source_is_read_from_the_file(tmp_path: Path) -> None:
    root = tmp_path / "model"
    root.mkdir()
    (root / "m.gguf").write_bytes(b"GGUF")
    read: list[Path] = []

    def gguf(path: Path) -> LockedTokenizer:
        read.append(path)
        return INSIDE

    assert resolved(tmp_path, gguf=gguf).tokenizer == INSIDE
    assert read == [root / "m.gguf"]


def test_a_gguf_file_without_vocabulary_takes_the_files_beside_it(tmp_path: Path) -> None:
    root = tmp_path / "model"
    root.mkdir()
    (root / "m.gguf").write_bytes(b"GGUF")
    (root / "tokenizer.json").write_bytes(b"{}")
    assert resolved(tmp_path, gguf=lambda _: None).tokenizer != INSIDE


def test_a_source_without_any_tokenizer_is_refused(model_dir: Path) -> None:
    (model_dir / "tokenizer.json").unlink()
    assert refusal(model_dir.parent, {}).name == "source-has-no-tokenizer"


def test_an_impossible_precision_is_refused_before_anything_is_looked_up(tmp_path: Path) -> None:
    error = refusal(tmp_path / "nowhere", {"target.sku": "a100-sxm-80gb"})
    assert isinstance(error, Incompatible)


def test_a_source_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    assert isinstance(refusal(tmp_path, {}), NotFound)


def test_calibration_data_is_pinned_like_the_model(model_dir: Path) -> None:
    data = model_dir.parent / "data"
    data.mkdir()
    (data / "samples.jsonl").write_bytes(b'{"text": "x"}\n')
    changes = {"calibration": {"source": "file://data", "revision": "r", "samples": 1}}
    lock = resolved(model_dir.parent, changes)
    assert lock.calibration is not None
    assert [f.path for f in lock.calibration.files] == ["samples.jsonl"]
    (data / "samples.jsonl").write_bytes(b'{"text": "y"}\n')
    assert build_key(resolved(model_dir.parent, changes), {}) != build_key(lock, {})


# Images


class Registry:
    """Knows one tag."""

    def digest_of(self, reference: str) -> Digest:
        if reference == f"{IMAGE}:1.2.1":
            return Digest.of(b"image")
        raise NotFound(f"{reference}: no such image", hint="check the tag")


def test_an_image_with_a_digest_is_taken_as_it_is(model_dir: Path) -> None:
    image = resolved(model_dir.parent, {"backend.image": PINNED}).image
    assert image is not None
    assert (image.reference, image.digest.hex) == (PINNED, "a" * 64)


def test_a_tag_that_nobody_can_look_up_is_refused_with_how_to_pin_it(model_dir: Path) -> None:
    error = refusal(model_dir.parent, {"backend.image": f"{IMAGE}:1.2.1"})
    assert isinstance(error, InvalidInput)
    assert error.name == "image-not-pinned"
    assert f"{IMAGE}:1.2.1@sha256:" in error.hint


def test_a_tag_is_looked_up_where_that_is_possible(model_dir: Path) -> None:
    lock = resolved(model_dir.parent, {"backend.image": f"{IMAGE}:1.2.1"}, images=Registry())
    assert lock.image is not None
    assert lock.image.digest == Digest.of(b"image")
    error = refusal(model_dir.parent, {"backend.image": f"{IMAGE}:9"}, images=Registry())
    assert isinstance(error, NotFound)


@pytest.mark.parametrize("digest", ["sha256:abc", "md5:" + "a" * 64, ""])
def test_an_image_with_a_broken_digest_is_refused(model_dir: Path, digest: str) -> None:
    error = refusal(model_dir.parent, {"backend.image": f"{IMAGE}@{digest}"})
    assert error.name == "invalid-digest"


def test_sources_are_opened_by_uri_and_told_of_progress(model_dir: Path) -> None:
    opened: list[tuple[str, Path]] = []
    phases: list[str] = []

    class Listener(Silent):
        def phase(self, name: str, detail: str = "") -> None:
            phases.append(f"{name} {detail}")

    def sources(uri: str, base_dir: Path) -> Source:
        opened.append((uri, base_dir))
        return LocalSource(base_dir)

    resolved(model_dir.parent, sources=sources, progress=Listener())
    assert opened == [("file://model", model_dir.parent)]
    assert phases[0] == "hash file://model"
