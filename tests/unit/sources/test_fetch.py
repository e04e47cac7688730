from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine_pipeline.progress import Silent
from engine_pipeline.sources.fetch import fetch
from engine_pipeline.sources.hub import HubSource
from engine_pipeline.sources.local import LocalSource
from engine_pipeline.sources.package import PackageSource
from engine_pipeline.sources.port import Wanted
from engine_pipeline.sources.schemes import open_source
from engine_registry.errors import InvalidInput, NotFound
from tests.unit.spec.specs import lock_with


@pytest.mark.parametrize(
    ("uri", "kind"),
    [
        ("hf://org/model", HubSource),
        ("hf://datasets/org/data", HubSource),
        ("package://name", PackageSource),
        ("file:///abs", LocalSource),
        ("file://rel", LocalSource),
    ],
)
def test_each_kind_of_uri_has_its_source(tmp_path: Path, uri: str, kind: type) -> None:
    assert type(open_source(uri, tmp_path)) is kind


def test_an_unknown_kind_of_uri_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        open_source("s3://bucket/model", tmp_path)
    assert "hf://org/repo" in caught.value.hint


def test_a_relative_source_is_found_beside_the_lock(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "m.gguf").write_bytes(b"GGUF")
    wanted = Wanted(uri="file://model", revision="r")
    lock = lock_with(source=LocalSource(tmp_path).resolve(wanted, Silent()))
    (tmp_path / "out").mkdir()
    fetch(lock, "source", tmp_path, tmp_path / "out", Silent())
    assert (tmp_path / "out" / "m.gguf").read_bytes() == b"GGUF"


def test_an_output_directory_that_is_not_there_is_not_made_up(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        fetch(lock_with(), "source", tmp_path, tmp_path / "out", Silent())


def test_specs_locks_and_refusals_load_no_heavy_library() -> None:
    program = (
        "import sys\n"
        "import engine_pipeline.spec.resolve, engine_pipeline.sources.fetch\n"
        "import engine_pipeline.sources.hub, engine_pipeline.spec.load\n"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    heavy = {"huggingface_hub", "httpx", "httpx2", "ruamel", "gguf", "numpy", "hf_xet", "tqdm"}
    assert not set(done.stdout.split()) & heavy
