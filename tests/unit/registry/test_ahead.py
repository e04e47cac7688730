"""Reads asked for ahead: in turn and only when needed nearby, at once where they are requests."""

from dataclasses import replace
from itertools import count, islice
from threading import Barrier

import pytest

from engine_registry.ahead import ahead, read_many
from engine_registry.backends.memory import memory_stores
from engine_registry.testing.samples import TickingClock

NEAR = memory_stores(TickingClock())
FAR = replace(NEAR, is_far=True)


def test_nearby_nothing_is_read_before_it_is_needed_and_nothing_twice():
    read: list[str] = []
    with ahead(NEAR) as ask:
        first = ask(lambda: read.append("first"))
        ask(lambda: read.append("never needed"))
        assert read == []
        first()
        first()
    assert read == ["first"]


def test_far_away_all_are_under_way_at_once_and_may_need_each_other():
    meet = Barrier(2, timeout=10)
    with ahead(FAR) as ask:
        one = ask(meet.wait)
        other = ask(meet.wait)
        both = ask(lambda: {one(), other()})
        assert both() == {0, 1}


@pytest.mark.parametrize("stores", [NEAR, FAR], ids=["near", "far"])
def test_a_failure_is_that_of_the_answer_and_of_no_other(stores):
    def fail() -> None:
        raise KeyError("no such thing")

    with ahead(stores) as ask:
        good, bad, _ = ask(lambda: "good"), ask(fail), ask(fail)
        assert good() == "good"
        with pytest.raises(KeyError, match="no such thing"):
            bad()


@pytest.mark.parametrize("stores", [NEAR, FAR], ids=["near", "far"])
@pytest.mark.parametrize("held", [0, 1, 64, 1000])
def test_of_many_each_is_read_once_and_answered_in_order(stores, held):
    assert list(read_many(stores, str, range(held))) == [str(number) for number in range(held)]


@pytest.mark.parametrize("stores", [NEAR, FAR], ids=["near", "far"])
def test_of_endlessly_many_only_a_few_are_begun(stores):
    begun: list[int] = []
    answers = read_many(stores, begun.append, count())
    assert list(islice(answers, 10)) == [None] * 10
    answers.close()
    assert len(begun) < 500


def test_of_many_far_away_some_are_under_way_at_once():
    meet = Barrier(4, timeout=10)
    assert sorted(read_many(FAR, lambda _: meet.wait(), range(4))) == [0, 1, 2, 3]


@pytest.mark.parametrize("stores", [NEAR, FAR], ids=["near", "far"])
def test_of_many_the_first_failure_in_order_is_raised(stores):
    def read(number: int) -> int:
        if number >= 200:
            raise KeyError(f"no {number}")
        return number

    with pytest.raises(KeyError, match="no 200"):
        list(read_many(stores, read, range(300)))
