"""Everything that others should hear of is read from the registry, once; nothing is missed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.promote.policy import ChannelPolicy, Policies, ProductPolicy
from engine_pipeline.tracking.facts import Kind, of_drift
from engine_registry import layout
from engine_registry.backends.memory import memory_stores
from engine_registry.changes import Approved, Frozen, Held, HoldLifted, RolledBack, Thawed
from engine_registry.documents import seal
from engine_registry.errors import NotFound
from engine_registry.refs import ChannelRef, ReleaseRef
from engine_registry.registry import Registry, open_registry
from engine_registry.retired import Retired
from engine_registry.testing.samples import (
    SAMPLE_ACTOR,
    SAMPLE_CHANNEL,
    SAMPLE_PRODUCT,
    live,
    sample_engine,
    sample_event,
    sample_promotion,
    sample_release,
)
from engine_registry.touched import Act
from tests.unit.tracking.conftest import POLICY, Clock, World

STAGING = ChannelRef(SAMPLE_PRODUCT, "staging")


def story(world: World) -> None:
    """Two releases, the first one live again after the second."""
    registry = world.registry
    for name in ("one", "two"):
        engine = sample_engine(registry, name)
        world.report(engine.digest)
        release = sample_release(registry, engine)
        sample_event(registry, sample_promotion(release))
    first = registry.releases.release(ReleaseRef(SAMPLE_PRODUCT, 1))
    sample_event(registry, RolledBack(to=live(first), reason="answers in Latin"))


def test_a_whole_story_is_told_and_only_once(world: World):
    story(world)
    told = world.kinds()
    assert sorted(told) == sorted(
        [
            *["build-finished", "gate-passed", "released", "promoted"] * 2,
            *["rolled-back", "hold-set"],
        ]
    )
    assert world.kinds() == []


def test_what_comes_later_is_told_without_reading_every_engine_again(world: World, monkeypatch):
    story(world)
    world.kinds()
    monkeypatch.setattr(world.registry.engines, "all_engines", lambda: pytest.fail("read all"))
    engine = sample_engine(world.registry, "three")
    world.report(engine.digest, Outcome.FAILED, "score 0.41, want 0.9")
    sample_event(world.registry, Frozen(reason="audit"))
    assert sorted(world.kinds()) == ["build-finished", "frozen", "gate-failed"]


def test_a_registry_that_was_not_read_for_long_is_read_whole(world: World):
    story(world)
    world.kinds()
    engine = sample_engine(world.registry, "three")
    for day in list(world.registry.stores.documents.children(layout.TOUCHED)):
        folder = f"{layout.TOUCHED}/{day.removesuffix('/')}"
        for slot in list(world.registry.stores.documents.children(folder)):
            for child in list(
                world.registry.stores.documents.children(f"{folder}/{slot.removesuffix('/')}")
            ):
                world.registry.stores.trash.discard(f"{folder}/{slot}{child}", timedelta(0))
    assert world.kinds() == []  # its note is gone
    world.clock.forward(days=31)
    assert world.kinds() == ["build-finished"]
    assert world.registry.engines.engine(engine.digest)


def test_rescanning_finds_what_has_no_note(world: World):
    world.kinds()
    engine = sample_engine(world.registry, "late")
    world.clock.forward(hours=3)
    sample_engine(world.registry, "other")
    world.kinds()
    world.clock.forward(hours=3)
    world.report(engine.digest)
    for child in list(world.registry.touches.since(world.clock.now - timedelta(hours=1))):
        world.registry.stores.trash.discard(child.name, timedelta(0))
    assert world.kinds() == []
    assert world.kinds(rescan=True) == ["gate-passed"]


def test_a_writer_whose_clock_is_ahead_makes_nobody_else_unheard(world: World):
    world.kinds()
    ahead = Registry(world.registry.stores, lambda: world.clock.now + timedelta(hours=5))
    sample_engine(ahead, "ahead")
    assert world.kinds() == ["build-finished"]
    sample_engine(world.registry, "on time")
    assert world.kinds() == ["build-finished"]


def test_a_build_that_becomes_visible_after_its_note_was_read_is_told(world: World):
    world.kinds()
    engine = sample_engine(world.registry, "slow")
    record = layout.record(engine.digest, engine.records[0].build_key)
    world.registry.stores.trash.discard(record, timedelta(0))
    assert world.kinds() == []  # the note is there, the record is not
    world.registry.stores.trash.restore(record)
    world.clock.forward(minutes=20)
    sample_engine(world.registry, "meanwhile")
    assert world.kinds() == ["build-finished", "build-finished"]


def test_every_change_of_a_channel_has_its_words_and_reasons_carry_no_secret(world: World):
    release = sample_release(world.registry, sample_engine(world.registry))
    token = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"
    changes = [
        Approved(number=1, release=release.digest, reason=f"with {token}"),
        Frozen(reason="audit", until=datetime(2026, 12, 24, tzinfo=UTC)),
        Thawed(reason="over"),
        Held(reason="look first"),
        HoldLifted(reason="looked"),
    ]
    for change in changes:
        sample_event(world.registry, change)
    feed = world.feed()
    told = {fact.kind: fact for fact in feed.facts() if fact.channel}
    assert list(told) == ["approved", "frozen", "thawed", "hold-set", "hold-lifted"]
    assert told[Kind.FROZEN].text == (
        "tiny/cpu/prod is frozen until 2026-12-24 00:00Z, by alice: audit"
    )
    assert token not in "".join(fact.model_dump_json() for fact in told.values())
    assert told[Kind.APPROVED].release == "tiny/cpu:1"


def test_a_failed_gate_says_why_and_an_errored_one_is_not_called_failed(world: World):
    engine = sample_engine(world.registry)
    world.report(engine.digest, Outcome.FAILED, "score 0.41, want 0.9")
    world.report(engine.digest, Outcome.ERRORED, "no server came up")
    told = {fact.kind: fact for fact in world.feed().facts()}
    assert told[Kind.GATE_FAILED].details["reasons"] == ["score: score 0.41, want 0.9"]
    assert "score 0.41" in told[Kind.GATE_FAILED].text
    assert told[Kind.GATE_UNDECIDED].details["outcome"] == "errored"


def test_a_damaged_document_hides_nothing_else_and_is_named(world: World):
    story(world)
    name = layout.release(ReleaseRef(SAMPLE_PRODUCT, 1))
    world.registry.stores.trash.discard(name, timedelta(0))
    world.registry.stores.documents.create(name, b"not a document")
    feed = world.feed()
    kinds = [fact.kind for fact in feed.facts()]
    assert kinds.count(Kind.RELEASED) == 1
    assert kinds.count(Kind.PROMOTED) == 2
    assert len(feed.problems) == 1
    assert "release tiny/cpu:1" in feed.problems[0]


def test_a_log_that_was_put_back_to_an_older_copy_is_read_from_its_beginning(world: World):
    story(world)
    world.kinds()
    stores = memory_stores(world.clock)
    restored = World(Registry(stores, world.clock), world.outbox, world.clock)
    stores.blobs.add_bytes(b"founds it")
    release = sample_release(restored.registry, sample_engine(restored.registry, "one"))
    sample_event(restored.registry, sample_promotion(release), operation="another act")
    assert restored.kinds() == ["promoted"]
    for number in range(3):
        sample_event(restored.registry, Held(reason=f"{number}"))
    assert restored.kinds() == ["hold-set"] * 3


def policies(approvals: int = 2) -> Policies:
    return Policies(
        schema_version=1,
        gates={"core": POLICY},
        policies=(
            ProductPolicy(
                products=("tiny/*",),
                channels={
                    "staging": ChannelPolicy(gates=("core",)),
                    "prod": ChannelPolicy(gates=("core",), upstream="staging", approvals=approvals),
                },
            ),
        ),
    )


def test_an_approval_is_needed_once_the_release_is_live_upstream(world: World):
    release = sample_release(world.registry, sample_engine(world.registry))
    assert Kind.APPROVAL_NEEDED not in world.kinds(policies=policies())
    sample_event(world.registry, sample_promotion(release), ref=STAGING)
    feed = world.feed(policies=policies())
    facts = list(feed.facts())
    world.outbox.take_in(facts, feed.positions)
    (needed,) = [fact for fact in facts if fact.kind is Kind.APPROVAL_NEEDED]
    assert needed.channel == "tiny/cpu/prod"
    assert needed.text == (
        "tiny/cpu:1 needs 2 more approvals for tiny/cpu/prod: "
        "`enginectl approve tiny/cpu:1 --on prod`"
    )
    sample_event(world.registry, sample_promotion(release), ref=STAGING)
    assert world.kinds(policies=policies()) == ["promoted"]  # asked for already


def test_nobody_is_asked_about_a_release_that_went_live_meanwhile(world: World):
    release = sample_release(world.registry, sample_engine(world.registry))
    sample_event(world.registry, sample_promotion(release), ref=STAGING)
    sample_event(world.registry, sample_promotion(release))
    newer = sample_release(world.registry, sample_engine(world.registry, "newer"))
    sample_event(world.registry, sample_promotion(newer))
    assert Kind.APPROVAL_NEEDED not in world.kinds(policies=policies())


def test_nobody_is_asked_who_said_yes_before(world: World):
    release = sample_release(world.registry, sample_engine(world.registry))
    sample_event(world.registry, Approved(number=1, release=release.digest))
    sample_event(world.registry, sample_promotion(release), ref=STAGING)
    assert Kind.APPROVAL_NEEDED not in world.kinds(policies=policies(approvals=1))


def test_what_garbage_collection_removed_is_told_by_release_and_by_minute(world: World):
    world.kinds()
    engine = sample_engine(world.registry)
    release = sample_release(world.registry, engine)
    world.kinds()
    world.registry.touches.note(engine.digest, Act.REMOVED)
    gone = Retired(
        model=release.model,
        target=release.target,
        number=1,
        release=release.digest,
        engine=engine.digest,
        reason="older than 90 days",
        actor=SAMPLE_ACTOR,
        at=world.clock(),
    )
    ref = ReleaseRef(SAMPLE_PRODUCT, 1)
    world.registry.stores.documents.create(layout.retired(ref), seal(gone))
    world.registry.stores.trash.discard(layout.release(ref), timedelta(0))
    assert world.kinds() == ["gc"]
    world.clock.forward(minutes=3)
    feed = world.feed()
    (fact,) = feed.facts()
    assert fact.text == "garbage collection removed 1 engine"
    assert fact.details["engines"] == [str(engine.digest)]


def test_the_same_drift_is_one_fact_a_day():
    clock = Clock()
    seen = [{"what": "release", "channel": "7", "target": "6"}]
    first = of_drift("h100-a", str(SAMPLE_CHANNEL), seen, clock(), 12)
    clock.forward(hours=1)
    assert of_drift("h100-a", str(SAMPLE_CHANNEL), seen, clock(), 12).id == first.id
    clock.forward(days=1)
    assert of_drift("h100-a", str(SAMPLE_CHANNEL), seen, clock(), 12).id != first.id
    assert of_drift("h100-b", str(SAMPLE_CHANNEL), seen, first.at, 12).id != first.id


def test_a_mistyped_registry_is_no_empty_one(world: World, tmp_path):
    nowhere = World(open_registry(f"file://{tmp_path}/no"), world.outbox, world.clock)
    with pytest.raises(NotFound):
        nowhere.kinds()
