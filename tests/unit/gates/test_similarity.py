"""How near two vectors are, whatever numbers they hold, and what is no embedding."""

from __future__ import annotations

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine_pipeline.gates.similarity import (
    MAX_NUMBERS,
    NoEmbedding,
    Similarity,
    cosine,
    read_embedding,
    similarity,
)

numbers = st.floats(allow_nan=False, allow_infinity=False)
vectors = st.lists(numbers, min_size=1, max_size=12).filter(any)
pairs = st.integers(1, 12).flatmap(
    lambda size: st.tuples(*[st.lists(numbers, min_size=size, max_size=size).filter(any)] * 2)
)
# So that a vector times one of them neither overflows nor loses digits to the smallest numbers.
moderate = st.lists(
    st.floats(1e-6, 1e6) | st.floats(-1e6, -1e-6) | st.just(0.0), min_size=3, max_size=3
).filter(any)


@given(pairs)
def test_a_cosine_lies_between_minus_one_and_one_and_has_no_sides(pair):
    one, other = pair
    found = cosine(one, other)
    assert -1.0 <= found <= 1.0
    assert cosine(other, one) == found


@given(vectors)
def test_a_vector_is_as_near_to_itself_as_can_be_and_as_far_from_its_opposite(vector):
    assert similarity(vector, vector) == 1.0
    assert similarity(vector, [-number for number in vector]) == -1.0


@given(moderate, moderate, st.floats(1e-9, 1e9))
def test_length_does_not_matter(one, other, factor):
    scaled = [number * factor for number in one]
    assert cosine(scaled, other) == pytest.approx(cosine(one, other), abs=1e-12)


@given(moderate, moderate)
def test_a_cosine_is_what_the_textbook_says(one, other):
    dot = math.fsum(x * y for x, y in zip(one, other, strict=True))
    assume(math.isfinite(dot))
    wanted = dot / (math.hypot(*one) * math.hypot(*other))
    assert cosine(one, other) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        ([1, 0], [0, 1], 0.0),
        ([3, 4], [4, 3], 0.96),
        ([1e308, 1e308], [1e-308, 1e-308], 1.0),
        ([5e-324], [1e308], 1.0),
        ([1, 1], [1, 0], 0.7071),
    ],
)
def test_some_cosines_are_known(one, other, wanted):
    assert similarity(one, other) == wanted


@pytest.mark.parametrize(
    ("one", "other", "why"),
    [
        ([1.0, 2.0], [1.0], "2 numbers cannot be compared with 1"),
        ([0.0, 0.0], [1.0, 0.0], "2 zeros point nowhere"),
        ([], [], "0 zeros point nowhere"),
    ],
)
def test_what_cannot_be_compared_says_so(one, other, why):
    with pytest.raises(NoEmbedding, match=why):
        cosine(one, other)


def test_the_bar_itself_is_near_enough():
    assert Similarity(value=0.8, at_least=0.8).reached
    assert not Similarity(value=0.7999, at_least=0.8).reached


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({}, "want `data` with one entry"),
        ({"data": []}, "want `data` with one entry"),
        ({"data": [{}, {}]}, "want `data` with one entry"),
        ({"data": [{}]}, "`embedding` is NoneType, want a list"),
        ({"data": [{"embedding": "AAAA"}]}, "`embedding` is str, want a list"),
        ({"data": [{"embedding": []}]}, "`embedding` is 0 numbers"),
        ({"data": [{"embedding": [1.0] * (MAX_NUMBERS + 1)}]}, "65537 numbers"),
        ({"data": [{"embedding": [1.0, None]}]}, "number 2 of 2 is null, want a finite one"),
        ({"data": [{"embedding": [math.nan, 1.0]}]}, "number 1 of 2 is nan"),
        ({"data": [{"embedding": [math.inf]}]}, "number 1 of 1 is inf"),
        ({"data": [{"embedding": [True]}]}, "number 1 of 1 is True"),
        ({"data": [{"embedding": [[0.5]]}]}, "number 1 of 1 is \\[0.5\\]"),
        ({"data": [{"embedding": [10**400]}]}, "number 1 of 1 is 1000"),
        ({"data": [{"embedding": [0, 0.0]}]}, "all of its 2 numbers are zero"),
    ],
)
def test_what_is_no_embedding_is_told_in_one_line(answer, why):
    with pytest.raises(NoEmbedding, match=why) as caught:
        read_embedding(answer)
    assert "\n" not in str(caught.value)


def test_an_embedding_is_read_as_it_is_written():
    assert read_embedding({"data": [{"index": 0, "embedding": [1, -0.5]}]}) == (1.0, -0.5)
