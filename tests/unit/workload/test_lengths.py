"""Lengths: each kind of distribution gives what it says, and short runs stand for it."""

from __future__ import annotations

import itertools
import statistics

import pytest
from pydantic import TypeAdapter, ValidationError

from engine_pipeline.workload.lengths import (
    Fixed,
    Histogram,
    Length,
    Lognormal,
    Uniform,
    describe,
    evenly,
    mean_tokens,
)

LENGTH: TypeAdapter = TypeAdapter(Length)


def drawn(length, many: int, seed: str = "x") -> list[int]:
    return [length.at(u) for u in itertools.islice(evenly(seed), many)]


def test_a_fixed_length_is_always_the_same():
    assert set(drawn(Fixed(kind="fixed", tokens=7), 100)) == {7}


def test_a_uniform_length_reaches_both_its_ends_and_no_further():
    values = drawn(Uniform(kind="uniform", low=3, high=6), 400)
    assert set(values) == {3, 4, 5, 6}
    assert statistics.mean(values) == pytest.approx(4.5, abs=0.1)


def test_a_lognormal_length_has_its_median_and_its_tail_within_its_ends():
    length = Lognormal(kind="lognormal", median=400, sigma=1.0, low=50, high=4000)
    values = drawn(length, 1024)
    assert statistics.median(values) == pytest.approx(400, rel=0.05)
    # exp(1.645) = 5.18 times the median at the p95.
    assert sorted(values)[int(0.95 * 1024)] == pytest.approx(400 * 5.18, rel=0.15)
    assert min(values) >= 50
    assert max(values) <= 4000


def test_a_histogram_gives_each_bin_its_share_and_stays_inside():
    length = Histogram(kind="histogram", edges=(10, 20, 100), counts=(3, 1))
    values = drawn(length, 640)
    assert sum(value < 20 for value in values) / 640 == pytest.approx(0.75, abs=0.02)
    assert (min(values), max(values)) >= (10, 98)
    assert max(values) < 100


def test_an_empty_bin_is_never_drawn():
    length = Histogram(kind="histogram", edges=(1, 5, 50, 60), counts=(1, 0, 1))
    assert not [value for value in drawn(length, 640) if 5 <= value < 50]


def test_sixty_four_draws_stand_for_the_whole_distribution():
    length = Lognormal(kind="lognormal", median=200, sigma=0.8)
    means = [statistics.mean(drawn(length, 64, seed)) for seed in "abcdefgh"]
    # Independent draws would differ by some 12 %.
    assert statistics.stdev(means) / mean_tokens(length) < 0.04


def test_the_same_seed_gives_the_same_draws_and_another_one_others():
    length = Uniform(kind="uniform", low=1, high=1000)
    assert drawn(length, 50, "a") == drawn(length, 50, "a")
    assert drawn(length, 50, "a") != drawn(length, 50, "b")


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ({"kind": "uniform", "low": 5, "high": 4}, "low 5 is more than high 4"),
        ({"kind": "lognormal", "median": 5, "sigma": 1, "low": 6}, "not between low 6"),
        ({"kind": "histogram", "edges": [1, 2], "counts": [1, 1]}, "2 edges enclose 1 counts"),
        ({"kind": "histogram", "edges": [2, 2], "counts": [1]}, "not in ascending order"),
        ({"kind": "histogram", "edges": [1, 2], "counts": [0]}, "counts are all 0"),
        ({"kind": "zipf"}, "does not match any of the expected tags"),
    ],
)
def test_what_is_no_distribution_is_refused(value, says):
    with pytest.raises(ValidationError, match=says):
        LENGTH.validate_python(value)


def test_words_name_median_and_tail():
    assert describe(Fixed(kind="fixed", tokens=7)) == "7 tokens"
    assert describe(Uniform(kind="uniform", low=1, high=100)) == (
        "uniform, p50 51, p95 96, mean 50 tokens"
    )
