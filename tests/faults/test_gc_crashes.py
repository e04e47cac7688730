"""Collectors that crash at every write, and with a full disk, beside writers; nothing is lost."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Lock

import pytest

from engine_registry import layout
from engine_registry.events import RolledBack
from engine_registry.refs import ReleaseRef
from engine_registry.registry import Registry
from engine_registry.testing.faults import CrashMode, FaultPlan, SimulatedCrash, faulty
from engine_registry.testing.samples import (
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
from tests.gc_world import DAY, World, assert_whole, engines_of, numbers_of

_MODES = pytest.mark.parametrize("mode", [CrashMode.BEFORE, CrashMode.AFTER])


@pytest.fixture(params=["memory", "filesystem"])
def world(request: pytest.FixtureRequest, fast_dir: Path) -> World:
    return World(request.param, fast_dir)


def fill(world: World) -> None:
    """Three releases of which two may go, an engine without a release, half an upload."""
    registry = world.registry()
    for name in ("one", "two", "three"):
        files = {"m.gguf": name.encode() * 20, "tokenizer.json": b"shared"}
        engine = sample_engine(registry, name, files)
        report = sample_report(registry, engine.digest)
        release = sample_release(registry, engine, evidence=(report,))
        sample_event(registry, sample_promotion(release))
    sample_engine(registry, "never released")
    registry.stores.blobs.add_bytes(b"half of an upload")
    world.save()
    world.load()


def final(world: World) -> None:
    assert numbers_of(world.registry()) == [3]
    assert len(engines_of(world.registry())) == 1
    assert_whole(world.registry())


@_MODES
def test_invariant_8_a_collector_that_dies_at_any_write_loses_nothing_and_a_rerun_finishes(
    world: World, mode: CrashMode, stride: int, proved: Callable[[str], None]
) -> None:
    fill(world)
    counting = FaultPlan()
    world.collector(world.registry(faulty(world.open(), counting))).discard()
    writes = counting.writes
    assert writes > 40
    final(world)

    for at in range(writes, 0, -stride):
        world.load()
        plan = FaultPlan(at, mode)
        with pytest.raises(SimulatedCrash):
            world.collector(world.registry(faulty(world.open(), plan))).discard()
        # What is visible is whole, at once and without anybody's help.
        assert_whole(world.registry())
        world.collector().discard()
        final(world)
        if at % 5 == 0:
            world.pass_time(2 * DAY)
            world.collector().discard()
            world.pass_time(2 * DAY)
            world.collector().purge()
            assert world.names(trash=True) == set(), f"write {at}"
            final(world)
    proved(f"{writes} writes of discard, died at 1 in {stride}")


@_MODES
def test_invariant_8_a_purge_that_dies_at_any_write_loses_nothing_and_a_rerun_finishes(
    world: World, mode: CrashMode, stride: int, proved: Callable[[str], None]
) -> None:
    def finished() -> None:
        registry = world.registry()
        assert registry.channels.state(SAMPLE_CHANNEL).live.number == 1
        assert numbers_of(registry) == [1, 2, 3]  # on hold: the whole window is kept
        assert_whole(registry)

    fill(world)
    first = world.registry().releases.release(ReleaseRef(SAMPLE_PRODUCT, 1))
    world.collector().discard()
    # The first release is named again: the purge has to put it back before it purges.
    sample_event(world.registry(), RolledBack(to=live(first), reason="three is slow"))
    world.save()
    world.load()
    counting = FaultPlan()
    world.collector(world.registry(faulty(world.open(), counting))).purge()
    finished()
    assert counting.writes > 40
    for at in range(counting.writes, 0, -stride):
        world.load()
        plan = FaultPlan(at, mode)
        with pytest.raises(SimulatedCrash):
            world.collector(world.registry(faulty(world.open(), plan))).purge()
        world.collector().purge()
        finished()
        world.pass_time(2 * DAY)  # what told of the releases that are back
        world.collector().purge()
        assert world.names(trash=True) == set(), f"write {at}"
    proved(f"{counting.writes} writes of purge, died at 1 in {stride}")


class _Kernel:
    """Counts system calls that change a disk and dies in the n-th; none follows."""

    CALLS = ("mkdir", "link", "unlink", "replace", "rename", "rmdir", "write", "fsync", "chmod")

    def __init__(self, at: int, mode: CrashMode) -> None:
        self._calls = 0
        self._at = at
        self._mode = mode
        self._lock = Lock()

    def wrap(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            with self._lock:
                self._calls += 1
                number = self._calls
            if number < self._at:
                return real(*arguments, **options)
            if number == self._at and self._mode is CrashMode.AFTER:
                real(*arguments, **options)
            raise SimulatedCrash(f"system call {number}: {name}")

        return call


@contextmanager
def kernel(at: int, mode: CrashMode) -> Iterator[None]:
    dying = _Kernel(at, mode)
    with pytest.MonkeyPatch.context() as patch:
        for name in _Kernel.CALLS:
            patch.setattr(os, name, dying.wrap(name, getattr(os, name)))
        yield


@_MODES
def test_invariant_8_a_move_into_or_out_of_the_trash_survives_death_at_any_system_call(
    fast_dir: Path, mode: CrashMode
) -> None:
    world = World("filesystem", fast_dir)
    for at in count(1):
        world.clear()
        engine = sample_engine(world.registry())
        names = [layout.blob(engine.digest), layout.blob(engine.manifest.layers[0].digest)]
        names += [name for name in world.names() if name.startswith(("records", "keys"))]
        trash = world.open().trash
        try:
            with kernel(at, mode):
                for name in names:
                    trash.discard(name, 0 * DAY)
                for name in names:
                    trash.restore(name)
        except SimulatedCrash:
            for name in names:
                world.open().trash.restore(name)
        else:
            break
        assert world.registry().engines.check_engine(engine.digest) == engine
        assert verify(world.registry()).mismatches == ()
        assert not {n for n in world.names(trash=True) if n.removeprefix("trash/") not in names}
    assert at > 30


@_MODES
def test_a_writer_that_dies_while_its_engine_is_collected_finishes_when_run_again(
    world: World, fast_dir: Path, mode: CrashMode
) -> None:
    """Every write of a rebuild is followed, or preceded, by a whole collection without grace."""
    draft = sample_draft(fast_dir / "built", "one", {"m.gguf": b"w" * 500, "t.json": b"shared"})

    sample_engine(world.registry(), "old", {"m.gguf": b"old" * 20, "t.json": b"shared"})
    world.save()
    world.load()
    counting = FaultPlan()
    world.registry(faulty(world.open(), counting)).engines.put_engine(draft)
    for at in range(1, counting.writes + 1):
        world.load()
        crashing = world.registry(faulty(world.open(), FaultPlan(at, mode)))
        with pytest.raises(SimulatedCrash):
            crashing.engines.put_engine(draft)
        world.collector().discard()
        assert_whole(world.registry())
        again: Registry = world.registry()
        engine = again.engines.put_engine(draft)
        again.engines.check_engine(engine.digest)
        assert_whole(again)
