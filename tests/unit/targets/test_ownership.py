"""A target takes a directory that is new, empty or its own, and leaves everybody else's alone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_pipeline.targets.ownership import refuse_foreign
from engine_pipeline.targets.triton.repository import is_model
from engine_registry.errors import InvalidInput
from tests.unit.targets.triton_yard import TritonYard
from tests.unit.targets.yard import Yard, memory_dir

MODEL = "their-model/config.pbtxt"


@pytest.fixture
def fast_dir() -> Iterator[Path]:
    with memory_dir() as folder:
        yield folder


def filled(root: Path, names: list[str]) -> list[str]:
    """Everything below `root` after writing these files; a name that ends in / is a directory."""
    for name in names:
        path = root / name
        (path if name.endswith("/") else path.parent).mkdir(parents=True, exist_ok=True)
        if not name.endswith("/"):
            path.write_text("theirs")
    return sorted(map(str, root.rglob("*")))


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["lost+found/"],  # a file system of its own
        ["versions/", "engines/"],  # the first deployment was killed
        ["versions/1-r1-4f2a9c1b0d3e/deployment.json", ".lock", "notes.txt"],
        ["versions/1-r1-4f2a9c1b0d3e/deployment.json", "fence.json"],  # a copy without dot files
    ],
)
def test_a_new_an_empty_and_an_own_directory_are_taken(tmp_path: Path, names: list[str]) -> None:
    filled(tmp_path, names)
    refuse_foreign(tmp_path)
    refuse_foreign(tmp_path / "new")


@pytest.mark.parametrize(
    ("names", "named"),
    [
        (["notes.txt"], "notes.txt"),
        ([".ssh-keys/id"], ".ssh-keys"),
        (["engines/blobs/x"], "engines"),  # the parent of a registry
        ([".lock"], ".lock"),
        ([MODEL], "their-model"),
        (["a", "b", "c", "d", "e"], "a, b, c and 2 more"),
    ],
)
def test_a_directory_of_somebody_elses_is_left_as_it_was(
    fast_dir: Path, names: list[str], named: str
) -> None:
    yard = Yard(fast_dir)
    yard.promote(yard.release("a"))
    before = filled(yard.place, names)
    with pytest.raises(InvalidInput) as refused:
        yard.deploy()
    assert refused.value.name == "target-foreign"
    assert f"holds {named} and was never deployed to" in refused.value.message
    assert sorted(map(str, yard.place.rglob("*"))) == before


@pytest.mark.parametrize("names", [[MODEL], ["their-model/1/model.onnx", "another/3/model.pt"]])
def test_models_of_somebody_elses_may_lie_beside_those_of_a_server(
    fast_dir: Path, names: list[str]
) -> None:
    yard = TritonYard(fast_dir)
    before = filled(yard.place, names)
    with yard.serving(), yard.target().held():
        assert set(before) < set(map(str, yard.place.rglob("*")))
    with yard.serving(), yard.target().held():
        pass


@pytest.mark.parametrize(
    "names", [["notes.txt"], ["data/file"], ["engines/config.pbtxt"], ["current/1/model.onnx"]]
)
def test_what_is_no_model_or_has_one_of_our_names_may_not(tmp_path: Path, names: list[str]) -> None:
    filled(tmp_path, names)
    with pytest.raises(InvalidInput):
        refuse_foreign(tmp_path, may_stay=is_model)
