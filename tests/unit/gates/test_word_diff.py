"""What differs between two answers, word by word, in bounded time."""

from __future__ import annotations

from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_pipeline.gates.word_diff import Piece, word_diff


def test_one_other_word_is_the_only_difference():
    assert word_diff("It is Paris.", "It is Rome.") == (
        Piece(True, "It is ", "It is "),
        Piece(False, "Paris", "Rome"),
        Piece(True, ".", "."),
    )


def test_an_empty_side_is_a_difference_as_a_whole():
    assert word_diff("", "yes") == (Piece(False, "", "yes"),)
    assert word_diff("", "") == ()


def test_scripts_without_spaces_differ_by_character():
    assert Piece(False, "東", "北") in word_diff("東京です", "北京です")


@given(st.text(max_size=60), st.text(max_size=60))
def test_the_pieces_add_up_to_both_texts(before, after):
    pieces = word_diff(before, after)
    assert "".join(piece.before for piece in pieces) == before
    assert "".join(piece.after for piece in pieces) == after
    assert all(piece.before == piece.after for piece in pieces if piece.same)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x y " * 50_000, "y x " * 50_000),
        ("a" * 200_000, "b " * 100_000),
        (" ".join("abcd"[n * 7 % 4] for n in range(345)), "a b c d " * 86),
    ],
)
def test_texts_made_to_be_slow_are_not(before, after):
    start = process_time()
    word_diff(before, after)
    assert process_time() - start < 5
