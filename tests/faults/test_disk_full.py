"""The disk is full at each write of each act in turn: the act says so, and nothing is half done."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest

from engine_registry.backends.filesystem import ingest
from engine_registry.engines import EngineDraft
from engine_registry.events import RolledBack
from engine_registry.refs import ReleaseRef
from engine_registry.registry import Registry, open_registry
from engine_registry.store import Ownership
from engine_registry.testing.samples import (
    SAMPLE_AT,
    SAMPLE_CHANNEL,
    SAMPLE_PRODUCT,
    live,
    sample_draft,
    sample_engine,
    sample_event,
    sample_promotion,
    sample_release,
    sample_report,
)
from engine_registry.verify import verify
from tests.faults.disk_full import Full, attempt
from tests.gc_world import DAY, World, assert_whole, numbers_of

_NEW = "the new engine"


@dataclass
class Scene:
    """A registry that every try begins from: two releases, the second live, an engine unreleased.

    Attributes:
        folder: of the registry, of what it was before, and of files that are not in it yet.
    """

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "registry"

    @property
    def registry(self) -> Registry:
        return open_registry(str(self.root), lambda: SAMPLE_AT)

    def build(self) -> None:
        for name in ("one", "two"):
            release = sample_release(self.registry, sample_engine(self.registry, name))
            sample_event(self.registry, sample_promotion(release))
        sample_engine(self.registry, "three")
        shutil.copytree(self.root, self.folder / "saved")

    def restore(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.copytree(self.folder / "saved", self.root)

    def draft(self, ownership: Ownership) -> EngineDraft:
        files = {"model.gguf": b"weights" * 9000, "config.json": b"{}"}
        return sample_draft(self.folder / "built", _NEW, files, ownership=ownership)

    def release(self, number: int):
        return self.registry.releases.release(ReleaseRef(SAMPLE_PRODUCT, number))

    def contents(self) -> dict[str, bytes]:
        files = self.registry.stores.inventory.files()
        return {file.name: (self.root / file.name).read_bytes() for file in files}


def _unreleased(scene: Scene):
    released = {scene.release(number).content.engine for number in (1, 2)}
    registry = scene.registry
    (found,) = (e for e in registry.engines.all_engines() if e not in released)
    return registry.engines.engine(found)


ACTS: dict[str, Callable[[Scene, Registry], object]] = {
    "ingest, a copy": lambda s, r: r.engines.put_engine(s.draft(Ownership.KEPT)),
    "ingest, a link": lambda s, r: r.engines.put_engine(s.draft(Ownership.GIVEN)),
    "attach": lambda s, r: sample_report(r, s.release(1).content.engine),
    "release": lambda s, r: sample_release(r, _unreleased(s)),
    "promote": lambda s, r: sample_event(
        r, sample_promotion(s.release(2)), operation="the promotion"
    ),
    "rollback": lambda s, r: sample_event(
        r, RolledBack(to=live(s.release(1)), reason="slower"), operation="the rollback"
    ),
}


def sweep(scene: Scene, name: str, full: Full, step: int) -> tuple[int, int]:
    """The disk is full at every `step`-th call; how many tries, and how many were refused."""
    act = ACTS[name]
    scene.restore()
    number = scene.registry.channels.state(SAMPLE_CHANNEL).number
    act(scene, scene.registry)
    expected = scene.contents()
    refused = 0
    for tries, at in enumerate(count(1, step)):
        scene.restore()
        registry = scene.registry
        was_full, was_refused = attempt(lambda r=registry: act(scene, r), at, full)
        if not was_full:
            assert scene.contents() == expected
            return tries, refused
        refused += was_refused
        assert verify(scene.registry).mismatches == (), f"{name}, call {at}"
        assert_whole(scene.registry)
        # There is room again: what was done is found done, what was not is done now.
        if scene.registry.channels.state(SAMPLE_CHANNEL).number == number:
            act(scene, scene.registry)
        assert {n: d for n, d in scene.contents().items() if not n.endswith("head.json")} == {
            n: d for n, d in expected.items() if not n.endswith("head.json")
        }, f"{name}, call {at}"
        assert_whole(scene.registry)
    raise AssertionError


@pytest.fixture
def scene(fast_dir: Path) -> Scene:
    made = Scene(fast_dir)
    made.build()
    return made


@pytest.mark.parametrize("name", ACTS)
def test_a_full_disk_at_any_write_of_an_act_is_said_and_leaves_nothing_half_done(
    scene: Scene, name: str, proved: Callable[[str], None]
) -> None:
    tries, refused = sweep(scene, name, Full.FROM_THEN_ON, step=11 if "ingest" in name else 5)
    assert refused > 0
    proved(f"full at {tries} writes, refused {refused}")


# Only an ingest writes files of an engine, and so can do it in both ways.
@pytest.mark.nightly
@pytest.mark.parametrize("full", list(Full))
@pytest.mark.parametrize(
    ("name", "ring"),
    [(name, False) for name in ACTS] + [(name, True) for name in ACTS if "ingest" in name],
)
def test_a_full_disk_at_every_write_of_an_act(
    scene: Scene,
    name: str,
    full: Full,
    ring: bool,
    monkeypatch: pytest.MonkeyPatch,
    proved: Callable[[str], None],
) -> None:
    if ring:
        monkeypatch.setattr(ingest, "RING_FROM_BYTES", 1)
    tries, refused = sweep(scene, name, full, step=1)
    proved(f"full at each of {tries} writes, {refused} refused, none half done")


def collected(world: World, full: Full, step: int, *, purge: bool) -> tuple[int, int]:
    """The disk is full at every `step`-th call of a collection."""
    refused = 0
    for tries, at in enumerate(count(1, step)):
        world.load()
        if purge:
            world.collector().discard()
            world.pass_time(2 * DAY)
        collector = world.collector()
        was_full, was_refused = attempt(collector.purge if purge else collector.discard, at, full)
        refused += was_refused
        assert_whole(world.registry())
        assert 3 in numbers_of(world.registry())
        # A file that was about to be moved counts as new: the next collection may have to wait.
        for _ in range(2):
            world.collector().discard()
            world.pass_time(2 * DAY)
        world.collector().purge()
        assert numbers_of(world.registry()) == [3]
        assert_whole(world.registry())
        if not was_full:
            return tries, refused
    raise AssertionError


@pytest.fixture
def littered(fast_dir: Path) -> World:
    """Three releases of which two may go, and an engine without a release."""
    world = World("filesystem", fast_dir)
    registry = world.registry()
    for name in ("one", "two", "three"):
        files = {"m.gguf": name.encode() * 20, "tokenizer.json": b"shared"}
        engine = sample_engine(registry, name, files)
        release = sample_release(
            registry, engine, evidence=(sample_report(registry, engine.digest),)
        )
        sample_event(registry, sample_promotion(release))
    sample_engine(registry, "never released")
    world.save()
    return world


@pytest.mark.parametrize("purge", [False, True], ids=["discard", "purge"])
def test_a_full_disk_at_any_write_of_a_collection_loses_nothing(
    littered: World, purge: bool, proved: Callable[[str], None]
) -> None:
    tries, refused = collected(littered, Full.FROM_THEN_ON, 40, purge=purge)
    proved(f"full at {tries} writes, refused {refused}")


@pytest.mark.nightly
@pytest.mark.parametrize("full", list(Full))
@pytest.mark.parametrize("purge", [False, True], ids=["discard", "purge"])
def test_a_full_disk_at_every_write_of_a_collection(
    littered: World, purge: bool, full: Full, proved: Callable[[str], None]
) -> None:
    tries, refused = collected(littered, full, 1, purge=purge)
    proved(f"full at each of {tries} writes, {refused} refused, nothing lost")
