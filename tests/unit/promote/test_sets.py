"""Releases that move together: what is looked at first, and all or none of it."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.promote.moves import SET_TIMEOUT
from engine_pipeline.promote.rollback import roll_back
from engine_pipeline.promote.say import approve, freeze, hold, lift_hold, thaw
from engine_pipeline.promote.sets import Wish, preflight, promote_set
from engine_registry.errors import ChannelMoved, Conflict, ExitCode, InvalidInput
from engine_registry.events import Prepared, Promoted, Withdrawn
from engine_registry.layout import blob
from engine_registry.refs import ChannelRef, ProductRef
from engine_registry.testing.faults import CrashMode, FaultPlan, SimulatedCrash, faulty
from engine_registry.verify import verify
from tests.set_world import (
    ALICE,
    BOB,
    CAROL,
    CHANNELS,
    POLICY,
    PRODUCTS,
    WANTED,
    WRITES,
    In,
    SetWorld,
    check_sets,
    promote_one,
    released,
    watched,
)


@pytest.fixture(scope="module")
def filled() -> SetWorld:
    return SetWorld()


@pytest.fixture
def world(filled: SetWorld) -> SetWorld:
    filled.reload()
    return filled


def reserve(world: SetWorld, actor=ALICE, number: int = 3) -> None:
    """A mover that dies after it reserved the first channel."""
    plan = FaultPlan(1, CrashMode.AFTER)
    with pytest.raises(SimulatedCrash):
        world.move_all(actor, lambda stores: faulty(stores, plan), number)
    assert world.registry().channels.state(CHANNELS[0]).pending is not None


def test_all_of_a_set_goes_live_at_one_instant(world: SetWorld) -> None:
    outcome = world.move_all()
    assert world.live() == [3, 3, 3]
    assert [member.is_live for member in outcome.members] == [True] * 3
    since = {world.registry().channels.state(ref).history[0].since for ref in CHANNELS}
    assert len(since) == 1
    for ref in CHANNELS:
        (prepared, _), (promoted, _) = world.registry().channels.events(ref)[-2:]
        assert isinstance(prepared.change, Prepared)
        assert isinstance(promoted.change, Promoted)
        assert promoted.change.set == outcome.name
        assert promoted.change.evidence
        assert promoted.change.reason == "the new model"
    assert verify(world.registry()).notes == ()
    check_sets(world)


def test_what_is_live_already_is_left_alone_and_the_rest_moves(world: SetWorld) -> None:
    promote_one(world.desk(ALICE), world.wish(PRODUCTS[1], 3))
    before = world.registry().channels.state(CHANNELS[1])
    outcome = world.move_all()
    assert world.live() == [3, 3, 3]
    assert world.registry().channels.state(CHANNELS[1]) == before
    assert outcome.members[1].before == outcome.members[1].after
    check_sets(world)


def test_moving_a_set_again_changes_nothing(world: SetWorld) -> None:
    world.move_all()
    files = dict(world.files)
    outcome = world.move_all()
    assert outcome.name is None
    assert outcome.lacking == ()
    assert world.files == files


def test_one_member_that_lacks_something_stops_all_and_every_lack_is_named(
    world: SetWorld,
) -> None:
    registry = world.registry()
    freeze(world.desk(BOB), CHANNELS[0], reason="incident", until=None)
    unjudged = released(registry, PRODUCTS[1], "unjudged", outcome=None)
    failed = released(registry, PRODUCTS[2], "failed", Outcome.FAILED, sku="b200")
    wishes = [
        world.wish(PRODUCTS[0], 3),
        *(
            Wish(release=release, channel=channel, policy=POLICY, wanted=WANTED)
            for release, channel in ((unjudged, CHANNELS[1]), (failed, CHANNELS[2]))
        ),
    ]
    files = dict(world.files)
    looked = preflight(world.desk(ALICE), wishes)
    moved = promote_set(world.desk(ALICE), wishes)
    assert looked == moved
    assert world.files == files
    lacks = [[finding.rule for finding in member.lacks] for member in moved.members]
    assert lacks == [["freeze"], ["gates"], ["fit", "gates"]]
    assert moved.name is None
    assert "judged by no report" in moved.members[1].lacks[0].says


def test_missing_bytes_are_one_of_the_things_a_member_may_lack(world: SetWorld) -> None:
    engine = world.release(PRODUCTS[1], 3).content.engine
    layer = world.registry().engines.engine(engine).manifest.layers[0]
    del world.files[blob(layer.digest)]
    outcome = world.move_all()
    assert [member.wish.channel for member in outcome.lacking] == [CHANNELS[1]]
    (finding,) = outcome.lacking[0].lacks
    assert (finding.rule, finding.exit_code) == ("bytes", ExitCode.NOT_FOUND)
    assert world.live() == [2, 2, 2]


def test_two_releases_for_one_channel_are_refused(world: SetWorld) -> None:
    wishes = [world.wish(PRODUCTS[0], 3), world.wish(PRODUCTS[0], 4)]
    with pytest.raises(InvalidInput, match="tiny/a100:3 and tiny/a100:4 are both for"):
        promote_set(world.desk(ALICE), wishes)


def test_an_override_needs_a_reason_and_is_kept_in_the_log(world: SetWorld) -> None:
    roll_back(world.desk(BOB), CHANNELS[0], reason="slow")
    lift_hold(world.desk(BOB), CHANNELS[0], reason="over")
    wishes = [world.wish(PRODUCTS[0], 2), world.wish(PRODUCTS[1], 3)]
    with pytest.raises(InvalidInput, match="without a reason"):
        promote_set(world.desk(ALICE), wishes, overrides=("bad",))
    promote_set(world.desk(ALICE), wishes, overrides=("bad",), reason="it was the network")
    promoted = world.registry().channels.events(CHANNELS[0])[-1][0].change
    assert isinstance(promoted, Promoted)
    assert promoted.overrides[0].startswith("bad: release 2 is marked bad")
    assert world.live() == [2, 3, 2]


def test_a_look_at_a_reserved_channel_says_so_and_changes_nothing(world: SetWorld) -> None:
    reserve(world)
    files = dict(world.files)
    outcome = preflight(world.desk(BOB), world.wishes(4))
    (finding,) = outcome.members[0].lacks
    assert (finding.rule, finding.exit_code) == ("set", ExitCode.CONFLICT)
    assert "by alice for release 3" in finding.says
    assert outcome.members[1].lacks == ()
    assert world.files == files


# A pending set never blocks who has to act now.


def test_a_promotion_waits_for_a_set_and_the_one_left_behind_is_taken_back(
    world: SetWorld,
) -> None:
    reserve(world)
    wish = world.wish(PRODUCTS[0], 4)
    with pytest.raises(Conflict) as refused:
        promote_one(world.desk(BOB), wish)
    assert refused.value.name == "set-pending"
    with pytest.raises(Conflict):
        approve(world.desk(BOB), wish.release, CHANNELS[0], policy=POLICY, reason=None)
    world.clock.passes(SET_TIMEOUT + timedelta(seconds=1))
    promote_one(world.desk(BOB), wish)
    assert world.live() == [4, 2, 2]
    check_sets(world)


@pytest.mark.parametrize("act", ["rollback", "freeze", "thaw", "hold", "lift"])
def test_a_pending_set_never_blocks_rollback_freeze_or_hold(world: SetWorld, act: str) -> None:
    hold(world.desk(CAROL), CHANNELS[0], reason="before")
    lift_hold(world.desk(CAROL), CHANNELS[0], reason="before")
    reserve(world)
    desk = world.desk(BOB)
    if act == "rollback":
        assert roll_back(desk, CHANNELS[0], reason="bad").after.live.number == 1
    elif act == "freeze":
        assert freeze(desk, CHANNELS[0], reason="incident", until=None).after.freeze
    elif act == "hold":
        assert hold(desk, CHANNELS[0], reason="look").after.hold
    elif act == "thaw":
        assert thaw(desk, CHANNELS[0], reason="over").after.freeze is None
    else:
        assert lift_hold(desk, CHANNELS[0], reason="over").after.hold is None
    kinds = [event.change.kind for event, _ in world.registry().channels.events(CHANNELS[0])]
    assert "withdrawn" in kinds[-2:]
    assert world.was_ever_live(3) == []
    check_sets(world)


@pytest.mark.parametrize("write", [5, 7], ids=["of the last preparation", "of the decision"])
def test_a_rollback_withdraws_the_set_everywhere(world: SetWorld, write: int) -> None:
    """The mover was only slow: it comes back and finds its set withdrawn."""

    def undo() -> None:
        roll_back(world.desk(BOB), CHANNELS[1], reason="two is bad as well")

    with pytest.raises(Conflict) as refused:
        world.move_all(wrap=watched(In(write, undo, WRITES)))
    assert refused.value.name in {"set-withdrawn", "channel-moved", "set-pending"}
    assert world.live() == [2, 1, 2]
    assert world.was_ever_live(3) == []
    check_sets(world)


def test_a_set_left_behind_on_another_channel_does_not_matter(world: SetWorld) -> None:
    reserve(world)
    assert roll_back(world.desk(BOB), CHANNELS[2], reason="bad").after.live.number == 1
    assert world.registry().channels.state(CHANNELS[0]).pending is not None


def test_who_moved_a_set_may_run_the_same_command_again_at_once(world: SetWorld) -> None:
    reserve(world)
    assert world.move_all().name is not None
    assert world.live() == [3, 3, 3]
    withdrawn = world.registry().channels.events(CHANNELS[0])[3][0].change
    assert isinstance(withdrawn, Withdrawn)
    assert "alice needed" in withdrawn.reason
    check_sets(world)


def test_a_channel_that_moved_meanwhile_stops_the_set(world: SetWorld) -> None:
    wish = world.wish(PRODUCTS[2], 4)
    done = []

    def cut_in(method: str) -> None:
        if method == "create" and not done:
            done.append(True)
            promote_one(world.desk(BOB), wish)

    with pytest.raises(ChannelMoved):
        world.move_all(wrap=watched(cut_in))
    assert world.live() == [2, 2, 4]
    check_sets(world)
    assert verify(world.registry()).notes == ()


def test_channels_are_reserved_in_order_of_name_whatever_the_order_asked(world: SetWorld) -> None:
    outcome = promote_set(world.desk(ALICE), world.wishes()[::-1])
    assert [member.wish.channel for member in outcome.members] == list(CHANNELS)
    at = [world.registry().channels.events(ref)[-2][0].at for ref in CHANNELS]
    assert at == sorted(at)


def test_other_channels_of_a_product_are_not_touched(world: SetWorld) -> None:
    world.move_all()
    assert world.registry().channels.channels(ProductRef("tiny", "a100")) == [
        ChannelRef(PRODUCTS[0], "prod")
    ]
