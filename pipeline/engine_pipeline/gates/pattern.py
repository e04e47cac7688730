"""Regular expressions from suite files: compiled at load, run on bounded input. Pure.

Python's `re` backtracks, so a pattern such as `(a+)+$` can take for ever on a short answer. Such
nested repeats are refused when the suite is loaded, and a search never sees more than
`SEARCH_LIMIT_CHARS` of an answer. The guard is against accidents: suites are reviewed like code.
"""

from __future__ import annotations

import re

# Long enough for any golden answer (2,000 tokens of English), short enough for quadratic patterns:
# `.*x.*y` on this many characters takes 0.1 s on the reference machine.
SEARCH_LIMIT_CHARS = 8192
_MAX_BOUNDED_REPEAT = 16
_BRACES = re.compile(r"\{(\d*)(,?)(\d*)\}")


def compiled(pattern: str) -> re.Pattern[str]:
    """The compiled pattern.

    Raises:
        ValueError: not a regular expression, repeats a repeat, or matches the empty text.
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        msg = f"not a regular expression: {error} in {pattern[:80]!r}"
        raise ValueError(msg) from error
    if _repeats_a_repeat(pattern):
        msg = f"repeats a repeated group, which can take for ever: {pattern[:80]!r}"
        raise ValueError(msg)
    if expression.search("") is not None:
        msg = f"matches the empty text, so it can never fail: {pattern[:80]!r}"
        raise ValueError(msg)
    return expression


def _repeats_a_repeat(pattern: str) -> bool:
    """Whether a group that holds an open-ended repeat is itself repeated."""
    open_groups: list[bool] = []  # for each open group: an open-ended repeat was seen inside
    closed: bool | None = None  # the group that ended just before this position
    seen = False
    at = 0
    while at < len(pattern):
        char = pattern[at]
        width, repeats = _quantifier(pattern, at)
        if width:
            if closed and repeats:
                return True
            seen = seen or repeats
            at += width
            closed = None
            continue
        ended, closed = closed, None
        if char == "(":
            open_groups.append(seen)
            seen = False
            # `(?` is no quantifier: step over it, with its letter.
            at += 2 if pattern.startswith("(?", at) else 1
            continue
        if char == ")" and open_groups:
            closed = seen
            seen = open_groups.pop() or seen
        elif ended is not None:
            closed = None
        at = _after_atom(pattern, at)
    return False


def _quantifier(pattern: str, at: int) -> tuple[int, bool]:
    """Length of the quantifier at `at` (0: none there) and whether it repeats without close end."""
    char = pattern[at]
    lazy = 1 if pattern[at + 1 : at + 2] in {"?", "+"} else 0
    if char in "*+":
        return 1 + lazy, True
    if char == "?":
        return 1 + lazy, False
    match = _BRACES.match(pattern, at) if char == "{" else None
    if match is None or not (match[1] or match[3]):
        return 0, False
    last = match[3] if match[2] else match[1]
    lazy = 1 if pattern[match.end() : match.end() + 1] in {"?", "+"} else 0
    return match.end() - at + lazy, not last or int(last) > _MAX_BOUNDED_REPEAT


def _after_atom(pattern: str, at: int) -> int:
    """The position behind the character, escape or class at `at`."""
    if pattern[at] == "\\":
        return at + 2
    if pattern[at] != "[":
        return at + 1
    at += 1
    if pattern.startswith("^", at):
        at += 1
    if pattern.startswith("]", at):
        at += 1
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1
