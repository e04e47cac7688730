"""Random histories of sets, promotions and rollbacks, with movers that die or are cut in on."""

from contextlib import suppress
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from engine_pipeline.promote.rollback import roll_back
from engine_pipeline.promote.say import freeze, hold, lift_hold, thaw
from engine_registry.errors import Conflict, EngineCIError
from engine_registry.testing.faults import CrashMode, FaultPlan, SimulatedCrash, faulty
from tests.set_world import (
    ALICE,
    BOB,
    CAROL,
    CHANNELS,
    PRODUCTS,
    WRITES,
    In,
    SetWorld,
    check_sets,
    promote_one,
    watched,
)

actors = st.sampled_from([ALICE, BOB])
numbers = st.integers(1, 4)
indexes = st.integers(0, len(PRODUCTS) - 1)
subsets = st.sets(indexes, min_size=2).map(lambda found: tuple(PRODUCTS[i] for i in sorted(found)))
writes = st.integers(1, 14)
modes = st.sampled_from([CrashMode.BEFORE, CrashMode.AFTER])
WORLD = SetWorld()


class Sets(RuleBasedStateMachine):
    """Every rule is one person's command; the invariant is looked at after each."""

    def __init__(self) -> None:
        super().__init__()
        WORLD.reload()

    @rule(actor=actors, number=numbers, products=subsets)
    def a_set_moves(self, actor, number, products) -> None:
        with suppress(Conflict):
            outcome = WORLD.move_all(actor, number=number, products=products)
            live = {member.is_live for member in outcome.members if not member.lacks}
            assert outcome.lacking or live == {True}

    @rule(actor=actors, number=numbers, products=subsets, at=writes, mode=modes)
    def the_mover_of_a_set_dies(self, actor, number, products, at, mode) -> None:
        plan = FaultPlan(at, mode)
        with suppress(SimulatedCrash, Conflict):
            WORLD.move_all(actor, lambda stores: faulty(stores, plan), number, products)

    @rule(number=numbers, products=subsets, at=writes, index=indexes, other=numbers)
    def somebody_promotes_in_the_middle_of_a_set(self, number, products, at, index, other) -> None:
        def cut() -> None:
            with suppress(EngineCIError):
                promote_one(WORLD.desk(BOB), WORLD.wish(PRODUCTS[index], other))

        self._cut_in(number, products, at, cut)

    @rule(number=numbers, products=subsets, at=writes, index=indexes)
    def somebody_rolls_back_in_the_middle_of_a_set(self, number, products, at, index) -> None:
        self._cut_in(number, products, at, lambda: self._back(index))

    @rule(number=numbers, products=subsets, at=writes, others=subsets, other=numbers)
    def a_set_moves_in_the_middle_of_a_set(self, number, products, at, others, other) -> None:
        def cut() -> None:
            with suppress(Conflict):
                WORLD.move_all(BOB, number=other, products=others)

        self._cut_in(number, products, at, cut)

    @rule(actor=actors, index=indexes, number=numbers)
    def one_release_is_promoted(self, actor, index, number) -> None:
        with suppress(EngineCIError):
            promote_one(WORLD.desk(actor), WORLD.wish(PRODUCTS[index], number))

    @rule(index=indexes)
    def a_channel_is_rolled_back(self, index) -> None:
        self._back(index)

    @rule(index=indexes, lifts=st.booleans())
    def a_channel_is_held_or_frozen(self, index, lifts) -> None:
        desk, ref = WORLD.desk(CAROL), CHANNELS[index]
        if lifts:
            assert lift_hold(desk, ref, reason="over").after.hold is None
            assert thaw(desk, ref, reason="over").after.freeze is None
        else:
            assert hold(desk, ref, reason="look").after.hold is not None
            until = WORLD.clock() + timedelta(minutes=3)
            assert freeze(desk, ref, reason="stop", until=until).after.freeze is not None

    @rule(minutes=st.integers(1, 20))
    def time_passes(self, minutes) -> None:
        WORLD.clock.passes(timedelta(minutes=minutes))

    @invariant()
    def every_set_is_live_whole_from_one_instant_or_never_at_all(self) -> None:
        check_sets(WORLD)

    def _cut_in(self, number, products, at, cut) -> None:
        with suppress(Conflict):
            WORLD.move_all(ALICE, watched(In(at, cut, WRITES)), number, products)

    def _back(self, index: int) -> None:
        """No set ever stops a rollback: only a want of something to go back to does."""
        try:
            roll_back(WORLD.desk(CAROL), CHANNELS[index], reason="bad")
        except EngineCIError as error:
            if error.name != "no-rollback-target":
                raise


def run(examples: int, steps: int) -> None:
    run_state_machine_as_test(
        Sets,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )


def test_in_any_history_a_set_is_live_on_all_its_channels_or_on_none() -> None:
    run(8, 20)


@pytest.mark.nightly
def test_in_any_long_history_a_set_is_live_on_all_its_channels_or_on_none() -> None:
    run(400, 60)
