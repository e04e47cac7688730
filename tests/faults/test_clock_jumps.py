"""The machine's clock jumps, forwards or backwards, between any two acts: nothing goes wrong."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from engine_pipeline.promote.moves import Desk
from engine_pipeline.promote.policy import ChannelPolicy
from engine_pipeline.promote.promote import promote
from engine_pipeline.promote.rollback import roll_back
from engine_pipeline.promote.say import approve, freeze, lift_hold
from engine_registry.errors import RefusedByPolicy
from engine_registry.gc import Collector
from engine_registry.index import GateNames, Index
from engine_registry.index_query import EngineQuery
from engine_registry.record import Release
from engine_registry.refs import ChannelRef, ProductRef, ReleaseRef
from engine_registry.registry import Registry, open_registry
from engine_registry.retention import Retention
from engine_registry.testing.samples import SAMPLE_AT, sample_engine
from engine_registry.verify import verify
from tests.gc_world import assert_whole
from tests.set_world import ALICE, BOB, CAROL, WANTED, released

PRODUCT = ProductRef("tiny", "a100")
STAGING, PROD = ChannelRef(PRODUCT, "staging"), ChannelRef(PRODUCT, "prod")
EVER = timedelta(days=3650)
HOUR, YEAR = timedelta(hours=1), timedelta(days=400)
JUMPS = [YEAR, -YEAR, 2 * HOUR, -2 * HOUR]
OPEN = ChannelPolicy(gates=("core",), evidence_max_age=EVER)
GUARDED = OPEN.model_copy(update={"upstream": "staging", "approvals": 1})
SOAKED = GUARDED.model_copy(update={"soak": HOUR, "approvals": 0})
TIGHT = Retention(
    live_per_channel=2,
    newest_releases=1,
    released_for=timedelta(0),
    unreleased_for=timedelta(0),
)


class World:
    """A registry on a file system, and a clock that is set by hand and goes on a second per look.

    The file system's own clock, by which files have their ages, goes on as it always does.
    """

    def __init__(self, folder: Path) -> None:
        self.now = SAMPLE_AT
        self.folder = folder
        self.releases: list[Release] = []

    def clock(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now

    @property
    def registry(self) -> Registry:
        return open_registry(str(self.folder / "registry"), self.clock)

    def desk(self, actor=ALICE) -> Desk:
        return Desk(registry=self.registry, actor=actor, clock=self.clock)

    def build(self) -> None:
        self.releases.append(released(self.registry, PRODUCT, f"e{len(self.releases)}"))

    def promote(self, channel: ChannelRef, policy: ChannelPolicy = OPEN, actor=ALICE) -> None:
        promote(self.desk(actor), self.releases[-1], channel, policy=policy, wanted=WANTED)

    def collect(self) -> set[int]:
        """Which releases a collection leaves, with nothing spared for its age."""
        collector = Collector(self.registry, lambda _: TIGHT, actor=CAROL, grace=timedelta(0))
        collector.discard()
        collector.purge()
        return {release.number for release in self.registry.releases.releases(PRODUCT)}

    def live(self, channel: ChannelRef) -> int | None:
        live = self.registry.channels.state(channel).live
        return live.number if live else None


NAMES = GateNames(artifact_type="none", gate="gate", outcome="outcome", created="created")
ACTS: list[Callable[[World], object]] = [
    World.build,
    lambda w: w.promote(STAGING),
    lambda w: approve(w.desk(BOB), w.releases[-1], PROD, policy=GUARDED, reason=None),
    lambda w: w.promote(PROD, GUARDED),
    World.build,
    lambda w: w.promote(STAGING),
    lambda w: approve(w.desk(CAROL), w.releases[-1], PROD, policy=GUARDED, reason=None),
    lambda w: w.promote(PROD, GUARDED),
    lambda w: roll_back(w.desk(CAROL), PROD, reason="slower"),
    World.collect,
    World.build,
    lambda w: lift_hold(w.desk(), PROD, reason="mended"),
    lambda w: w.promote(STAGING),
    World.collect,
]


def story(folder: Path, jumps: dict[int, timedelta]) -> World:
    """Everything in its order; the clock jumps after the acts of these numbers."""
    world = World(folder)
    index = Index(world.registry, folder / "index.sqlite", NAMES)
    for number, act in enumerate(ACTS):
        act(world)
        index.refresh()
        engines = {engine.hex for engine in world.registry.engines.all_engines()}
        assert {found.digest.hex for found in index.find(EngineQuery()).engines} == engines
        world.now += jumps.get(number, timedelta(0))
    return world


def check(world: World) -> None:
    """What has to hold however the clock went."""
    registry = world.registry
    assert (world.live(STAGING), world.live(PROD)) == (3, 1)
    assert [release.number for release in registry.releases.releases(PRODUCT)] == [1, 2, 3]
    for ref in (STAGING, PROD):
        events = [event for event, _ in registry.channels.events(ref)]
        assert [event.number for event in events] == list(range(1, len(events) + 1))
        assert all(before.at <= after.at for before, after in pairwise(events))
        assert registry.channels.replay(ref) == registry.channels.state(ref)
    assert {mark.number for mark in registry.channels.state(PROD).bad} == {2}
    assert registry.channels.state(PROD).hold is None
    assert verify(registry).mismatches == ()
    assert_whole(registry)


def test_a_jump_between_any_two_acts_changes_nothing_that_matters(
    fast_dir: Path, proved: Callable[[str], None]
) -> None:
    points = range(0, len(ACTS) - 1, 3)
    for turn, at in enumerate(points):
        check(story(fast_dir / str(at), {at: JUMPS[turn % len(JUMPS)]}))
    proved(f"{len(points)} stories of {len(ACTS)} acts, a jump in each")


def test_a_clock_that_jumps_to_and_fro_after_every_act_changes_nothing_that_matters(
    fast_dir: Path,
) -> None:
    to_and_fro = {at: YEAR if at % 2 else -YEAR for at in range(len(ACTS))}
    check(story(fast_dir, to_and_fro))


@pytest.mark.nightly
@pytest.mark.parametrize("jump", JUMPS, ids=str)
def test_each_jump_between_any_two_acts_changes_nothing_that_matters(
    fast_dir: Path, jump: timedelta, proved: Callable[[str], None]
) -> None:
    for first in range(len(ACTS)):
        for second in range(first, len(ACTS), 3):
            jumps = {first: jump} if first == second else {first: jump, second: -2 * jump}
            check(story(fast_dir / f"{first}-{second}", jumps))
    proved(f"{len(ACTS)} acts, the clock jumped by {jump} once or twice between any two of them")


@pytest.fixture
def world(fast_dir: Path) -> World:
    return World(fast_dir)


def test_a_freeze_ends_at_its_time_and_holds_again_if_that_is_still_to_come(world: World) -> None:
    world.build()
    freeze(world.desk(), STAGING, reason="a fair", until=world.now + timedelta(days=2))
    for jump in (-YEAR, 2 * HOUR):
        before, world.now = world.now, world.now + jump
        with pytest.raises(RefusedByPolicy, match="is frozen until"):
            world.promote(STAGING)
        world.now = before
    world.now += YEAR
    world.promote(STAGING)
    assert world.live(STAGING) == 1


def test_a_soak_is_never_shortened_by_a_clock_that_went_back(world: World) -> None:
    world.build()
    world.promote(STAGING)
    world.now -= YEAR
    with pytest.raises(RefusedByPolicy, match="the channel asks for 1h"):
        world.promote(PROD, SOAKED)
    world.now += YEAR + 2 * HOUR
    world.promote(PROD, SOAKED)
    assert world.live(PROD) == 1


@pytest.mark.parametrize("jump", [YEAR, -YEAR], ids=str)
def test_what_was_just_written_is_spared_by_the_stores_own_clock(
    world: World, jump: timedelta
) -> None:
    world.build()
    world.promote(STAGING)
    fresh = sample_engine(world.registry, "never released", product=PRODUCT)
    world.now += jump
    collector = Collector(world.registry, lambda _: TIGHT, actor=CAROL, grace=timedelta(days=1))
    assert collector.discard().discarded_files == 0
    assert collector.purge().purged_files == 0
    world.registry.engines.check_engine(fresh.digest)
    assert world.registry.releases.release(ReleaseRef(PRODUCT, 1)) == world.releases[0]
