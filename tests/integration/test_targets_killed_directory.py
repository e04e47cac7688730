"""A deployment to a directory, killed at every step that anybody could see, and run again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine_pipeline.targets.port import Running
from engine_registry.record import Release
from tests.unit.targets.killing import killed_at
from tests.unit.targets.yard import Yard, memory_dir

Prepare = Callable[[Yard], tuple[set[int], Release]]


@pytest.fixture
def fast_dir() -> Iterator[Path]:
    with memory_dir() as folder:
        yield folder


def first(yard: Yard) -> tuple[set[int], Release]:
    """Nothing is there; release 1 is live."""
    release = yard.release("a")
    yard.promote(release)
    return set(), release


def following(yard: Yard) -> tuple[set[int], Release]:
    """Release 1 is there; release 2 is live. With one version kept, nothing is removed yet."""
    first(yard)
    yard.deploy()
    release = yard.release("b")
    yard.promote(release)
    return {1}, release


def crowded(yard: Yard) -> tuple[set[int], Release]:
    """Releases 1 to 3 were there, so an old version and its engine have to go."""
    following(yard)
    yard.deploy()
    yard.promote(yard.release("c"))
    yard.deploy()
    release = yard.release("d")
    yard.promote(release)
    return {3}, release


def back(yard: Yard) -> tuple[set[int], Release]:
    """Release 2 is there; the channel went back to release 1, whose engine is still there."""
    following(yard)
    yard.deploy()
    release = yard.releases[0]
    yard.roll_back(release)
    return {2}, release


def damaged(yard: Yard) -> tuple[set[int], Release]:
    """As before, and the engine that is there was damaged since."""
    before, release = back(yard)
    file = yard.place / "engines" / release.content.engine.short / "model.gguf"
    data = file.read_bytes()
    file.unlink()
    file.write_bytes(data[:-1] + b"!")
    return before, release


@pytest.mark.parametrize("prepare", [first, following, crowded, back, damaged])
def test_killed_anywhere_the_old_or_the_new_one_is_there_whole_and_running_again_finishes(
    prepare: Prepare, fast_dir: Path
):
    yard = Yard(fast_dir, keep=1)
    before, release = prepare(yard)
    untouched = fast_dir / "untouched"
    if yard.place.exists():
        shutil.copytree(yard.place, untouched, symlinks=True)
    number = 0
    while True:
        number += 1
        shutil.rmtree(yard.place, ignore_errors=True)
        if untouched.exists():
            shutil.copytree(untouched, yard.place, symlinks=True)
        killed = killed_at(number, yard.deploy, yard.place)
        serves = yard.target().read(deep=True).serves
        if isinstance(serves, Running):
            assert serves.deployment.release.number in before | {release.number}
            assert not serves.damaged
            assert (yard.place / "current/serve.json").is_file()
        else:
            assert killed
            assert not before
        again = yard.deploy()
        assert again.changed == (
            not isinstance(serves, Running) or serves.deployment.release.number != release.number
        )
        assert not yard.drift(deep=True).differences
        assert not yard.deploy().changed
        left = [path.name for path in yard.place.rglob(".*")]
        assert left == [".lock"]
        if not killed:
            break
    assert number > 15
