"""Outcomes: the laws of combining them, and their exit codes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_pipeline.gates.outcome import Outcome, combine, exit_code
from engine_registry.errors import ExitCode

OUTCOMES = st.sampled_from(Outcome)
LISTS = st.lists(OUTCOMES, min_size=1)


def test_nothing_examined_is_errored_not_passed():
    assert combine([]) is Outcome.ERRORED


@given(LISTS)
def test_failed_anywhere_is_failed(outcomes):
    assert (combine(outcomes) is Outcome.FAILED) == (Outcome.FAILED in outcomes)


@given(LISTS)
def test_passed_takes_a_pass_and_nothing_worse_than_skipped(outcomes):
    good = set(outcomes) <= {Outcome.PASSED, Outcome.SKIPPED} and Outcome.PASSED in outcomes
    assert (combine(outcomes) is Outcome.PASSED) == good


@given(LISTS, LISTS)
def test_parts_may_be_combined_in_any_grouping_and_order(first, second):
    together = combine(first + second)
    assert together is combine([combine(first), combine(second)])
    assert together is combine(second + first)


@given(OUTCOMES)
def test_one_part_is_the_whole(outcome):
    assert combine([outcome]) is outcome
    assert combine([outcome, outcome]) is outcome


@given(LISTS)
def test_the_whole_is_one_of_its_parts(outcomes):
    assert combine(outcomes) in outcomes


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([Outcome.ERRORED, Outcome.FAILED], Outcome.FAILED),
        ([Outcome.INCONCLUSIVE, Outcome.ERRORED], Outcome.ERRORED),
        ([Outcome.PASSED, Outcome.INCONCLUSIVE], Outcome.INCONCLUSIVE),
        ([Outcome.PASSED, Outcome.SKIPPED], Outcome.PASSED),
        ([Outcome.SKIPPED], Outcome.SKIPPED),
    ],
)
def test_the_higher_outcome_decides(parts, whole):
    assert combine(parts) is whole


def test_only_passed_exits_with_zero_and_failed_is_not_errored():
    assert {outcome: exit_code(outcome) for outcome in Outcome} == {
        Outcome.PASSED: ExitCode.DONE,
        Outcome.FAILED: ExitCode.REFUSED,
        Outcome.ERRORED: ExitCode.COULD_NOT_JUDGE,
        Outcome.INCONCLUSIVE: ExitCode.COULD_NOT_JUDGE,
        Outcome.SKIPPED: ExitCode.COULD_NOT_JUDGE,
    }
