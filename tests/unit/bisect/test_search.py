"""The search finds the change that made it bad, in few tries, also where some cannot be tried."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_pipeline.bisect.search import Alone, Verdict, blame, most_tries

EIGHT = tuple("abcdefgh")


def judged_by(is_bad, unknown=lambda names: False):
    tried = []

    def judge(names):
        tried.append(names)
        if unknown(names):
            return Verdict.UNKNOWN
        return Verdict.BAD if is_bad(set(names)) else Verdict.GOOD

    return judge, tried


@pytest.mark.parametrize("culprit", EIGHT)
def test_one_culprit_among_eight_takes_at_most_four_tries(culprit):
    judge, tried = judged_by(lambda names: culprit in names)
    found = blame(EIGHT, judge)
    assert found.suspects == (culprit,)
    assert found.alone is Alone.YES
    assert len(tried) <= most_tries(8) == 4


@given(st.integers(1, 40), st.data())
def test_whoever_of_any_number_is_to_blame_is_found_within_the_stated_tries(count, data):
    names = tuple(str(number) for number in range(count))
    culprit = data.draw(st.sampled_from(names))
    judge, tried = judged_by(lambda held: culprit in held)
    assert blame(names, judge).suspects == (culprit,)
    assert len(tried) <= most_tries(count)
    assert len(set(tried)) == len(tried)


def test_a_culprit_that_needs_an_earlier_change_is_said_not_to_be_bad_alone():
    judge, _ = judged_by(lambda names: {"b", "f"} <= names)
    found = blame(EIGHT, judge)
    assert found.suspects == ("f",)
    assert found.alone is Alone.NO
    assert "b" in found.before


def test_states_that_cannot_be_judged_are_gone_round():
    judge, _ = judged_by(lambda names: "f" in names, unknown=lambda names: len(names) in {4, 3})
    assert blame(EIGHT, judge).suspects == ("f",)


def test_what_lies_between_states_that_cannot_be_judged_stays_suspect_as_a_whole():
    judge, tried = judged_by(lambda names: "f" in names, unknown=lambda names: len(names) in {5, 6})
    found = blame(EIGHT, judge)
    assert found.suspects == ("e", "f", "g")
    assert found.alone is Alone.UNKNOWN
    assert len(set(tried)) == len(tried)


def test_a_single_change_needs_no_try():
    judge, tried = judged_by(lambda names: True)
    assert blame(("a",), judge).suspects == ("a",)
    assert tried == []
