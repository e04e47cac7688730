"""Spans of time as policies write them: a whole number and a unit. Pure."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

_DURATION = re.compile(r"([0-9]{1,6})([smhd])")
_UNIT_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def read_duration(value: Any) -> timedelta:
    """`90s`, `30m`, `12h`, `7d` as a span; a span as it is.

    Raises:
        ValueError: it is none of these.
    """
    if isinstance(value, timedelta):
        return value
    match = _DURATION.fullmatch(str(value))
    if match is None:
        msg = f"{value!r} is no duration; write a number and a unit: 90s, 30m, 12h, 7d"
        raise ValueError(msg)
    return timedelta(seconds=int(match.group(1)) * _UNIT_S[match.group(2)])


def say_duration(value: timedelta) -> str:
    """`90s`, `30m`, `12h`, `7d`: the largest unit that divides it."""
    seconds = int(value.total_seconds())
    for unit in ("d", "h", "m"):
        if seconds and seconds % _UNIT_S[unit] == 0:
            return f"{seconds // _UNIT_S[unit]}{unit}"
    return f"{seconds}s"


def say_about(span: timedelta) -> str:
    """A span for people, in the unit of which it holds at least two."""
    seconds = max(int(span.total_seconds()), 0)
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
