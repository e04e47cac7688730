"""Numbers in an answer, and whether the one that counts is near enough. Pure.

Read as English writes them: `1,234.5`, `-3`, `2.5e-3`; a minus may be U+2212. Digits inside a word
(`H2O`, `v1.2.3`) are no numbers.
"""

from __future__ import annotations

import re

_NUMBER = re.compile(
    r"(?<![\w.,])[-+\N{MINUS SIGN}]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:(?<=\d)\.\d+|(?<!\d)\.\d+)?"
    r"(?:(?<=\d)[eE][-+]?\d{1,3})?(?![\w]|[.,]\d)"
)
_MAX_NUMBERS = 1000
_SHOWN = 5


def numbers_in(text: str) -> tuple[float, ...]:
    """Every number of the text, in its order, at most 1,000 of them."""
    found = []
    for match in _NUMBER.finditer(text):
        if any(map(str.isdigit, match.group())):
            plain = match.group().replace(",", "").replace("\N{MINUS SIGN}", "-")
            found.append(float(plain))
        if len(found) >= _MAX_NUMBERS:
            break
    return tuple(found)


def defect(text: str, value: float, *, tolerance: float, relative: float, pick: str) -> str | None:
    """What is wrong with the number of the answer, in words; None if nothing is.

    Args:
        text: the whole answer.
        value: what is wanted.
        tolerance: how far the number may be from it ...
        relative: ... or how far as a share of it, whichever allows more.
        pick: which number counts: `only` (there is one, however often it is said), `first`, `last`,
            `any`.
    """
    found = numbers_in(text)
    margin = max(tolerance, relative * abs(value))
    want = f"{value:g}" + (f" ± {margin:g}" if margin else "")
    if not found:
        return f"want {want}, got no number"
    distinct = tuple(dict.fromkeys(found))
    if pick == "only" and len(distinct) > 1:
        return f"want {want} as the only number, got {_said(distinct)}"
    counted = {"first": found[:1], "last": found[-1:]}.get(pick, distinct)
    # A hair of room: 0.1 + 0.2 is within 0 of 0.3.
    if any(abs(number - value) <= margin + 1e-12 * max(abs(value), 1.0) for number in counted):
        return None
    which = "" if pick in {"only", "any"} else f"{pick} number "
    return f"want {want}, got {which}{_said(counted)}"


def _said(numbers: tuple[float, ...]) -> str:
    more = f" and {len(numbers) - _SHOWN} more" if len(numbers) > _SHOWN else ""
    return ", ".join(f"{number:.10g}" for number in numbers[:_SHOWN]) + more
