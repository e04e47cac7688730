"""The index says what a scan of the registry says, at the cost of what was touched since."""

import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from engine_registry.backends.memory import memory_stores
from engine_registry.errors import NotFound, Unavailable
from engine_registry.index import GateNames, Index
from engine_registry.index_query import EngineQuery, _conditions
from engine_registry.manifest import REPORT_ARTIFACT
from engine_registry.refs import ProductRef
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import (
    SAMPLE_AT,
    TickingClock,
    sample_engine,
    sample_key,
    sample_release,
)
from engine_registry.touched import Act
from tests.gc_world import DAY, World

NAMES = GateNames(artifact_type=REPORT_ARTIFACT, gate="gate", outcome="outcome", created="at")
OTHER = ProductRef("large", "h100-sxm-80gb")


@pytest.fixture
def index(registry: Registry, tmp_path: Path) -> Index:
    return Index(registry, tmp_path / "index.sqlite", NAMES)


def report(registry, engine, outcome, at, gate="core"):
    notes = {"gate": gate, "outcome": outcome, "at": at}
    body = f"{gate} {outcome} {at}".encode()
    files = [("report.json", body, "application/json")]
    registry.engines.attach(engine.digest, REPORT_ARTIFACT, files, notes)


def digests(index: Index, **query) -> set[str]:
    return {engine.digest.hex for engine in index.find(EngineQuery(**query)).engines}


def test_an_engine_is_listed_with_its_releases_and_the_newest_report_of_each_gate(registry, index):
    engine = sample_engine(registry, "one")
    report(registry, engine, "failed", "2026-03-02")
    report(registry, engine, "passed", "2026-03-03")
    report(registry, engine, "failed", "2026-03-01")
    report(registry, engine, "inconclusive", "2026-03-01", gate="speed")
    release = sample_release(registry, engine)
    index.refresh()
    found = index.find(EngineQuery())
    assert found.total == 1
    (listed,) = found.engines
    assert listed.digest == engine.digest
    assert listed.product == "tiny/cpu"
    assert listed.size_bytes == engine.records[0].size_bytes
    assert listed.built_at == engine.records[0].built_at
    assert listed.releases == (release.number,)
    assert listed.gates == {"core": "passed", "speed": "inconclusive"}


def test_only_what_was_touched_is_read_again(tmp_path):
    clock = TickingClock()
    registry = Registry(memory_stores(clock), clock)
    index = Index(registry, tmp_path / "index.sqlite", NAMES)
    old = [sample_engine(registry, f"old {number}") for number in range(3)]
    assert index.refresh() == 3
    assert index.refresh() == 3  # noted a moment ago: perhaps what it tells of came later
    clock._now += timedelta(minutes=5)
    assert index.refresh() == 3
    assert index.refresh() == 0
    new = sample_engine(registry, "new")
    report(registry, old[0], "passed", "2026-03-01")
    assert index.refresh() == 2
    assert new.digest.hex in digests(index)
    assert digests(index, outcome="passed") == {old[0].digest.hex}


def test_a_note_that_was_met_before_its_engine_is_followed_again(tmp_path):
    clock = TickingClock()
    stores = memory_stores(clock)
    registry = Registry(stores, clock)
    engine = sample_engine(Registry(memory_stores(clock), clock), "late")
    registry.touches.note(engine.digest, Act.RECORDED)
    index = Index(registry, tmp_path / "index.sqlite", NAMES)
    index.refresh()
    assert digests(index) == set()
    # Its own note is of long ago: only the first one, met already, leads to it.
    long_ago = TickingClock(SAMPLE_AT - timedelta(days=300))
    assert sample_engine(Registry(stores, long_ago), "late").digest == engine.digest
    index.refresh()
    assert digests(index) == {engine.digest.hex}


def test_a_removed_engine_and_its_release_leave_the_index(tmp_path):
    world = World("memory", tmp_path)
    registry = world.registry()
    first, second = sample_engine(registry, "one"), sample_engine(registry, "two")
    sample_release(registry, first)
    sample_release(registry, second)
    index = Index(registry, tmp_path / "index.sqlite", NAMES)
    index.refresh()
    world.pass_time(2 * DAY)
    assert world.collector(registry).discard().discarded_files
    index.refresh()
    (left,) = index.find(EngineQuery()).engines
    assert (left.digest, left.releases) == (second.digest, (2,))
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as connection:
        assert connection.execute("SELECT COUNT(*) FROM releases").fetchone() == (1,)


def test_filters_narrow_and_hold_together(registry, index):
    small = sample_engine(registry, "small")
    large = sample_engine(registry, "large", product=OTHER)
    sample_release(registry, small)
    index.refresh()
    both, small_only, large_only = (
        {small.digest.hex, large.digest.hex},
        {small.digest.hex},
        {large.digest.hex},
    )
    assert digests(index, kind="llama-cpp", precision="int8") == both
    assert digests(index, product="large/*") == large_only
    assert digests(index, product="*[*") == set()
    assert digests(index, is_released=True) == small_only
    assert digests(index, is_released=False) == large_only
    assert digests(index, text=small.digest.hex[:9]) == small_only
    assert digests(index, text=str(sample_key("large"))) == large_only
    assert digests(index, text="h100") == large_only
    assert digests(index, text="' OR 1=1 --") == set()
    assert digests(index, product="tiny/*", is_released=False) == set()
    built = small.records[0].built_at
    assert digests(index, built_since=built) == both
    assert digests(index, built_since=built + timedelta(microseconds=1)) == set()


def test_the_limit_cuts_the_page_and_not_the_count(registry, index):
    for number in range(4):
        sample_engine(registry, str(number))
    index.refresh()
    found = index.find(EngineQuery(limit=3))
    assert (len(found.engines), found.total) == (3, 4)


@pytest.mark.parametrize("damage", ["deleted", "garbage", "truncated", "other kind"])
def test_an_unusable_index_is_made_anew(registry, index, tmp_path, damage):
    engine = sample_engine(registry, "one")
    index.refresh()
    path = tmp_path / "index.sqlite"
    if damage == "deleted":
        path.unlink()
    elif damage == "garbage":
        path.write_bytes(b"no database at all" * 400)
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:5000])
    else:
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("UPDATE meta SET value = 'another' WHERE name = 'kind'")
            connection.commit()
    index.refresh()
    assert digests(index) == {engine.digest.hex}


def test_the_index_of_another_registry_at_this_address_is_not_believed(tmp_path):
    path = tmp_path / "index.sqlite"
    for start in (TickingClock(), TickingClock(TickingClock()() + DAY)):
        registry = Registry(memory_stores(start), start)
        engine = sample_engine(registry, str(start()))
        index = Index(registry, path, NAMES)
        index.refresh()
        assert digests(index) == {engine.digest.hex}


def test_a_refresh_that_dies_leaves_the_index_as_it_was(registry, index):
    first = sample_engine(registry, "one")
    index.refresh()
    second = sample_engine(registry, "two")

    def dies(done: int, of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index.refresh(on_read=dies)
    assert digests(index) == {first.digest.hex}
    index.refresh()
    assert digests(index) == {first.digest.hex, second.digest.hex}


def test_an_index_older_than_the_notes_it_needs_is_made_anew(tmp_path):
    clock = TickingClock()
    registry = Registry(memory_stores(clock), clock)
    engine = sample_engine(registry, "one")
    index = Index(registry, tmp_path / "index.sqlite", NAMES)
    index.refresh()
    clock._now += timedelta(days=51)
    assert index.refresh() == 1
    assert digests(index) == {engine.digest.hex}


def test_without_a_registry_there_is_nothing_to_list(tmp_path):
    index = Index(open_registry(f"file://{tmp_path}/none"), tmp_path / "index.sqlite", NAMES)
    with pytest.raises(NotFound, match="registry"):
        index.refresh()
    assert not (tmp_path / "index.sqlite").exists()


def test_an_index_that_cannot_be_written_is_one_clear_error(registry, tmp_path):
    sample_engine(registry, "one")
    (tmp_path / "file").write_text("in the way")
    index = Index(registry, tmp_path / "file" / "index.sqlite", NAMES)
    with pytest.raises(Unavailable, match="index"):
        index.refresh()


@pytest.mark.parametrize(
    "query",
    [
        EngineQuery(),
        EngineQuery(product="tiny/cpu"),
        EngineQuery(product="tiny/*", precision="int8", kind="llama-cpp"),
        EngineQuery(outcome="passed", is_released=True),
        EngineQuery(is_released=False, built_since=SAMPLE_AT),
        EngineQuery(text="abcdef12"),
    ],
    ids=str,
)
def test_no_question_looks_up_an_engine_that_it_does_not_show(index, tmp_path, query):
    index.refresh()
    with closing(sqlite3.connect(tmp_path / "index.sqlite")) as connection:
        where, values = _conditions(query)
        for asked in ("COUNT(*)", "e.digest"):
            order = "" if asked == "COUNT(*)" else "ORDER BY e.built_at DESC, e.digest LIMIT 5"
            sql = f"EXPLAIN QUERY PLAN SELECT {asked} FROM engines e {where} {order}"
            steps = [row[3] for row in connection.execute(sql, values)]
            reads = [step for step in steps if step.startswith(("SCAN e", "SEARCH e"))]
            assert reads
            assert all("COVERING INDEX" in step for step in reads), steps
            assert "USE TEMP B-TREE FOR ORDER BY" not in steps
