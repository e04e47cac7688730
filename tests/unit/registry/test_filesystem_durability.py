"""What survives a power cut: bytes are flushed before they are named, names before an answer."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.registry import Registry
from engine_registry.store import Ownership
from engine_registry.testing.samples import SAMPLE_CHANNEL


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Beside the source, so that it can be linked."""
    return tmp_path / "registry"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "engine.bin"
    path.write_bytes(b"engine" * 1000)
    return path


def _add(ownership: Ownership) -> Callable[[Registry, Path], object]:
    return lambda registry, source: registry.stores.blobs.add_file(source, ownership)


WRITES: dict[str, Callable[[Registry, Path], object]] = {
    "a kept file": _add(Ownership.KEPT),
    "a given file": _add(Ownership.GIVEN),
    "bytes": lambda registry, source: registry.stores.blobs.add_bytes(source.read_bytes()),
    "a document": lambda registry, _: registry.stores.documents.create("keys/a/b.json", b"{}"),
    "a pointer": lambda registry, _: registry.stores.pointers.swap(
        layout.head(SAMPLE_CHANNEL), None, b"{}"
    ),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES.keys())
def test_bytes_are_flushed_before_they_are_named_and_the_name_before_the_answer(
    on_disk: Registry, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch, write
) -> None:
    flushed: set[int] = set()
    unflushed_names: set[int] = set()
    named = []
    real = {name: getattr(os, name) for name in ("fsync", "link", "replace")}

    def fsync(fd: int) -> None:
        real["fsync"](fd)
        inode = os.fstat(fd).st_ino
        flushed.add(inode)
        unflushed_names.discard(inode)

    def naming(how: str):
        def name(source: Path, target: Path, **options: bool) -> None:
            inside = root in Path(target).parents
            derived = Path(target).is_relative_to(root / "tmp") or "cache" in Path(target).parts
            if inside and not derived:
                assert os.lstat(source).st_ino in flushed
                named.append(target)
                unflushed_names.add(Path(target).parent.stat().st_ino)
            real[how](source, target, **options)

        return name

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", naming("link"))
    monkeypatch.setattr(os, "replace", naming("replace"))
    write(on_disk, source)
    assert len(named) == 1
    assert unflushed_names == set()


def test_a_new_folder_is_flushed_into_its_parent(
    on_disk: Registry, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (real(fd), flushed.append(os.fstat(fd).st_ino)))
    on_disk.stores.documents.create("keys/aa/bb/c.json", b"{}")
    for folder in (root, root / "keys", root / "keys" / "aa", root / "keys" / "aa" / "bb"):
        assert folder.stat().st_ino in flushed


def test_a_repeated_create_is_durable_too_whoever_wrote_it(
    on_disk: Registry, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_disk.stores.documents.create("keys/a.json", b"{}")
    flushed: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (real(fd), flushed.append(os.fstat(fd).st_ino)))
    assert on_disk.stores.documents.create("keys/a.json", b"{}") is False
    assert (root / "keys").stat().st_ino in flushed
