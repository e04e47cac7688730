"""A node's cache: what it spares, what it never hands out, and what it survives."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.backends.memory import memory_stores
from engine_registry.backends.node_cache import NodeCache
from engine_registry.cache_plan import Claim, ClaimedRelease
from engine_registry.digest import Digest
from engine_registry.drafts import StoredEngine
from engine_registry.errors import IntegrityError, NotFound, Unavailable
from engine_registry.registry import Registry, open_registry
from engine_registry.store import BlobStore, Stores
from engine_registry.testing.faults import CrashMode, SimulatedCrash
from engine_registry.testing.samples import TickingClock, sample_engine, sample_files
from tests.faults.test_crash_at_every_write import kernel
from tests.unit.targets.yard import memory_dir

CLOCK = TickingClock()
PLENTY = 1 << 30
USERS = Path(__file__).with_name("cache_users.py")


class Watched:
    """A blob store that notes what is fetched from it, and may send something else."""

    def __init__(self, inner: BlobStore) -> None:
        self._inner = inner
        self.fetched: list[Digest] = []
        self.sends: bytes | None = None
        self.fails: Unavailable | None = None

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def materialise(self, digest: Digest, path: Path) -> None:
        self.fetched.append(digest)
        if self.fails is not None:
            raise self.fails
        if self.sends is not None:
            path.write_bytes(self.sends)
        else:
            self._inner.materialise(digest, path)


class Far:
    """A registry that is far away, and this node."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "cache" / "engines"
        inner = memory_stores(CLOCK)
        self.blobs = Watched(inner.blobs)
        self.stores: Stores = replace(inner, blobs=self.blobs)
        self.limit = PLENTY

    @property
    def cache(self) -> NodeCache:
        """As a process that starts now has it."""
        return NodeCache(self.root, self.limit, CLOCK)

    @property
    def registry(self) -> Registry:
        return Registry(self.stores, CLOCK, near=self.cache.holding)

    def engine(self, name: str) -> StoredEngine:
        return sample_engine(self.registry, name)

    def lay_out(self, engine: StoredEngine, name: str) -> dict[str, bytes]:
        """The engine's files after they were laid out; what was fetched is noted anew."""
        self.blobs.fetched.clear()
        place = self.folder / name
        shutil.rmtree(place, ignore_errors=True)
        self.registry.engines.materialise(engine.digest, place)
        return {title: (place / title).read_bytes() for title in sample_files("")}

    def claim(self, *engines: StoredEngine) -> Path:
        place = self.folder / "srv"
        place.mkdir(exist_ok=True)
        releases = tuple(
            ClaimedRelease(number=len(engines) - n, engine=engine.digest)
            for n, engine in enumerate(engines)
        )
        self.cache.claim(
            Claim(channel="tiny/cpu/prod", place=str(place), releases=releases, at=CLOCK())
        )
        return place

    def kept(self) -> set[Digest]:
        return {one.held.entry.engine for one in self.cache.survey().kept}

    def stored(self) -> set[str]:
        return {path.name for path in (self.root / "store" / layout.BLOBS).glob("*")}


@pytest.fixture
def far() -> Iterator[Far]:
    with memory_dir() as folder:
        yield Far(folder)


def test_an_engine_that_is_here_is_linked_into_place_and_nothing_is_fetched(far: Far):
    engine = far.engine("a")
    assert far.lay_out(engine, "one") == sample_files("a")
    assert len(far.blobs.fetched) == 3
    assert far.lay_out(engine, "two") == sample_files("a")
    assert far.blobs.fetched == []
    assert (far.folder / "one/model.gguf").samefile(far.folder / "two/model.gguf")
    assert (far.folder / "one/model.gguf").stat().st_mode & 0o222 == 0


def test_a_store_that_hashes_on_the_way_is_not_hashed_again(far: Far, monkeypatch):
    engine = far.engine("a")
    far.stores = replace(far.stores, hashes_on_the_way=True)
    hashed: list[int] = []
    ingest = "engine_registry.backends.filesystem.ingest.hash_"
    monkeypatch.setattr(f"{ingest}and_sync", lambda fd, size: hashed.append(fd))
    monkeypatch.setattr(f"{ingest}file", hashed.append)
    assert far.lay_out(engine, "one") == far.lay_out(engine, "two") == sample_files("a")
    assert hashed == []


def test_a_file_that_was_damaged_here_is_fetched_again(far: Far):
    engine = far.engine("a")
    far.lay_out(engine, "one")
    (layer,) = (layer for layer in engine.manifest.layers if layer.title == "model.gguf")
    blob = far.root / "store" / layout.blob(layer.digest)
    blob.chmod(0o644)
    blob.write_bytes(blob.read_bytes()[:-1] + b"!")
    assert far.lay_out(engine, "two") == sample_files("a")
    assert far.blobs.fetched == [layer.digest]


def test_bytes_that_arrive_wrong_are_refused_and_not_kept(far: Far):
    engine = far.engine("a")
    far.blobs.sends = b"something else"
    with pytest.raises(IntegrityError, match="arrived with digest"):
        far.lay_out(engine, "one")
    assert far.stored() == set()
    assert not (far.folder / "one").exists()
    far.blobs.sends = None
    assert far.lay_out(engine, "one") == sample_files("a")


def test_room_is_made_by_evicting_what_was_not_used_for_longest(far: Far):
    first, second, third = (far.engine(name) for name in "abc")
    far.limit = first.size_bytes + second.size_bytes
    far.lay_out(first, "one")
    far.lay_out(second, "two")
    far.lay_out(first, "again")
    far.lay_out(third, "three")
    assert far.kept() == {first.digest, third.digest}
    assert far.stored() == {
        part.digest.hex for engine in (first, third) for part in engine.manifest.layers
    }
    assert far.lay_out(second, "two") == sample_files("b")
    assert len(far.blobs.fetched) == 3


def test_what_a_place_here_serves_is_never_evicted(far: Far):
    live, before, other = (far.engine(name) for name in "abc")
    far.limit = other.size_bytes
    place = far.claim(live, before)
    far.lay_out(before, "before")
    far.lay_out(live, "live")
    assert far.cache.survey().over_bytes > 0
    assert far.lay_out(other, "other") == sample_files("c")
    assert far.kept() == {live.digest, before.digest}
    assert far.cache.trim(0).evicted == ()
    place.rmdir()
    assert len(far.cache.trim(0).evicted) == 2
    assert far.stored() == set()


def test_an_engine_for_which_there_is_no_room_is_laid_out_all_the_same(far: Far):
    engine = far.engine("a")
    far.limit = engine.size_bytes - 1
    assert far.lay_out(engine, "one") == sample_files("a")
    assert far.kept() == set()
    assert list((far.root / "engines").iterdir()) == []
    assert not far.cache.fill(engine, far.stores)


def test_an_engine_in_use_outlives_every_trim(far: Far):
    engine = far.engine("a")
    with far.cache.holding(engine, far.stores) as blobs:
        assert far.cache.trim(0).evicted == ()
        blobs.materialise(engine.manifest.layers[0].digest, far.folder / "file")
    assert len(far.cache.trim(0).evicted) == 1


def test_a_disk_that_refuses_costs_only_the_saving(far: Far, caplog):
    engine = far.engine("a")
    far.root.parent.mkdir()
    far.root.write_text("in the way")
    assert far.lay_out(engine, "one") == sample_files("a")
    assert "is not cached" in caplog.text
    with pytest.raises(Unavailable) as refused:
        far.cache.fill(engine, far.stores)
    assert refused.value.name == "cache-not-usable"


def test_a_registry_that_is_down_is_asked_once_and_said_to_be_down(far: Far):
    engine = far.engine("a")
    far.blobs.fails = Unavailable("far: down", hint="wait", reference="store-unreachable")
    with pytest.raises(Unavailable) as refused:
        far.lay_out(engine, "one")
    assert refused.value.name == "store-unreachable"
    assert len(far.blobs.fetched) == 1


def test_a_missing_blob_is_said_to_be_missing(far: Far):
    engine = far.engine("a")
    with pytest.raises(NotFound), far.cache.holding(engine, memory_stores(CLOCK)):
        pass


def test_entries_lost_with_the_power_cost_only_the_saving(far: Far):
    first, second = far.engine("a"), far.engine("b")
    far.lay_out(first, "one")
    far.lay_out(second, "two")
    for path in (far.root / "engines").glob("*.json"):
        path.write_bytes(b"")
    assert far.kept() == set()
    assert far.lay_out(first, "one") == sample_files("a")
    assert far.stored() == {part.digest.hex for part in first.manifest.layers}


KILLED_WHILE_FETCHING = """
import sys
from pathlib import Path
from engine_registry.backends import node_cache
from engine_registry.backends.node_cache import NodeCache
from engine_registry.registry import open_registry, utc_now

root, cache = sys.argv[1:]
registry = open_registry(root)
registry.engines._near = NodeCache(Path(cache), 1 << 30, utc_now).holding
real, seen = type(registry.stores.blobs).materialise, []

def stop(self, digest, path):
    real(self, digest, path)
    seen.append(digest)
    if len(seen) == 2:
        print("in the middle", flush=True)
        sys.stdin.read()

type(registry.stores.blobs).materialise = stop
(engine,) = registry.engines.all_engines()
registry.engines.materialise(engine, Path(cache).parent / "laid out")
"""


def python(*arguments: object, **options) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )


def test_a_process_killed_while_it_fetches_holds_nobody_up_and_its_work_is_used(far: Far):
    far.root.parent.mkdir()
    url = f"file://{far.folder}/registry"
    engine = sample_engine(open_registry(url), "a")
    victim = python("-c", KILLED_WHILE_FETCHING, url, far.root)
    assert victim.stdout is not None
    assert victim.stdout.readline() == "in the middle\n"
    assert far.cache.trim(0).evicted == ()  # in use
    victim.send_signal(signal.SIGKILL)
    victim.wait()
    victim.communicate()

    assert len(far.stored()) == 1
    survey = far.cache.survey()
    assert survey.kept[0].held.missing_bytes > 0
    real = open_registry(url).stores
    far.blobs = Watched(real.blobs)
    far.stores = replace(real, blobs=far.blobs)
    assert far.lay_out(engine, "one") == sample_files("a")
    assert len(far.blobs.fetched) == 2
    assert not (far.root.parent / "laid out").exists()


@pytest.mark.parametrize("mode", [CrashMode.BEFORE, CrashMode.AFTER])
def test_death_at_any_system_call_costs_at_most_what_was_being_fetched(far: Far, mode: CrashMode):
    """One engine is fetched while another has to go for it."""
    old, new = far.engine("a"), far.engine("b")
    far.limit = max(old.size_bytes, new.size_bytes)
    for at in count(1):
        shutil.rmtree(far.root, ignore_errors=True)
        assert far.lay_out(old, "old") == sample_files("a")
        try:
            with kernel(at, mode), far.cache.holding(new, far.stores):
                pass
        except SimulatedCrash:
            assert far.lay_out(old, "old") == sample_files("a")
            assert far.lay_out(new, "new") == sample_files("b")
            assert far.kept() == {new.digest}
            assert far.stored() == {part.digest.hex for part in new.manifest.layers}
        else:
            break
    assert at > 50


def test_processes_that_fetch_and_evict_at_once_never_see_half_an_engine(far: Far, proved):
    url = f"file://{far.folder}/registry"
    registry = open_registry(url)
    engines = [sample_engine(registry, f"engine {number}") for number in range(6)]
    limit = 3 * max(engine.size_bytes for engine in engines)
    done = python(USERS, url, far.root, limit, 6, 12)
    out, _ = done.communicate(timeout=120)
    assert done.returncode == 0
    answers = [json.loads(line) for line in out.splitlines()]
    assert len(answers) == 6
    assert all(answer["whole"] == 12 for answer in answers)
    survey = NodeCache(far.root, limit, CLOCK).survey()
    assert survey.kept_bytes <= limit
    assert far.stored() <= {blob.hex for blob in survey.kept_blobs}
    totals = {key: sum(answer[key] for answer in answers) for key in answers[0]}
    proved(str(totals))
