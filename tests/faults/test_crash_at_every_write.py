"""The process dies at each write in turn: what is left is whole, and a rerun finishes it."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import count
from pathlib import Path
from threading import Lock

import pytest

from engine_registry import layout
from engine_registry.backends.filesystem import file_stores
from engine_registry.backends.memory import memory_stores
from engine_registry.engines import EngineDraft
from engine_registry.events import Frozen, RolledBack
from engine_registry.registry import Registry
from engine_registry.store import Ownership, Stores
from engine_registry.testing.faults import CrashMode, FaultPlan, SimulatedCrash, faulty
from engine_registry.testing.samples import (
    SAMPLE_ACTOR,
    SAMPLE_AT,
    SAMPLE_CHANNEL,
    live,
    sample_draft,
    sample_promotion,
    sample_release,
    sample_report,
)
from engine_registry.verify import verify
from tests.faults.whole import assert_nothing_incomplete_is_visible, was_founded


def fixed_clock() -> datetime:
    # A rerun writes what the first run would have: final states can be compared byte by byte.
    return SAMPLE_AT


def move(registry: Registry, number: int, change) -> None:
    registry.channels.append(
        SAMPLE_CHANNEL,
        decided_on=number - 1,
        change=change,
        actor=SAMPLE_ACTOR,
        at=registry.clock(),
        operation=f"operation {number}",
    )


def story(registry: Registry, drafts: list[EngineDraft]) -> None:
    """Two engines from build to production, a freeze, and back."""
    releases = []
    for number, draft in enumerate(drafts, 1):
        engine = registry.engines.put_engine(draft)
        report = sample_report(registry, engine.digest)
        release = sample_release(registry, engine, evidence=(report,))
        releases.append(release)
        move(registry, number, sample_promotion(release))
    move(registry, len(drafts) + 1, Frozen(reason="incident"))
    move(registry, len(drafts) + 2, RolledBack(to=live(releases[0]), reason="slower"))


def contents(stores: Stores, root: Path | None) -> dict[str, bytes]:
    if root is None:
        return {
            file.name: stores.documents.read(file.name)  # every name is in one dictionary
            for file in stores.inventory.files()
        }
    return {file.name: (root / file.name).read_bytes() for file in stores.inventory.files()}


class World:
    """A store of one kind that can be reopened, and how it leaves half a write."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.root = None if kind == "memory" else folder / "registry"
        self._files: dict[str, bytes] = {}

    def open(self) -> Stores:
        if self.root is None:
            return memory_stores(fixed_clock, self._files)
        return file_stores(self.root, fixed_clock)

    def tear(self, data: bytes) -> None:
        if self.root is not None:
            (self.root / "tmp").mkdir(parents=True, exist_ok=True)
            (self.root / "tmp" / "12345-0123456789abcdef").write_bytes(data)

    def clear(self) -> None:
        self._files.clear()
        if self.root is not None:
            shutil.rmtree(self.root, ignore_errors=True)


@pytest.fixture(params=["memory", "filesystem"])
def world(request: pytest.FixtureRequest, fast_dir: Path) -> World:
    return World(request.param, fast_dir)


def _drafts(folder: Path, number: int = 2) -> list[EngineDraft]:
    return [
        sample_draft(
            folder / name, name, {"config.json": name.encode(), "m.gguf": b"w" + name.encode()}
        )
        for name in ("one", "two")[:number]
    ]


@pytest.mark.parametrize("mode", list(CrashMode))
def test_invariant_9_a_crash_at_any_write_leaves_a_whole_registry_that_a_rerun_finishes(
    world: World,
    fast_dir: Path,
    mode: CrashMode,
    stride: int,
    proved: Callable[[str], None],
) -> None:
    drafts = _drafts(fast_dir / "built")
    counting = FaultPlan()
    story(Registry(faulty(world.open(), counting), fixed_clock), drafts)
    expected = contents(world.open(), world.root)
    assert counting.writes > 30

    for at in range(counting.writes, 0, -stride):
        world.clear()
        plan = FaultPlan(at, mode, world.tear)
        with pytest.raises(SimulatedCrash):
            story(Registry(faulty(world.open(), plan), fixed_clock), drafts)
        reopened = Registry(world.open(), fixed_clock)
        if was_founded(reopened):
            assert_nothing_incomplete_is_visible(reopened)
        story(reopened, drafts)
        assert contents(world.open(), world.root) == expected, f"write {at}"
    proved(f"{counting.writes} writes, died at 1 in {stride}, nothing half visible")


def test_invariant_9_repeating_the_finished_story_writes_nothing(
    world: World, fast_dir: Path
) -> None:
    drafts = _drafts(fast_dir / "built")
    story(Registry(world.open(), fixed_clock), drafts)
    before = contents(world.open(), world.root)
    story(Registry(world.open(), fixed_clock), drafts)
    assert contents(world.open(), world.root) == before


# What the file system adapter may do to a disk. `pathlib` goes through these too.
_SYSTEM_CALLS = (
    "mkdir",
    "link",
    "unlink",
    "replace",
    "rename",
    "write",
    "pwrite",
    "fsync",
    "fchmod",
    "utime",
)
_WRITES = ("write", "pwrite")


class _Kernel:
    """Counts system calls and dies in the n-th; a dead process makes no further one."""

    def __init__(self, at: int, mode: CrashMode) -> None:
        self._calls = 0
        self._at = at
        self._mode = mode
        self._lock = Lock()

    def wrap(self, name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            with self._lock:
                # Only a write can be torn; to die before other calls is a mode of its own.
                self._calls += name in _WRITES or self._mode is not CrashMode.TORN
                number = self._calls
            if number < self._at:
                return real(*arguments, **options)
            if number == self._at:
                if self._mode is CrashMode.AFTER:
                    real(*arguments, **options)
                if self._mode is CrashMode.TORN and name in _WRITES:
                    half = bytes(arguments[1])  # type: ignore[call-overload]
                    real(arguments[0], half[: len(half) // 2], *arguments[2:])
            raise SimulatedCrash(f"system call {number}: {name}")

        return call


@contextmanager
def kernel(at: int, mode: CrashMode) -> Iterator[None]:
    dying = _Kernel(at, mode)
    with pytest.MonkeyPatch.context() as patch:
        for name in _SYSTEM_CALLS:
            patch.setattr(os, name, dying.wrap(name, getattr(os, name)))
        yield


@pytest.mark.parametrize("mode", list(CrashMode))
def test_invariant_9_a_crash_at_any_system_call_leaves_a_whole_registry_that_a_rerun_finishes(
    fast_dir: Path, mode: CrashMode, stride: int, proved: Callable[[str], None]
) -> None:
    world = World("filesystem", fast_dir)
    drafts = _drafts(fast_dir / "built", 1)
    story(Registry(world.open(), fixed_clock), drafts)
    expected = contents(world.open(), world.root)

    # How many calls there are differs by a few, as two threads may make a directory at once.
    for at in count(1, stride):
        world.clear()
        try:
            with kernel(at, mode):
                story(Registry(world.open(), fixed_clock), drafts)
        except SimulatedCrash:
            reopened = Registry(world.open(), fixed_clock)
            if was_founded(reopened):
                assert_nothing_incomplete_is_visible(reopened)
            story(reopened, drafts)
            assert contents(world.open(), world.root) == expected, f"system call {at}"
        else:
            break
    assert at > (25 if mode is CrashMode.TORN else 150)
    proved(f"died at 1 in {stride} of {at} system calls, nothing half visible")


# Such a file is linked or renamed, never written.
@pytest.mark.parametrize("mode", [CrashMode.BEFORE, CrashMode.AFTER])
def test_a_given_file_survives_a_crash_at_any_system_call_of_its_ingest(
    fast_dir: Path, mode: CrashMode
) -> None:
    data = b"engine bytes " * 1000
    for at in count(1):
        world = World("filesystem", fast_dir)
        world.clear()
        world.open().blobs.add_bytes(b"founds it")
        source = fast_dir / "engine.bin"
        source.unlink(missing_ok=True)
        source.write_bytes(data)
        try:
            with kernel(at, mode):
                world.open().blobs.add_file(source, Ownership.GIVEN)
        except SimulatedCrash:
            assert source.read_bytes() == data
            assert verify(Registry(world.open(), fixed_clock)).mismatches == ()
            stored = world.open().blobs.add_file(source, Ownership.GIVEN)
            assert world.root is not None
            assert (world.root / layout.blob(stored.digest)).samefile(source)
        else:
            break
    assert at > 8
