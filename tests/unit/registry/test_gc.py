"""Garbage collection over every store: what goes, what stays and why, and the way back."""

import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError, NotFound
from engine_registry.events import Approved, Held, RolledBack
from engine_registry.gc_plan import Kind, Plan
from engine_registry.refs import ChannelRef, ProductRef, ReleaseRef
from engine_registry.registry import Registry
from engine_registry.retention import Retention
from engine_registry.testing.samples import (
    SAMPLE_ACTOR,
    SAMPLE_CHANNEL,
    SAMPLE_PRODUCT,
    live,
    sample_engine,
    sample_event,
    sample_key,
    sample_promotion,
    sample_release,
    sample_report,
)
from engine_registry.verify import verify
from tests.gc_world import DAY, TIGHT, World, assert_whole, engines_of, numbers_of

SHARED = {"tokenizer.json": b"the same for all"}


@pytest.fixture(params=["memory", "filesystem"])
def world(request: pytest.FixtureRequest, root: Path) -> Iterator[World]:
    return World(request.param, root.parent)


@pytest.fixture
def registry(world: World) -> Registry:
    return world.registry()


def released(registry: Registry, name: str, product: ProductRef = SAMPLE_PRODUCT):
    """A judged release of an engine of its own that shares one file with all others."""
    files = {"m.gguf": name.encode() * 50, **SHARED}
    engine = sample_engine(registry, name, files, product=product)
    report = sample_report(registry, engine.digest)
    return sample_release(registry, engine, product=product, evidence=(report,))


def promoted(registry: Registry, *names: str):
    """Released and promoted one after the other."""
    releases = [released(registry, name) for name in names]
    for release in releases:
        sample_event(registry, sample_promotion(release))
    return releases


def removed(plan: Plan, kind: Kind) -> set[str]:
    return {line.name for line in plan.removed if line.kind is kind}


def reasons(plan: Plan, name: str) -> tuple[str, ...]:
    return next(line.reasons for line in plan.kept if line.name == name)


def collect(world: World, **options) -> None:
    """Discard, wait and purge."""
    world.collector(**options).discard()
    world.pass_time(2 * DAY)
    world.collector(**options).purge()


def test_a_plan_changes_nothing(world: World, registry: Registry) -> None:
    promoted(registry, "one", "two")
    world.pass_time(2 * DAY)
    before = world.names() | world.names(trash=True)
    world.collector(registry).plan()
    assert world.names() | world.names(trash=True) == before


def test_every_kept_thing_names_what_keeps_it_and_every_removed_thing_its_bytes(
    world: World, registry: Registry
) -> None:
    first, second = promoted(registry, "one", "two")
    world.pass_time(2 * DAY)
    plan = world.collector(registry).plan()
    assert reasons(plan, second.name) == (
        f"live on {SAMPLE_CHANNEL}",
        f"among the newest 1 of {SAMPLE_PRODUCT}",
    )
    assert reasons(plan, str(second.content.engine)) == (f"release {second.name}",)
    assert removed(plan, Kind.RELEASE) == {first.name}
    assert removed(plan, Kind.ENGINE) == {str(first.content.engine)}
    assert all(line.reasons for line in plan.kept)
    (engine,) = [line for line in plan.removed if line.kind is Kind.ENGINE]
    before = sum(file.size_bytes for file in world.open().inventory.files())
    world.collector(registry).discard()
    after = sum(file.size_bytes for file in world.open().inventory.files())
    word = world.open().documents.read(layout.retired(ReleaseRef(SAMPLE_PRODUCT, 1)))
    notes = sum(
        file.size_bytes for file in world.open().inventory.files() if "-removed-" in file.name
    )
    assert before + len(word) + notes - after == plan.removed_bytes
    assert engine.size_bytes > 3 * 50


def test_the_story_of_a_removed_release(world: World, registry: Registry) -> None:
    first, second = promoted(registry, "one", "two")
    world.pass_time(2 * DAY)

    done = world.collector(registry).discard()
    assert done.discarded_files > 10
    assert numbers_of(registry) == [2]
    assert engines_of(registry) == {second.content.engine.hex}
    with pytest.raises(NotFound) as caught:
        registry.releases.release(ReleaseRef(SAMPLE_PRODUCT, 1))
    assert caught.value.name == "release-retired"
    assert "collector" in caught.value.message
    assert_whole(registry)
    gone = registry.releases.retired(ReleaseRef(SAMPLE_PRODUCT, 1))
    assert gone is not None
    assert (gone.release, gone.engine) == (first.digest, first.content.engine)

    assert world.collector(registry).purge().purged_files == 0  # too early
    assert world.names(trash=True)
    world.pass_time(2 * DAY)
    done = world.collector(registry).purge()
    assert done.purged_files == len(done.plan.removed) + done.plan.trash_files
    assert world.names(trash=True) == set()
    assert_whole(registry)
    # The log still says what happened, and the next release has a number of its own.
    assert [e.change.to.number for e, _ in registry.channels.events(SAMPLE_CHANNEL)] == [1, 2]
    assert released(registry, "three").number == 3


def test_a_file_shared_with_something_kept_stays(world: World, registry: Registry) -> None:
    promoted(registry, "one", "two")
    world.pass_time(2 * DAY)
    collect(world)
    shared = Digest.of(SHARED["tokenizer.json"])
    assert layout.blob(shared) in world.names()
    assert_whole(registry)


def test_collecting_twice_removes_nothing_more(world: World, registry: Registry) -> None:
    promoted(registry, "one", "two")
    world.pass_time(2 * DAY)
    world.collector(registry).discard()
    before = world.names()
    again = world.collector(registry).discard()
    assert again.discarded_files == 0
    assert again.plan.removed == ()
    assert world.names() == before


def test_a_removed_engine_can_be_built_again(world: World, registry: Registry) -> None:
    promoted(registry, "one", "two")
    world.pass_time(2 * DAY)
    world.collector(registry).discard()
    again = sample_engine(registry, "one", {"m.gguf": b"one" * 50, **SHARED})
    registry.engines.check_engine(again.digest)
    assert registry.engines.find_by_key(sample_key("one")) == again
    world.pass_time(2 * DAY)
    # Rebuilt two days ago and not released again: it may go, and what lay in the trash with it.
    collect(world)
    assert world.names(trash=True) == set()
    assert_whole(registry)


def test_what_the_rollback_window_holds_can_be_rolled_back_to(
    world: World, registry: Registry
) -> None:
    releases = promoted(registry, "one", "two", "three", "four")
    world.pass_time(2 * DAY)
    rules = TIGHT.model_copy(update={"live_per_channel": 3})
    collect(world, rules=rules)
    assert numbers_of(registry) == [2, 3, 4]
    for release in releases[1:]:
        registry.engines.check_engine(release.content.engine)


def test_a_window_longer_than_the_state_remembers_is_read_from_the_log(
    world: World, registry: Registry
) -> None:
    promoted(registry, *(f"engine {number}" for number in range(25)))
    world.pass_time(2 * DAY)
    collect(world, rules=TIGHT.model_copy(update={"live_per_channel": 23}))
    assert numbers_of(registry) == list(range(3, 26))


def test_a_channel_on_hold_keeps_what_it_came_from(world: World, registry: Registry) -> None:
    first, second, _ = promoted(registry, "one", "two", "three")
    sample_event(registry, RolledBack(to=live(first), reason="p95 doubled"))
    world.pass_time(2 * DAY)
    plan = world.collector(registry).plan()
    assert reasons(plan, second.name) == (f"{SAMPLE_CHANNEL} is on hold: p95 doubled",)
    assert plan.removed == ()


def test_an_approved_release_is_kept(world: World, registry: Registry) -> None:
    first, second = (released(registry, name) for name in ("one", "two"))
    sample_event(registry, Approved(number=first.number, release=first.digest))
    world.pass_time(2 * DAY)
    assert removed(world.collector(registry).plan(), Kind.RELEASE) == set()
    del second


def test_a_release_on_hold_is_kept_until_the_hold_is_lifted(
    world: World, registry: Registry
) -> None:
    first, _ = promoted(registry, "one", "two")
    registry.holds.hold(first, reason="incident 7", actor=SAMPLE_ACTOR, at=registry.clock())
    world.pass_time(2 * DAY)
    plan = world.collector(registry).plan()
    assert reasons(plan, first.name) == ("on hold: incident 7",)
    assert plan.removed == ()
    registry.holds.lift(first, reason="closed", actor=SAMPLE_ACTOR, at=registry.clock())
    assert removed(world.collector(registry).plan(), Kind.RELEASE) == {first.name}


def test_an_engine_in_the_making_is_left_alone(world: World, registry: Registry) -> None:
    promoted(registry, "one")
    world.pass_time(2 * DAY)
    upload = registry.stores.blobs.add_bytes(b"half of an upload")
    engine = sample_engine(registry, "fresh")
    plan = world.collector(registry).plan()
    assert str(upload.digest) not in removed(plan, Kind.BLOB)
    assert "written to" in reasons(plan, str(engine.digest))[0]
    world.pass_time(2 * DAY)
    plan = world.collector(registry).plan()
    assert str(upload.digest) in removed(plan, Kind.BLOB)
    assert str(engine.digest) in removed(plan, Kind.ENGINE)


def test_an_engine_that_a_build_reused_is_spared(world: World, registry: Registry) -> None:
    engine = sample_engine(registry)
    world.pass_time(2 * DAY)
    registry.engines.renew(engine.digest)
    assert "used" in reasons(world.collector(registry).plan(), str(engine.digest))[0]
    world.pass_time(2 * DAY)
    assert removed(world.collector(registry).plan(), Kind.ENGINE) == {str(engine.digest)}


def test_a_product_without_rules_keeps_everything(world: World, registry: Registry) -> None:
    other = ProductRef("other", "cpu")
    for name in ("one", "two"):
        released(registry, name)
        released(registry, f"other {name}", other)
    world.pass_time(400 * DAY)
    collect(world, only=SAMPLE_PRODUCT)
    assert numbers_of(registry) == [2]
    assert numbers_of(registry, other) == [1, 2]
    assert_whole(registry)


def test_an_engine_of_two_products_goes_only_when_neither_keeps_it(
    world: World, registry: Registry
) -> None:
    other = ProductRef(SAMPLE_PRODUCT.model, "other")
    one = sample_engine(registry, "same", {"m.gguf": b"same"})
    ours = sample_engine(registry, "same as well", {"m.gguf": b"same"}, product=other)
    assert one.digest == ours.digest
    world.pass_time(2 * DAY)
    plan = world.collector(registry, only=SAMPLE_PRODUCT).plan()
    assert reasons(plan, str(ours.digest)) == (f"no retention is set for {other}",)
    assert removed(world.collector(registry).plan(), Kind.ENGINE) == {str(ours.digest)}


def test_a_channel_that_moved_on_keeps_what_is_named_again(
    world: World, registry: Registry
) -> None:
    first, second = promoted(registry, "one", "two")
    world.pass_time(2 * DAY)
    world.collector(registry).discard()
    # Somebody who looked before names the first release again.
    sample_event(registry, sample_promotion(first))
    assert registry.channels.state(SAMPLE_CHANNEL).live == live(first)
    world.pass_time(2 * DAY)
    done = world.collector(registry).purge()
    assert done.restored > 10
    assert first.name in done.plan.restored
    assert registry.releases.release(ReleaseRef(SAMPLE_PRODUCT, 1)) == first
    assert registry.releases.retired(ReleaseRef(SAMPLE_PRODUCT, 1)) is None
    assert_whole(registry)
    world.collector(registry).discard()
    assert_whole(registry)
    del second


def test_looser_rules_bring_back_what_is_still_in_the_trash(
    world: World, registry: Registry
) -> None:
    promoted(registry, "one", "two", "three")
    world.pass_time(2 * DAY)
    before = world.names()
    world.collector(registry).discard()
    assert numbers_of(registry) == [3]
    loose = Retention()
    assert world.collector(registry, rules=loose).discard().restored > 20
    assert numbers_of(registry) == [1, 2, 3]
    assert {name for name in before if not name.startswith("touched/")} <= world.names()
    assert_whole(registry)


def test_whoever_names_something_takes_it_out_of_the_trash(
    world: World, registry: Registry
) -> None:
    first, _ = promoted(registry, "one", "two")
    world.pass_time(2 * DAY)
    world.collector(registry).discard()
    registry.releases.keep_whole(first)
    assert registry.releases.release(ReleaseRef(SAMPLE_PRODUCT, 1)) == first
    assert_whole(registry)


def test_what_was_left_half_stored_or_half_removed_is_removed(
    world: World, registry: Registry
) -> None:
    engine = sample_engine(registry)
    key = sample_key("tiny")
    for name in (layout.key(key, engine.digest), layout.record(engine.digest, key)):
        registry.stores.trash.discard(name, timedelta(0))
    world.pass_time(2 * DAY)
    collect(world)
    left = {name.split("/")[0] for name in world.names()}
    assert left <= {"registry.json", "touched"}
    assert verify(registry).mismatches == ()


def test_events_and_pointers_are_never_removed(world: World, registry: Registry) -> None:
    promoted(registry, "one", "two")
    sample_event(registry, Held(reason="x"), ref=ChannelRef(SAMPLE_PRODUCT, "old"))
    before = {name for name in world.names() if name.startswith("channels/")}
    world.pass_time(4000 * DAY)
    collect(world)
    assert {name for name in world.names() if name.startswith("channels/")} == before


def test_old_notes_of_touches_go(world: World, registry: Registry) -> None:
    promoted(registry, "one")
    world.pass_time(61 * DAY)
    collect(world)
    assert not [name for name in world.names() if name.startswith("touched/")]
    assert world.names(trash=True) == set()


def test_signatures_of_attestations_follow_their_engine(world: World, registry: Registry) -> None:
    keep, _ = promoted(registry, "one"), None
    report = keep[0].content.evidence[0]
    signature = _attach_to_attached(registry, report)
    world.pass_time(2 * DAY)
    collect(world)
    assert layout.referrer(report, signature) in world.names()
    promoted(registry, "two")
    world.pass_time(2 * DAY)
    collect(world)
    assert layout.referrer(report, signature) not in world.names()
    assert layout.blob(signature) not in world.names()
    assert_whole(registry)


def _attach_to_attached(registry: Registry, subject: Digest) -> Digest:
    from engine_registry.attachments import Attachment, Attachments
    from engine_registry.manifest import MANIFEST, Descriptor

    size_bytes = len(registry.engines.manifest(subject).to_bytes())
    return Attachments(registry.stores).put(
        Descriptor(media_type=MANIFEST, digest=subject, size=size_bytes),
        Attachment.of_json("application/vnd.test.signature", "s.json", b'{"signature":1}'),
    )


@pytest.mark.parametrize("which", ["record", "release", "manifest", "head", "event"])
def test_a_damaged_document_ends_a_collection_before_anything_is_removed(
    world: World, which: str
) -> None:
    if world.kind != "filesystem":
        return
    registry = world.registry()
    _, second = promoted(registry, "one", "two")
    world.pass_time(2 * DAY)
    engine = second.content.engine
    path = (
        world.root
        / {
            "record": layout.record(engine, sample_key("two")),
            "release": layout.release(ReleaseRef(SAMPLE_PRODUCT, 2)),
            "manifest": layout.blob(engine),
            "head": layout.head(SAMPLE_CHANNEL),
            "event": layout.event(SAMPLE_CHANNEL, 2),
        }[which]
    )
    data = bytearray(path.read_bytes())
    data[200 if which != "manifest" else 5] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    before = world.names()
    if which == "head":  # only a cache: the log is read instead
        assert world.collector(registry).discard().discarded_files > 0
        assert numbers_of(registry) == [2]
        return
    with pytest.raises(IntegrityError):
        world.collector(registry).discard()
    assert world.names() == before
    assert world.names(trash=True) == set()


def test_a_kept_engine_without_a_manifest_ends_a_collection(world: World) -> None:
    registry = world.registry()
    (release,) = promoted(registry, "one")
    world.pass_time(2 * DAY)
    name = layout.blob(release.content.engine)
    world.open().trash.discard(name, timedelta(0))
    world.open().trash.purge(name, timedelta(0))
    with pytest.raises(IntegrityError) as caught:
        world.collector(registry).plan()
    assert caught.value.name == "kept-engine-incomplete"


def test_a_release_whose_document_was_lost_still_keeps_its_engine_while_it_is_live(
    world: World, registry: Registry
) -> None:
    first, _ = promoted(registry, "one"), None
    world.pass_time(2 * DAY)
    name = layout.release(ReleaseRef(SAMPLE_PRODUCT, 1))
    world.open().trash.discard(name, timedelta(0))
    world.open().trash.purge(name, timedelta(0))
    collect(world)
    registry.engines.check_engine(first[0].content.engine)


def test_a_blob_in_a_deployment_counts_as_new(root: Path) -> None:
    world = World("filesystem", root.parent)
    engine = sample_engine(world.registry())
    name = layout.blob(engine.manifest.layers[0].digest)
    world.pass_time(2 * DAY)
    assert {file.name: file.age for file in world.open().trash.aged()}[name] > DAY
    os.link(world.root / name, root.parent / "deployed.bin")
    assert {file.name: file.age for file in world.open().trash.aged()}[name] < DAY
    assert not world.open().trash.discard(name, DAY)


def test_empty_folders_of_removed_engines_go_too(root: Path) -> None:
    world = World("filesystem", root.parent)
    registry = world.registry()
    first, _ = promoted(registry, "one", "two")
    world.pass_time(2 * DAY)
    collect(world)
    assert not (world.root / layout.records(first.content.engine)).exists()
    assert not (world.root / "trash" / layout.records(first.content.engine)).exists()


def test_a_restored_engine_need_not_be_hashed_again(root: Path) -> None:
    world = World("filesystem", root.parent)
    registry = world.registry()
    engine = sample_engine(registry)
    registry.engines.check_engine(engine.digest)
    layer = engine.manifest.layers[0].digest
    path = world.root / layout.blob(layer)
    stamp = world.root / "cache" / "verified" / layer.hex
    before = stamp.read_bytes()
    world.open().trash.discard(layout.blob(layer), timedelta(0))
    world.open().trash.restore(layout.blob(layer))
    assert stamp.read_bytes() != before
    stamped_ctime = int(stamp.read_text().strip("[]").split(",")[2])
    assert path.stat().st_ctime_ns == stamped_ctime
