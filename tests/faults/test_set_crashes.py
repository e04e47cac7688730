"""Releases that move together, with everything that can go wrong in between: all or none."""

import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from engine_pipeline.promote.moves import SET_TIMEOUT, Desk
from engine_pipeline.promote.rollback import roll_back
from engine_pipeline.promote.say import freeze, hold
from engine_pipeline.promote.sets import promote_set
from engine_registry.backends.filesystem import file_stores
from engine_registry.errors import Conflict, EngineCIError
from engine_registry.record import Actor
from engine_registry.registry import Registry
from engine_registry.sets import Fate
from engine_registry.testing.faults import CrashMode, FaultPlan, SimulatedCrash, faulty
from engine_registry.verify import verify
from tests.set_world import (
    ALICE,
    BOB,
    CAROL,
    CHANNELS,
    PRODUCTS,
    WRITES,
    Deaf,
    In,
    SetWorld,
    check_sets,
    decisions,
    promote_one,
    watched,
)

_MODES = pytest.mark.parametrize("mode", [CrashMode.BEFORE, CrashMode.AFTER])


@pytest.fixture(scope="module")
def filled() -> SetWorld:
    return SetWorld()


@pytest.fixture
def world(filled: SetWorld) -> SetWorld:
    filled.reload()
    return filled


def writes_of_a_move(world: SetWorld) -> int:
    counting = FaultPlan()
    world.move_all(wrap=lambda stores: faulty(stores, counting))
    world.reload()
    # A reservation and a record for each channel, each with its pointer, and the decision.
    assert counting.writes == 4 * len(CHANNELS) + 1
    return counting.writes


def operations_of(
    world: SetWorld, act: Callable[..., object], counts: frozenset[str] | None = None
) -> int:
    counting = In(0, lambda: None, counts)
    act(wrap=watched(counting))
    world.reload()
    return counting.seen


def dies(world: SetWorld, at: int, mode: CrashMode, actor: Actor = ALICE, number: int = 3) -> None:
    plan = FaultPlan(at, mode)
    with pytest.raises(SimulatedCrash):
        world.move_all(actor, lambda stores: faulty(stores, plan), number)


def settled(world: SetWorld) -> None:
    """Nothing is left to be recorded but, perhaps, a pointer."""
    registry = world.registry()
    assert not [note for note in verify(registry).notes if "head.json" not in note.name]
    for ref in CHANNELS:
        assert registry.channels.state(ref) == registry.channels.replay(ref)


@_MODES
def test_a_mover_that_dies_at_any_write_leaves_all_or_none_live_and_a_rerun_finishes(
    world: SetWorld, mode: CrashMode
) -> None:
    seen = set()
    for at in range(1, writes_of_a_move(world) + 1):
        world.reload()
        dies(world, at, mode)
        live = world.live()
        seen.add(tuple(live))
        assert live in ([2, 2, 2], [3, 3, 3]), f"write {at}"
        check_sets(world)
        world.move_all()
        assert world.live() == [3, 3, 3], f"write {at}"
        check_sets(world)
        settled(world)
    assert seen == {(2, 2, 2), (3, 3, 3)}


@_MODES
def test_what_a_dead_mover_decided_is_carried_out_by_whoever_comes_next(
    world: SetWorld, mode: CrashMode
) -> None:
    for at in range(1, writes_of_a_move(world) + 1):
        world.reload()
        dies(world, at, mode)
        before = world.live()
        world.clock.passes(2 * SET_TIMEOUT)
        for product in PRODUCTS:
            promote_one(world.desk(BOB), world.wish(product, 4))
        assert world.live() == [4, 4, 4]
        assert world.was_ever_live(3) == (list(CHANNELS) if before == [3, 3, 3] else [])
        check_sets(world)
        settled(world)


@_MODES
@pytest.mark.parametrize("act", ["rollback", "freeze", "hold"])
def test_no_set_whose_mover_died_at_any_write_blocks_rollback_freeze_or_hold(
    world: SetWorld, mode: CrashMode, act: str
) -> None:
    def acts(desk: Desk, ref) -> None:
        if act == "rollback":
            before = desk.registry.channels.state(ref).live.number
            assert roll_back(desk, ref, reason="bad").after.live.number == before - 1
        elif act == "freeze":
            assert freeze(desk, ref, reason="incident", until=None).after.freeze is not None
        else:
            assert hold(desk, ref, reason="look at it").after.hold is not None

    for at in range(1, writes_of_a_move(world) + 1):
        for ref in CHANNELS:
            world.reload()
            dies(world, at, mode)
            was = world.live()
            others = [was[i] for i, other in enumerate(CHANNELS) if other != ref]
            acts(world.desk(BOB), ref)
            now = world.live()
            assert [now[i] for i, other in enumerate(CHANNELS) if other != ref] == others
            assert world.was_ever_live(3) in ([], list(CHANNELS)), f"write {at}"
            check_sets(world)


def test_a_lost_reply_at_any_write_leaves_all_or_none_live_and_a_rerun_finishes(
    world: SetWorld,
) -> None:
    for at in range(1, writes_of_a_move(world) + 1):
        for recovers in (True, False):
            world.reload()
            try:
                world.move_all(wrap=watched(after=Deaf(at, recovers=recovers)))
            except EngineCIError:
                pass
            else:
                assert world.live() == [3, 3, 3], f"write {at}"
            assert world.live() in ([2, 2, 2], [3, 3, 3]), f"write {at}"
            check_sets(world)
            world.move_all()
            assert world.live() == [3, 3, 3], f"write {at}"
            check_sets(world)
            settled(world)


@pytest.mark.parametrize(
    "counts",
    [pytest.param(WRITES, id="writes"), pytest.param(None, id="all", marks=pytest.mark.nightly)],
)
def test_whatever_cuts_in_before_any_operation_of_a_move_it_is_all_or_none(
    world: SetWorld, counts: frozenset[str] | None
) -> None:
    """The mover does not die: it goes on after somebody else's whole act."""
    cuts: dict[str, Callable[[], object]] = {
        "rollback": lambda: roll_back(world.desk(BOB), CHANNELS[1], reason="bad"),
        "freeze": lambda: freeze(world.desk(BOB), CHANNELS[0], reason="stop", until=None),
        "hold": lambda: hold(world.desk(BOB), CHANNELS[2], reason="stop"),
        "promotion": lambda: promote_one(world.desk(BOB), world.wish(PRODUCTS[1], 4)),
        "set": lambda: world.move_all(BOB, number=4, products=PRODUCTS[1:]),
        "the same again": lambda: world.move_all(ALICE),
    }
    total = operations_of(world, world.move_all, counts)
    for name, cut in cuts.items():
        endings = set()
        for at in range(1, total + 1):
            world.reload()
            ended: list[str] = []

            def cutting(cut=cut, ended=ended) -> None:
                try:
                    cut()
                    ended.append("done")
                except Conflict as error:
                    ended.append(error.name)

            try:
                outcome = world.move_all(wrap=watched(In(at, cutting, counts)))
                mine = "done" if outcome.name else "nothing to do"
            except Conflict as error:
                mine = error.name
            endings.add((mine, *ended))
            check_sets(world)
            went = world.was_ever_live(3)
            assert went in ([], list(CHANNELS)), f"{name} in operation {at}"
            assert went or mine != "done"
            if name in {"rollback", "freeze", "hold"}:
                assert ended == ["done"], f"{name} in operation {at}"
        assert len(endings) > 1, name  # it mattered when


@pytest.mark.parametrize("writes", range(1, 7))
def test_a_set_that_begins_and_is_left_behind_during_a_rollback_does_not_stop_it(
    world: SetWorld, writes: int
) -> None:
    def back(wrap=lambda stores: stores) -> object:
        return roll_back(world.desk(BOB, wrap), CHANNELS[0], reason="two is bad")

    died = 0

    def begin() -> None:
        nonlocal died
        plan = FaultPlan(writes, CrashMode.AFTER)
        with suppress(SimulatedCrash):
            world.move_all(wrap=lambda stores: faulty(stores, plan))
        died += plan.crashed

    total = operations_of(world, back)
    for at in range(1, total + 1):
        world.reload()
        back(watched(In(at, begin)))
        assert world.registry().channels.state(CHANNELS[0]).live.number == 1, f"operation {at}"
        assert world.was_ever_live(3) == []
        check_sets(world)
    assert died > total // 2  # later ones find the hold that the rollback set


def test_the_later_of_two_sets_on_the_same_channels_moves_nothing(world: SetWorld) -> None:
    for at in range(1, 3 * 4 + 1):
        world.reload()
        dies(world, at, CrashMode.AFTER)
        undecided = not decisions(world.registry())
        if undecided:
            with pytest.raises(Conflict):
                world.move_all(BOB, number=4)
            assert world.live() == [2, 2, 2]
        else:
            world.move_all(BOB, number=4)
            assert world.live() == [4, 4, 4]
        check_sets(world)


def test_eight_movers_at_once_on_overlapping_sets_leave_every_set_whole(
    world: SetWorld, fast_dir: Path
) -> None:
    for name, data in world.files.items():
        path = fast_dir / "registry" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    lock = threading.Lock()

    def clock():
        with lock:
            return world.clock()

    def registry() -> Registry:
        return Registry(file_stores(fast_dir / "registry", clock), clock)

    together = threading.Barrier(8)
    moved: list[str] = []
    failures: list[BaseException] = []

    def mover(index: int) -> None:
        desk = Desk(
            registry=registry(), actor=Actor(name=f"mover {index}", proved_by="t"), clock=clock
        )
        products = (PRODUCTS, PRODUCTS[:2], PRODUCTS[1:], PRODUCTS[::2])[index % 4]
        wishes = world.wishes(3 + index // 4, products)
        together.wait()
        for _ in range(4):
            try:
                if index == 7:
                    roll_back(desk, CHANNELS[1], reason="mover 7 does not like it")
                elif name := promote_set(desk, wishes).name:
                    moved.append(name)
            except EngineCIError:
                continue
            except BaseException as error:
                failures.append(error)
                raise

    threads = [threading.Thread(target=mover, args=(index,)) for index in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    after = registry()
    assert verify(after).mismatches == ()
    decided = {decision.set: decision for decision in decisions(after)}
    assert {name for name, d in decided.items() if d.fate is Fate.COMMITTED} == set(moved)
    for decision in decided.values():
        recorded = {
            (str(ref), event.change.to)
            for ref in CHANNELS
            for event, _ in after.channels.events(ref)
            if event.change.kind == "promoted" and event.change.set == decision.set
        }
        assert recorded == {(member.channel, member.to) for member in decision.members}


def test_a_hold_by_a_third_person_on_a_member_is_seen_before_anything_is_reserved(
    world: SetWorld,
) -> None:
    hold(world.desk(CAROL), CHANNELS[2], reason="not now")
    files = dict(world.files)
    outcome = world.move_all()
    assert [finding.rule for finding in outcome.lacking[0].lacks] == ["hold"]
    assert world.files == files
