"""Releases and engines from one registry to another."""

import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.backends.memory import memory_stores
from engine_registry.digest import Digest
from engine_registry.documents import seal
from engine_registry.errors import Conflict, IntegrityError, NotFound
from engine_registry.manifest import REPORT_ARTIFACT
from engine_registry.record import Record, Release
from engine_registry.refs import ReleaseRef
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.faults import CrashMode, FaultPlan, SimulatedCrash, faulty
from engine_registry.testing.samples import (
    SAMPLE_ACTOR,
    SAMPLE_CHANNEL,
    SAMPLE_PRODUCT,
    TickingClock,
    sample_draft,
    sample_engine,
    sample_event,
    sample_files,
    sample_promotion,
    sample_release,
    sample_report,
)
from engine_registry.transfer import Arrival, transfer
from engine_registry.transfer_cargo import refs_of
from engine_registry.transfer_plan import ReleaseStep
from engine_registry.verify import verify

ONE = ReleaseRef(SAMPLE_PRODUCT, 1)
BIG = {"model.gguf": b"weights of a large engine " * 60_000, "config.json": b"{}"}


def in_memory() -> Registry:
    clock = TickingClock()
    return Registry(memory_stores(clock), clock)


def move(source: Registry, what: Digest | ReleaseRef, to: Registry, **options: bool) -> Arrival:
    return transfer(source, what, to, actor=SAMPLE_ACTOR, **options)


def names_in(registry: Registry) -> list[str]:
    with suppress(NotFound):
        return sorted(
            f.name for f in registry.stores.inventory.files() if f.name != "registry.json"
        )
    return []


def released(
    registry: Registry, name: str = "tiny", files: dict[str, bytes] | None = None
) -> Release:
    engine = sample_engine(registry, name, files)
    report = sample_report(registry, engine.digest)
    return sample_release(registry, engine, evidence=(report,))


@pytest.fixture(params=["memory", "filesystem"])
def other(request: pytest.FixtureRequest, tmp_path: Path) -> Registry:
    if request.param == "memory":
        return in_memory()
    return open_registry(f"file://{tmp_path / 'other'}", TickingClock())


def test_a_release_arrives_with_its_number_and_everything_that_belongs_to_it(
    registry: Registry, other: Registry, tmp_path: Path
) -> None:
    release = released(registry, files=BIG)
    arrival = move(registry, ONE, other)
    assert arrival.step is ReleaseStep.CREATE
    assert arrival.release == release.name
    assert other.releases.release(ONE) == release
    assert verify(other).is_whole
    engine = release.content.engine
    assert other.engines.referrers(engine) == registry.engines.referrers(engine)
    assert other.engines.find_by_key(other.engines.records(engine)[0].build_key) is not None
    other.engines.materialise(engine, tmp_path / "out")
    assert (tmp_path / "out" / "model.gguf").read_bytes() == BIG["model.gguf"]


def test_a_second_transfer_sends_nothing_and_changes_nothing(
    registry: Registry, other: Registry
) -> None:
    released(registry)
    first = move(registry, ONE, other)
    before = sorted(file.name for file in other.stores.inventory.files())
    again = move(registry, ONE, other)
    assert first.sent == first.blobs > 0
    assert (again.sent, again.sent_bytes) == (0, 0)
    assert again.step is ReleaseStep.KEEP
    assert sorted(file.name for file in other.stores.inventory.files()) == before


def test_an_engine_goes_alone_and_channels_stay(registry: Registry, other: Registry) -> None:
    release = released(registry)
    sample_event(registry, sample_promotion(release))
    arrival = move(registry, release.content.engine, other)
    assert (arrival.step, arrival.release) == (ReleaseStep.NONE, None)
    assert other.releases.products() == []
    move(registry, ONE, other)
    assert other.channels.state(SAMPLE_CHANNEL).number == 0


def test_what_is_attached_later_follows(registry: Registry, other: Registry) -> None:
    release = released(registry)
    move(registry, ONE, other)
    report = sample_report(registry, release.content.engine, "failed")
    arrival = move(registry, ONE, other)
    assert arrival.sent > 0
    found = other.engines.referrers(release.content.engine, REPORT_ARTIFACT)
    assert report in {link.manifest for link in found}


def test_a_taken_number_is_refused_with_both_sides_before_a_byte_is_sent(
    registry: Registry, other: Registry
) -> None:
    mine, theirs = released(registry), released(other, "another")
    before = sorted(file.name for file in other.stores.inventory.files())
    with pytest.raises(Conflict) as refused:
        move(registry, ONE, other)
    assert refused.value.name == "release-number-taken"
    assert mine.content.engine.short in refused.value.message
    assert theirs.content.engine.short in refused.value.message
    assert sorted(file.name for file in other.stores.inventory.files()) == before


def test_a_taken_number_can_be_replaced_by_the_next_one(
    registry: Registry, other: Registry
) -> None:
    release = released(registry)
    released(other, "another")
    arrival = move(registry, ONE, other, renumber=True)
    assert (arrival.step, arrival.release) == (ReleaseStep.RENUMBER, "tiny/cpu:2")
    assert other.releases.release(ReleaseRef(SAMPLE_PRODUCT, 2)).content == release.content
    again = move(registry, ONE, other, renumber=True)
    assert (again.step, again.release) == (ReleaseStep.KEEP, "tiny/cpu:2")
    assert move(registry, ONE, other).release == "tiny/cpu:2"


def test_a_high_number_is_kept_and_the_next_release_there_follows_it(
    registry: Registry, other: Registry
) -> None:
    for name in ("one", "two", "three"):
        last = released(registry, name)
    assert move(registry, refs_of(last), other).release == "tiny/cpu:3"
    assert released(other, "own").number == 4
    assert verify(other).is_whole


def test_another_record_of_the_same_build_stays_and_refuses_a_release_cut_from_ours(
    registry: Registry, other: Registry
) -> None:
    release = released(registry)
    with tempfile.TemporaryDirectory() as folder:
        draft = sample_draft(Path(folder))
        later = replace(draft.facts, built_at=TickingClock()())
        theirs = other.engines.put_engine(replace(draft, facts=later))
    with pytest.raises(Conflict) as refused:
        move(registry, ONE, other)
    assert refused.value.name == "record-differs"
    arrival = move(registry, release.content.engine, other)
    assert len(arrival.kept_records) == 1
    assert other.engines.records(theirs.digest) == theirs.records


def damage(stores: Path, digest: Digest, data: bytes) -> None:
    path = stores / layout.blob(digest)
    path.chmod(0o644)
    path.write_bytes(data)


@pytest.mark.parametrize("files", [None, BIG], ids=["small", "large"])
def test_damaged_bytes_are_refused_and_nothing_becomes_visible(
    on_disk: Registry, root: Path, other: Registry, files: dict[str, bytes] | None
) -> None:
    release = released(on_disk, files=files)
    held = sample_files("tiny") if files is None else files
    weights = Digest.of(held["model.gguf"])
    damage(root, weights, held["model.gguf"][:-1] + b"X")
    with pytest.raises(IntegrityError):
        move(on_disk, ONE, other)
    assert not other.engines.is_recorded(release.content.engine)
    assert other.releases.products() == []


def test_a_missing_blob_is_refused_and_nothing_becomes_visible(
    on_disk: Registry, root: Path, other: Registry
) -> None:
    release = released(on_disk)
    (root / layout.blob(Digest.of(sample_files("tiny")["config.json"]))).unlink()
    with pytest.raises(NotFound):
        move(on_disk, ONE, other)
    assert not other.engines.is_recorded(release.content.engine)


def contradict_record(registry: Registry, release: Release, root: Path) -> str:
    record = registry.engines.records(release.content.engine)[0]
    lies = record.model_copy(update={"size_bytes": record.size_bytes + 1})
    return rewrite(root, layout.record(record.engine, record.build_key), seal(lies))


def contradict_place(registry: Registry, release: Release, root: Path) -> str:
    record: Record = registry.engines.records(release.content.engine)[0]
    lies = record.model_copy(update={"build_key": Digest.of(b"another")})
    return rewrite(root, layout.record(record.engine, record.build_key), seal(lies))


def contradict_link(registry: Registry, release: Release, root: Path) -> str:
    link = registry.engines.referrers(release.content.engine, REPORT_ARTIFACT)[0]
    lies = link.model_copy(update={"annotations": {"outcome": "better"}})
    return rewrite(root, layout.referrer(link.subject, link.manifest), seal(lies))


def contradict_release(registry: Registry, release: Release, root: Path) -> str:
    lies = release.model_copy(update={"number": 9})
    return rewrite(root, layout.release(refs_of(release)), seal(lies))


def rewrite(root: Path, name: str, data: bytes) -> str:
    (root / name).chmod(0o644)
    (root / name).write_bytes(data)
    return name


@pytest.mark.parametrize(
    "contradict", [contradict_record, contradict_place, contradict_link, contradict_release]
)
def test_a_document_that_contradicts_what_it_is_about_is_refused(
    on_disk: Registry,
    root: Path,
    other: Registry,
    contradict: Callable[[Registry, Release, Path], str],
) -> None:
    release = released(on_disk)
    name = contradict(on_disk, release, root)
    with pytest.raises(IntegrityError, match=name):
        move(on_disk, ONE, other)
    assert names_in(other) == []


def test_a_crash_at_every_write_leaves_nothing_incomplete_and_a_second_run_finishes(
    on_disk: Registry, root: Path
) -> None:
    tmp_path = root.parent
    release = released(on_disk)
    counted = FaultPlan()
    move(on_disk, ONE, crashing(tmp_path / "count", counted))
    assert counted.writes > 10
    for mode in (CrashMode.BEFORE, CrashMode.AFTER):
        for at in range(1, counted.writes + 1):
            where = tmp_path / f"{mode}-{at}"
            with pytest.raises(SimulatedCrash):
                move(on_disk, ONE, crashing(where, FaultPlan(at=at, mode=mode)))
            left = open_registry(f"file://{where}", TickingClock())
            if (where / layout.REGISTRY).exists():
                for engine in left.engines.all_engines():
                    left.engines.check_engine(engine)
                assert verify(left).is_whole
            move(on_disk, ONE, left)
            assert left.releases.release(ONE) == release
            assert verify(left).is_whole


def crashing(where: Path, plan: FaultPlan) -> Registry:
    clock = TickingClock()
    inner = open_registry(f"file://{where}", clock).stores
    return Registry(faulty(inner, plan), clock)
