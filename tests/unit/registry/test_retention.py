"""What is kept and why, as a function of facts."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_registry.digest import Digest
from engine_registry.refs import ProductRef
from engine_registry.retention import (
    ChannelFacts,
    EngineFacts,
    Kept,
    ProductFacts,
    ReleaseFacts,
    Retention,
    decide,
)
from engine_registry.testing.samples import SAMPLE_AT

PRODUCT = ProductRef("tiny", "cpu")
NOW = SAMPLE_AT
DAY = timedelta(days=1)
TIGHT = Retention(
    live_per_channel=1,
    newest_releases=1,
    released_for=timedelta(0),
    unreleased_for=timedelta(0),
)


def engine(number: int) -> Digest:
    return Digest.of(b"engine %d" % number)


def release(number: int, days_old: float = 365) -> ReleaseFacts:
    return ReleaseFacts(
        number=number, engine=engine(number), created_at=NOW - timedelta(days=days_old)
    )


def built(number: int, days_old: float = 365, written_ago=10 * DAY, touched_ago=None):
    return EngineFacts(
        engine=engine(number),
        built_at=NOW - timedelta(days=days_old),
        written_ago=written_ago,
        touched_ago=touched_ago,
    )


def channel(*was_live: int, name: str = "tiny/cpu/prod", **more) -> ChannelFacts:
    return ChannelFacts(name=name, was_live=was_live, **more)


def kept(*, rules: Retention | None = TIGHT, **facts) -> Kept:
    return decide(ProductFacts(product=PRODUCT, **facts), rules, now=NOW, grace=DAY)


TEN = tuple(release(number) for number in range(1, 11))


def test_what_is_live_is_kept_with_its_engine_and_names_the_channel():
    found = kept(releases=TEN, channels=(channel(3),))
    assert found.releases[3] == ("live on tiny/cpu/prod",)
    assert found.engines[engine(3)] == ("release tiny/cpu:3",)
    assert set(found.releases) == {3, 10}  # 10 is the newest


def test_a_release_live_on_several_channels_names_each_of_them():
    found = kept(releases=TEN, channels=(channel(3), channel(3, name="tiny/cpu/staging")))
    assert found.releases[3] == ("live on tiny/cpu/prod", "live on tiny/cpu/staging")


def test_the_rollback_window_counts_releases_and_not_moves():
    rules = TIGHT.model_copy(update={"live_per_channel": 3})
    found = kept(rules=rules, releases=TEN, channels=(channel(5, 4, 5, 4, 3, 2),))
    assert set(found.releases) == {5, 4, 3, 10}
    assert found.releases[3] == ("rollback window of tiny/cpu/prod",)


def test_releases_marked_bad_do_not_take_the_place_of_good_ones():
    rules = TIGHT.model_copy(update={"live_per_channel": 2})
    found = kept(rules=rules, releases=TEN, channels=(channel(5, 4, 3, 2, bad=frozenset({4, 3})),))
    assert set(found.releases) == {5, 4, 3, 2, 10}


def test_a_channel_on_hold_or_frozen_keeps_its_whole_window():
    found = kept(releases=TEN, channels=(channel(5, 4, 3, stopped="on hold: p95 doubled"),))
    assert found.releases[4] == ("tiny/cpu/prod is on hold: p95 doubled",)
    assert set(found.releases) == {5, 4, 3, 10}


def test_a_release_on_hold_is_kept_with_the_reason():
    found = kept(releases=TEN, held={2: "evidence of the incident"})
    assert found.releases[2] == ("on hold: evidence of the incident",)


def test_a_release_that_was_approved_and_is_not_live_yet_is_kept():
    found = kept(releases=TEN, channels=(channel(5, approved=frozenset({2})),))
    assert found.releases[2] == ("approved for tiny/cpu/prod, not yet live there",)


def test_a_release_that_a_set_is_about_to_make_live_is_kept():
    found = kept(releases=TEN, channels=(channel(5, pending=2),))
    assert found.releases[2] == ("about to go live on tiny/cpu/prod with its set",)


@pytest.mark.parametrize(
    ("count", "numbers"), [(1, {10}), (3, {8, 9, 10}), (100, set(range(1, 11)))]
)
def test_the_newest_releases_are_kept(count, numbers):
    rules = TIGHT.model_copy(update={"newest_releases": count})
    assert set(kept(rules=rules, releases=TEN).releases) == numbers


@pytest.mark.parametrize(("days_old", "stays"), [(0, True), (29.9, True), (30, False), (31, False)])
def test_young_releases_are_kept_up_to_the_age_and_no_longer(days_old, stays):
    rules = TIGHT.model_copy(update={"released_for": 30 * DAY})
    found = kept(rules=rules, releases=(release(1, days_old), release(2)))
    assert (1 in found.releases) is stays


@pytest.mark.parametrize(("days_old", "stays"), [(1, True), (30, False)])
def test_young_engines_are_kept_without_a_release(days_old, stays):
    rules = TIGHT.model_copy(update={"unreleased_for": 30 * DAY})
    found = kept(rules=rules, engines=(built(1, days_old),))
    assert (engine(1) in found.engines) is stays


@pytest.mark.parametrize("ago", ["written_ago", "touched_ago"])
def test_an_engine_that_somebody_is_at_work_on_is_spared_for_the_grace_period(ago):
    just_now = built(1, **{ago: timedelta(hours=23)})
    long_ago = built(1, **{ago: timedelta(hours=24)})
    assert engine(1) in kept(engines=(just_now,)).engines
    assert engine(1) not in kept(engines=(long_ago,)).engines


def test_an_engine_wholly_in_the_trash_is_not_taken_for_new():
    assert not kept(engines=(built(1, written_ago=None),)).engines


def test_a_product_without_rules_keeps_everything_and_says_so():
    found = kept(rules=None, releases=TEN, engines=(built(77),))
    assert set(found.releases) == set(range(1, 11))
    assert found.releases[1] == ("no retention is set for tiny/cpu",)
    assert found.engines[engine(77)] == ("no retention is set for tiny/cpu",)


def test_nothing_is_kept_that_no_rule_speaks_for():
    found = kept(releases=TEN, engines=tuple(built(number) for number in range(1, 12)))
    assert set(found.releases) == {10}
    assert set(found.engines) == {engine(10)}


def test_a_release_from_the_future_is_young():
    rules = TIGHT.model_copy(update={"released_for": DAY})
    found = kept(rules=rules, releases=(release(1, -400), release(2)))
    assert 1 in found.releases


def test_a_kept_release_keeps_its_engine_even_without_a_record():
    assert engine(10) in kept(releases=TEN, engines=()).engines


@given(
    st.lists(st.integers(1, 12), max_size=25),
    st.integers(1, 25),
    st.integers(1, 12),
    st.sets(st.integers(1, 12)),
)
def test_loosening_any_rule_never_drops_anything(was_live, window, newest, bad):
    facts = {
        "releases": tuple(release(number) for number in range(1, 13)),
        "channels": (channel(*was_live, bad=frozenset(bad)),),
        "engines": tuple(built(number) for number in range(1, 13)),
    }
    tight = TIGHT.model_copy(update={"live_per_channel": window, "newest_releases": newest})
    loose = tight.model_copy(
        update={"live_per_channel": window + 1, "newest_releases": newest + 1, "released_for": DAY}
    )
    before, after = kept(rules=tight, **facts), kept(rules=loose, **facts)
    assert set(before.releases) <= set(after.releases)
    assert set(before.engines) <= set(after.engines)
    assert all(before.releases.values())
    assert set(was_live[:1]) <= set(before.releases)
