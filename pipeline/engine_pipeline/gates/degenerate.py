"""Answers that are no answers: empty, not text, or going round in circles. Pure.

Each rule is stated with its number, because a report quotes it:

    empty      no letter, digit or symbol at all
    non-text   more than one control, replacement, private-use or unassigned character, and more
               than 1 % of all
    token      a control token of the model shows as text, such as `<|im_end|>`
    loop       a unit of 1 word comes 10 times in a row, of 2 or 3 words 6 times, of 4 to 40 words 4
               times; or a unit of 1 to 40 characters fills 80 characters, 8 times or more; or, in
               answers of 40 words or more, numbers apart, fewer than 4 in 10 four-word sequences
               are different
    cut loop   the answer was cut at its token limit and ends with a unit of 2 to 40 words that
               comes 3 times in a row
"""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_CONTROL_TOKEN = re.compile(r"<\|[A-Za-z0-9_]{1,40}\|>|^\s*<s>|</s>\s*$|\[/?INST\]")
_WHITE_SPACE = frozenset("\n\r\t\f\v\x85")
_NOT_TEXT = frozenset({"Cc", "Co", "Cn", "Cs"})
_NON_TEXT_SHARE = 0.01
_LONGEST_UNIT = 40
_CHARACTER_TIMES = 8
_CHARACTER_SPAN = 80
_VARIETY_WORDS = 40
_LEAST_VARIETY = 0.4
_NGRAM = 4


def _times_for_unit(words: int) -> int:
    """How many times in a row a unit of so many words is a loop."""
    if words == 1:
        return 10
    return 6 if words <= 3 else 4


def defect(text: str, *, cut: bool, loops: bool = True) -> str | None:
    """What makes `text` degenerate, in words; None if nothing does.

    Args:
        text: the whole answer.
        cut: the answer ended at its token limit.
        loops: whether the loop rules hold.
    """
    return _not_an_answer(text) or (_loop(text, cut) if loops else None)


def _not_an_answer(text: str) -> str | None:
    if not any(unicodedata.category(char)[0] in "LNS" for char in text):
        return f"empty: {len(text)} characters, none of them a letter, digit or symbol"
    strange = [char for char in text if _is_not_text(char)]
    if len(strange) > 1 and len(strange) > _NON_TEXT_SHARE * len(text):
        kinds = ", ".join(sorted({f"U+{ord(char):04X}" for char in strange})[:5])
        return f"non-text: {len(strange)} of {len(text)} characters ({kinds}), at most 1 % allowed"
    token = _CONTROL_TOKEN.search(text)
    if token is not None:
        return f"control token {token.group()!r} shows as text"
    return None


def _is_not_text(char: str) -> bool:
    if char in _WHITE_SPACE:
        return False
    return char == "\N{REPLACEMENT CHARACTER}" or unicodedata.category(char) in _NOT_TEXT


def _loop(text: str, cut: bool) -> str | None:
    words = text.split()
    for length in range(1, _LONGEST_UNIT + 1):
        times, start = _longest_run(words, length)
        if times >= _times_for_unit(length):
            unit = " ".join(words[start : start + length])
            return f"loop: {unit[:60]!r} {times} times in a row"
    squeezed = "".join(words)
    for length in range(1, _LONGEST_UNIT + 1):
        times, start = _longest_run(squeezed, length)
        if times >= _CHARACTER_TIMES and times * length >= _CHARACTER_SPAN:
            return f"loop: {squeezed[start : start + length]!r} {times} times in a row"
    # Without the numbers, a list that says the same under each of them is seen for what it is.
    named = [word for word in words if any(map(str.isalpha, word))]
    if len(named) >= _VARIETY_WORDS:
        grams = [tuple(named[at : at + _NGRAM]) for at in range(len(named) - _NGRAM + 1)]
        variety = len(set(grams)) / len(grams)
        if variety < _LEAST_VARIETY:
            return (
                f"loop: {len(set(grams))} of {len(grams)} four-word sequences are different, "
                f"at least {_LEAST_VARIETY:.0%} wanted"
            )
    return _cut_loop(words) if cut else None


def _longest_run(items: Sequence[str], length: int) -> tuple[int, int]:
    """How often a unit of `length` items comes in a row at most, and where that starts."""
    best, best_start, same = 0, 0, 0
    for at in range(length, len(items)):
        same = same + 1 if items[at] == items[at - length] else 0
        if same > best:
            best, best_start = same, at - same + 1 - length
    return best // length + 1, best_start


def _cut_loop(words: list[str]) -> str | None:
    # The last unit may be cut itself, so it is whole units before the end that are counted.
    for length in range(2, _LONGEST_UNIT + 1):
        tail = 0
        while tail + length < len(words) and words[-1 - tail] == words[-1 - tail - length]:
            tail += 1
        if tail >= 2 * length:
            unit = " ".join(words[-length:])
            return f"cut loop: cut at its token limit while repeating {unit[:60]!r}"
    return None
