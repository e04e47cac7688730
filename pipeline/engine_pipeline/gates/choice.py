"""Which of some options an answer chose. Pure.

The first rule that finds anything decides:

    whole    the answer is an option, brackets, emphasis and a full stop apart
    head     it begins with an option and `)`, `.`, `:` or a line's end
    cue      an option follows "answer is", "answer:" or "choose"; the last such one counts
    only     one option, and no other, stands in it as a word of its own; a single letter before a
             word in lower case is not looked at ("A cat …")

Upper and lower case differ, so that the article "a" is no choice of A.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_WRAP = " \t\r\n*_`\"'([{)]}.:"
_CUE = r"(?i:\banswer(?:\s+is)?|\bchoose|\bchoice(?:\s+is)?|\boption)\s*:?[\s*_`\"'(\[]*"
_BEFORE_WORD = re.compile(r" [a-z]")
_SEARCH_CHARS = 8192


def chosen(text: str, options: Sequence[str]) -> str | None:
    """The option that the answer chose; None if it chose none, or several."""
    searched = text[:_SEARCH_CHARS]
    bare = searched.strip(_WRAP)
    if bare in options:
        return bare
    # Longer options first: "A" must not be seen in "A and B".
    either = "|".join(re.escape(option) for option in sorted(options, key=len, reverse=True))
    # A word of its own, whatever it is made of.
    word = rf"(?<!\w)(?P<option>{either})(?!\w)"
    head = re.match(rf"[\s*_`\"'(\[]*{word}[*_`\"']*(?:[).:\]]|\s*$)", searched, re.MULTILINE)
    if head is not None:
        return head["option"]
    cued = [match["option"] for match in re.finditer(_CUE + word, searched)]
    if cued:
        return cued[-1]
    named = list(re.finditer(word, searched))
    if len({match["option"] for match in named}) != 1:
        return None
    said = any(len(m["option"]) > 1 or not _BEFORE_WORD.match(searched, m.end()) for m in named)
    return named[0]["option"] if said else None


def defect(text: str, options: Sequence[str], answers: Sequence[str]) -> str | None:
    """What is wrong with the choice, in words; None if it is one of `answers`."""
    choice = chosen(text, options)
    want = " or ".join(answers)
    if choice is None:
        shown = text if len(text) <= 80 else text[:79] + "…"
        return f"want {want} of {', '.join(options)}, got no single choice: {shown!r}"
    return None if choice in answers else f"want {want}, got {choice}"
