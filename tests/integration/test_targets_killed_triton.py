"""A deployment to a server, killed at every step and every call, and run again."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.targets.killing import killed_at
from tests.unit.targets.triton_yard import TritonYard
from tests.unit.targets.yard import memory_dir


@pytest.fixture
def fast_dir() -> Iterator[Path]:
    with memory_dir() as folder:
        yield folder


@pytest.mark.parametrize(
    ("tokenizer", "swap"), [("one", "beside"), ("two", "beside"), ("one", "replace")]
)
def test_killed_anywhere_an_engine_answers_in_its_own_tokens_and_running_again_finishes(
    fast_dir: Path, tokenizer: str, swap: str
):
    yard = TritonYard(fast_dir, definition={"swap": swap}, keep=1)
    with yard.serving(places=1 if swap == "replace" else 2) as server:
        yard.promote(yard.engine_release("a"))
        yard.deploy()
        shutil.copytree(yard.place, fast_dir / "untouched", symlinks=True)
        yard.promote(yard.engine_release("b", tokenizer=tokenizer))
        gap = swap == "replace" or tokenizer == "two"
        number = 0
        while True:
            number += 1
            shutil.rmtree(yard.place)
            shutil.copytree(fast_dir / "untouched", yard.place, symlinks=True)
            server.restart()
            assert yard.answers() == 1
            killed = killed_at(number, yard.deploy, yard.place, moves_only=True)
            # Between two loads no client is answered by halves of two releases.
            said = yard.answers()
            assert said in {1, 2} or (gap and said == "503"), number
            apart = yard.drift().differences
            assert bool(apart) == killed or said == 2, number
            if number % 3 == 0:
                server.restart()
                assert yard.answers() in {1, 2}, number
            yard.deploy()
            assert yard.answers() == 2
            assert not yard.drift(deep=True).differences
            assert [path.name for path in yard.place.rglob(".*")] == [".lock"]
            if not killed:
                break
        assert number > 20
        assert not yard.deploy().changed
        server.restart()
        assert yard.answers() == 2


def test_killed_and_then_failing_it_goes_back_to_what_was_proven(fast_dir: Path):
    from engine_registry.errors import JudgedAndRefused
    from tests.servers.triton import Fault

    yard = TritonYard(fast_dir)
    with yard.serving() as server:
        yard.promote(yard.engine_release("a"))
        yard.deploy()
        yard.promote(yard.engine_release("b"))
        number = 0
        while server.versions()["tensorrt_llm"] == 1:
            number += 1
            assert killed_at(number, yard.deploy, yard.place, moves_only=True)
        # Killed with the new engine loaded and the other models still the old ones.
        assert len(set(server.versions().values())) == 2
        server.faults = [Fault("generate", "ensemble", "empty")]
        with pytest.raises(JudgedAndRefused, match="llama/h100-sxm-80gb:1 is served, as before"):
            yard.deploy()
        assert yard.answers() == 1
        assert set(server.versions().values()) == {1}
