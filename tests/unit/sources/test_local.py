from __future__ import annotations

import os
from pathlib import Path

import pytest

from engine_pipeline.progress import Silent
from engine_pipeline.sources import place as place_module
from engine_pipeline.sources.local import LocalSource
from engine_pipeline.sources.port import Wanted
from engine_pipeline.spec.lock import LockedSource
from engine_registry.digest import Digest
from engine_registry.errors import (
    EngineCIError,
    ExitCode,
    IntegrityError,
    InvalidInput,
    NotFound,
    Unavailable,
)

FILES = {"config.json": b"{}", "model.safetensors": b"weights" * 1000}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "model"
    root.mkdir()
    for name, data in FILES.items():
        (root / name).write_bytes(data)
    return root


def locked(base_dir: Path, uri: str = "file://model", **options: object) -> LockedSource:
    wanted = Wanted(uri=uri, revision="r1", **options)  # type: ignore[arg-type]
    return LocalSource(base_dir).resolve(wanted, Silent())


def fetched(base_dir: Path, lock: LockedSource, name: str = "out") -> dict[str, bytes]:
    out = base_dir / name
    out.mkdir(exist_ok=True)
    LocalSource(base_dir).fetch(lock, out, Silent())
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def refusal(base_dir: Path, uri: str = "file://model", **options: object) -> EngineCIError:
    with pytest.raises(EngineCIError) as caught:
        locked(base_dir, uri, **options)
    return caught.value


def test_a_directory_is_pinned_by_the_digests_of_its_files(root: Path) -> None:
    lock = locked(root.parent)
    assert (lock.source, lock.revision) == ("file://model", "r1")
    assert {f.path: f.digest for f in lock.files} == {
        name: Digest.of(data) for name, data in FILES.items()
    }


@pytest.mark.parametrize("form", ["file://{}", "file://./model", "file://model/"])
def test_absolute_and_relative_uris_name_the_same_directory(root: Path, form: str) -> None:
    assert locked(root.parent, form.format(root)).files == locked(root.parent).files


def test_a_uri_may_have_escapes(tmp_path: Path) -> None:
    odd = tmp_path / "my model"
    odd.mkdir()
    (odd / "m.gguf").write_bytes(b"GGUF")
    assert [f.path for f in locked(tmp_path, "file://my%20model").files] == ["m.gguf"]


def test_one_file_may_be_a_source(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(b"GGUF a")
    (tmp_path / "b.gguf").write_bytes(b"GGUF b")
    lock = locked(tmp_path, "file://a.gguf")
    assert [f.path for f in lock.files] == ["a.gguf"]
    assert fetched(tmp_path, lock) == {"a.gguf": b"GGUF a"}


def test_a_missing_directory_is_not_found_with_its_full_path(tmp_path: Path) -> None:
    error = refusal(tmp_path, "file://nothing")
    assert isinstance(error, NotFound)
    assert str(tmp_path / "nothing") in error.message


def test_version_control_and_caches_are_no_part_of_a_source(root: Path) -> None:
    (root / ".git").mkdir()
    (root / ".git" / "x.safetensors").write_bytes(b"x")
    assert locked(root.parent, patterns=("*.safetensors",)).files == tuple(
        f for f in locked(root.parent).files if f.path == "model.safetensors"
    )


def test_a_link_that_leaves_the_directory_is_refused_with_where_it_leads(root: Path) -> None:
    outside = root.parent / "secret.safetensors"
    outside.write_bytes(b"x")
    (root / "more.safetensors").symlink_to(outside)
    error = refusal(root.parent)
    assert isinstance(error, InvalidInput)
    assert error.name == "source-link-escapes"
    assert str(outside) in error.message


def test_a_link_that_is_made_after_locking_is_refused_too(root: Path) -> None:
    lock = locked(root.parent)
    (root / "model.safetensors").rename(root.parent / "elsewhere")
    (root / "model.safetensors").symlink_to(root.parent / "elsewhere")
    with pytest.raises(InvalidInput):
        fetched(root.parent, lock)


def test_a_link_that_stays_inside_is_followed(root: Path) -> None:
    (root / "blobs").mkdir()
    (root / "model.safetensors").rename(root / "blobs" / "1")
    (root / "model.safetensors").symlink_to("blobs/1")
    lock = locked(root.parent)
    assert fetched(root.parent, lock) == FILES


def test_what_is_no_plain_file_is_refused(root: Path) -> None:
    os.mkfifo(root / "pipe.safetensors")
    assert refusal(root.parent).name == "source-not-a-file"


def test_code_in_a_local_directory_needs_the_opt_in_and_no_commit(root: Path) -> None:
    (root / "modeling_x.py").write_text("pass")
    assert refusal(root.parent).name == "code-refused"
    paths = [f.path for f in locked(root.parent, allow_code=True).files]
    assert "modeling_x.py" in paths


# Fetching


def test_fetching_copies_exactly_the_locked_files(root: Path) -> None:
    lock = locked(root.parent)
    (root / "new.safetensors").write_bytes(b"later")
    assert fetched(root.parent, lock) == FILES


@pytest.mark.parametrize("data", [b"wEights" * 1000, b"short", b""])
def test_a_file_that_changed_since_locking_is_refused_with_both_sides(
    root: Path, data: bytes
) -> None:
    lock = locked(root.parent)
    (root / "model.safetensors").write_bytes(data)
    with pytest.raises(IntegrityError) as caught:
        fetched(root.parent, lock)
    error = caught.value
    assert error.exit_code == ExitCode.INTEGRITY
    assert "model.safetensors" in error.message
    assert "locked" in error.message
    assert "found" in error.message
    assert [p.name for p in (root.parent / "out").iterdir()] == ["config.json"]


def test_a_file_that_is_gone_is_not_found_by_name(root: Path) -> None:
    lock = locked(root.parent)
    (root / "model.safetensors").unlink()
    with pytest.raises(NotFound, match=r"model\.safetensors"):
        fetched(root.parent, lock)


def test_a_file_that_cannot_be_read_is_unavailable(root: Path) -> None:
    lock = locked(root.parent)
    with pytest.raises(Unavailable):
        place_module.check(root, lock.files[0], "file://model")


def test_a_writable_original_is_never_shared_with_the_copy(root: Path) -> None:
    fetched(root.parent, locked(root.parent))
    (root / "model.safetensors").write_bytes(b"changed later")
    copy = root.parent / "out" / "model.safetensors"
    assert copy.read_bytes() == FILES["model.safetensors"]
    assert copy.stat().st_nlink == 1


def test_an_original_that_nobody_may_write_is_linked_and_still_checked(root: Path) -> None:
    lock = locked(root.parent)
    original = root / "model.safetensors"
    original.chmod(0o444)
    (root.parent / "out").mkdir()
    (root.parent / "out" / ".model.safetensors.part").write_bytes(b"left by a killed fetch")
    fetched(root.parent, lock)
    assert (root.parent / "out" / "model.safetensors").stat().st_ino == original.stat().st_ino
    original.chmod(0o644)
    original.write_bytes(b"wEights" * 1000)
    original.chmod(0o444)
    with pytest.raises(IntegrityError):
        fetched(root.parent, lock, "second")
    assert not (root.parent / "second" / "model.safetensors").exists()


def test_the_copy_is_the_same_where_the_file_system_can_share_extents(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No such file system here: a copy made up front stands in for the kernel's.
    def reflink(stream: object, part: Path) -> bool:
        part.write_bytes(stream.read())  # type: ignore[attr-defined]
        return True

    monkeypatch.setattr(place_module, "_reflink", reflink)
    lock = locked(root.parent)
    assert fetched(root.parent, lock) == FILES
    (root / "config.json").write_bytes(b"[]")
    with pytest.raises(IntegrityError):
        fetched(root.parent, lock, "second")


def test_a_left_over_of_a_killed_fetch_does_not_matter(root: Path) -> None:
    lock = locked(root.parent)
    out = root.parent / "out"
    out.mkdir()
    (out / ".model.safetensors.part").write_bytes(b"half")
    (out / "config.json").write_bytes(b"old")
    assert fetched(root.parent, lock) == FILES


def test_progress_counts_every_byte_once(root: Path) -> None:
    seen: list[tuple[float, float | None, str]] = []

    class Listener(Silent):
        def update(self, done: float, total: float | None, unit: str) -> None:
            seen.append((done, total, unit))

    lock = locked(root.parent)
    (root.parent / "out").mkdir()
    LocalSource(root.parent).fetch(lock, root.parent / "out", Listener())
    total = sum(map(len, FILES.values()))
    assert seen[0] == (0, total, "bytes")
    assert seen[-1] == (total, total, "bytes")
    assert [done for done, *_ in seen] == sorted(done for done, *_ in seen)


def test_a_local_path_is_the_original_once_it_is_checked(root: Path) -> None:
    lock = locked(root.parent)
    source = LocalSource(root.parent)
    path = source.local_path(lock, lock.files[0], Silent())
    assert path == root / "config.json"
    path.write_bytes(b"[]")
    with pytest.raises(IntegrityError):
        source.local_path(lock, lock.files[0], Silent())
