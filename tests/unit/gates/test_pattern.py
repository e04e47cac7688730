"""Patterns: safe ones are compiled, the ones that can take for ever are refused."""

from __future__ import annotations

import pytest

from engine_pipeline.gates.pattern import compiled


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a*)*b",
        "(?:a+b?)*c",
        "(?P<name>x+){2,}",
        "((ab)*c+)+d",
        "(a{2,})+b",
        r"(\w+\s?)*$x",
        "(a+){30}b",
        "(?:(?:a+))+b",
        "(x(?=y+)z)*w",
        "([(]+)+a",
    ],
)
def test_a_repeated_repeat_is_refused(pattern):
    with pytest.raises(ValueError, match="for ever|empty text"):
        compiled(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"\b12\b",
        r"^\d+\. .+$",
        "(ab)+c",
        "(?i)(foo|bar)+!",
        "(a+)b",
        "(a+)?b",
        r"(\+)+x",
        "([+*])+x",
        "[)(+]+x",
        "[]+]+x",
        "[^]+]+x",
        "(a{3})+b",
        "(a{1,3})+b",
        "x{,}y",
        r"\(a+\)+b",
        "(?:a+)(?:b+)",
        "a+?b",
        r"(?m)^- \w+(?:\n- \w+){2}$",
    ],
)
def test_an_honest_pattern_is_compiled(pattern):
    assert compiled(pattern).pattern == pattern


@pytest.mark.parametrize("pattern", ["(", "[a", "*a", "(?P<1>a)"])
def test_what_is_no_pattern_is_refused_by_name(pattern):
    with pytest.raises(ValueError, match="not a regular expression"):
        compiled(pattern)


@pytest.mark.parametrize("pattern", ["a*", "x?", "(?:)", "^", "a|", r"\s*"])
def test_a_pattern_that_can_never_fail_is_refused(pattern):
    with pytest.raises(ValueError, match="can never fail"):
        compiled(pattern)
