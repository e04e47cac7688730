"""What differs between two answers, word by word. Pure.

Bounded in time for any two texts: what they begin and end with alike is cut off first, and a middle
of too many words on either side counts as replaced as a whole.
"""

from __future__ import annotations

import re
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

# Scripts without spaces are taken character by character.
_WORDS = re.compile(r"\s+|[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]|\w+|[^\w\s]")
# SequenceMatcher is quadratic at worst: 0.2 s for this many on each side, measured.
_MOST_WORDS = 700


class Piece(NamedTuple):
    """A stretch of both texts; the same in both where `same`, else what stands in either."""

    same: bool
    before: str
    after: str


def word_diff(before: str, after: str) -> tuple[Piece, ...]:
    """The stretches that are the same and that differ, in order; they add up to both texts."""
    old, new = _WORDS.findall(before), _WORDS.findall(after)
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    middle = _middle(old[head : len(old) - tail], new[head : len(new) - tail])
    ends = (old[:head], old[len(old) - tail :])
    pieces = [_same(ends[0]), *middle, _same(ends[1])]
    return tuple(piece for piece in pieces if piece.before or piece.after)


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    count = 0
    for one, other in zip(old, new, strict=False):
        if one != other:
            break
        count += 1
    return count


def _middle(old: Sequence[str], new: Sequence[str]) -> list[Piece]:
    if max(len(old), len(new)) > _MOST_WORDS:
        return [Piece(False, "".join(old), "".join(new))]
    matcher = SequenceMatcher(None, old, new, autojunk=False)
    return [
        Piece(kind == "equal", "".join(old[a:b]), "".join(new[c:d]))
        for kind, a, b, c, d in matcher.get_opcodes()
    ]


def _same(words: Sequence[str]) -> Piece:
    text = "".join(words)
    return Piece(True, text, text)
