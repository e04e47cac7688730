"""Whatever was measured: whom a bake-off recommends meets every limit, and its flips are true."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from engine_pipeline.bakeoff.decide import decide
from engine_pipeline.bakeoff.facts import Facts, Step
from engine_pipeline.bakeoff.flips import Lever, at_price, flips
from engine_pipeline.bakeoff.goals import Limits, Priority
from engine_pipeline.gates import stats
from engine_pipeline.gates.outcome import Outcome
from tests.bakeoff_world import facts, step

STEPS = st.builds(
    step,
    concurrency=st.sampled_from([1, 4, 16]),
    ttft=st.floats(1, 1000),
    tpot=st.floats(1, 100) | st.none(),
    rate_=st.floats(1, 1000) | st.none(),
    noise=st.floats(0, 0.5),
    n=st.sampled_from([5, 20, 40, 60, 200]),
)
ORDERS = st.lists(st.sampled_from(Priority), min_size=1, max_size=3, unique=True)
BARS = st.builds(
    Limits,
    min_score=st.floats(0.1, 1.0) | st.none(),
    max_ttft_p95_ms=st.floats(1, 1500) | st.none(),
    max_tpot_p95_ms=st.floats(1, 150) | st.none(),
)


@st.composite
def contestants(draw) -> list[Facts]:
    names = [f"c{number}" for number in range(draw(st.integers(1, 5)))]
    # Everybody is asked the same cases.
    cases = draw(st.integers(1, 40))
    return [
        facts(
            name,
            score=draw(st.floats(0, 1)),
            cases=cases,
            price=draw(st.floats(0.001, 100) | st.just(0.0)),
            steps=tuple(draw(st.lists(STEPS, min_size=1, max_size=3))),
        )
        for name in names
    ]


def meets(one: Facts, limits: Limits) -> bool:
    """The limits, said again in other words."""
    if limits.min_score is not None and one.score.value < limits.min_score - 1e-6:
        return False

    def within(estimate, bar) -> bool:
        if bar is None:
            return True
        return estimate is not None and stats.at_most(estimate, bar, "ms").outcome is Outcome.PASSED

    return any(
        within(s.ttft_p95_ms, limits.max_ttft_p95_ms)
        and within(s.tpot_p95_ms, limits.max_tpot_p95_ms)
        for s in one.steps
    )


@given(contestants(), BARS, ORDERS)
@settings(max_examples=150, deadline=None)
def test_the_recommendation_meets_every_limit_and_nobody_is_left_out_who_does(them, limits, order):
    decision = decide(them, limits, order)
    assert set(decision.ranking) == {one.name for one in them if meets(one, limits)}


@given(contestants(), BARS, ORDERS)
@settings(max_examples=150, deadline=None)
def test_nobody_is_clearly_better_in_the_first_priority_than_whom_is_recommended(
    them, limits, order
):
    decision = decide(them, limits, order)
    if decision.winner is None:
        return
    ours = decision.ruling(decision.winner)
    best = min(map(decision.ruling, decision.ranking), key=lambda one: one.badness(order[0]).value)
    assert ours is best or ours.is_level(best, order[0])


@given(contestants(), BARS, ORDERS)
@settings(max_examples=150, deadline=None)
def test_past_a_stated_flip_the_choice_is_the_stated_one(them, limits, order):
    before = decide(them, limits, order).winner
    for flip in flips(them, limits, order):
        assert flip.winner != before
        if flip.lever is Lever.PRICE:
            past = flip.at * (1 + 1e-9 if flip.up else 1 - 1e-9) or 1e-9
            assert past >= (flip.now or 0) if flip.up else past <= (flip.now or 0)
            after = decide(at_price(them, flip.whose, past), limits, order)
        elif flip.lever is Lever.FIRST:
            assert flip.first is not None
            after = decide(them, limits, [flip.first, *(p for p in order if p is not flip.first)])
        else:
            bar = flip.at if flip.up else flip.at * (1 - 1e-9)
            if flip.lever is Lever.MIN_SCORE:
                bar = flip.at + 1e-6 if flip.up else flip.at
            after = decide(them, limits.model_copy(update={str(flip.lever): bar}), order)
        assert after.winner == flip.winner


@given(contestants(), BARS, ORDERS, st.floats(0, 1))
@settings(max_examples=150, deadline=None)
def test_short_of_the_stated_price_the_choice_stays(them, limits, order, share):
    decision = decide(them, limits, order)
    if decision.winner is None:
        return
    price = decision.ruling(decision.winner).facts.price or 0.0
    raised = [f.at for f in flips(them, limits, order) if f.lever is Lever.PRICE and f.up]
    # Numbers that meet are compared with the last bit in doubt; see `flips.PAST`.
    end = raised[0] * (1 - 1e-9) if raised else price * 1000 + 1000
    between = price + (end - price) * share
    if between < price:
        return
    trial = at_price(them, decision.winner, between)
    assert decide(trial, limits, order).winner == decision.winner or Priority.COST not in order


@given(contestants(), BARS, ORDERS, st.data())
@settings(max_examples=150, deadline=None)
def test_a_choice_that_is_not_shaken_stands_whatever_a_quiet_machine_would_show(
    them, limits, order, data
):
    busy = [replace(one, disturbed=data.draw(st.sampled_from([None, "busy"]))) for one in them]
    decision = decide(busy, limits, order)
    if decision.shaken:
        return
    quick = data.draw(st.floats(0.01, 1.0))
    quiet = [
        one
        if one.disturbed is None
        else replace(one, steps=tuple(faster(step, quick) for step in one.steps))
        for one in busy
    ]
    then = decide(quiet, limits, order)
    assert (then.winner, set(then.tied)) == (decision.winner, set(decision.tied))


def faster(step: Step, share: float) -> Step:
    """The same step on a machine that nobody else uses."""

    def less(estimate):
        return estimate and replace(
            estimate,
            value=estimate.value * share,
            low=estimate.low * share,
            high=estimate.high * share,
            largest=estimate.largest * share,
        )

    return replace(
        step,
        ttft_p95_ms=less(step.ttft_p95_ms),
        tpot_p95_ms=less(step.tpot_p95_ms),
        tokens_per_s=step.tokens_per_s and step.tokens_per_s.scaled(1 / share),
        unit_cost=step.unit_cost and step.unit_cost.scaled(share),
    )
