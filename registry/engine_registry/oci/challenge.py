"""What a registry asks for when it wants to know who is there. Pure.

Source: RFC 9110, 11.6.1 (WWW-Authenticate); Docker's "Token Authentication Specification".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PARAMETER = re.compile(r'([a-zA-Z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,]+))')


@dataclass(frozen=True, slots=True)
class Challenge:
    """One challenge: `bearer` or `basic`, with its parameters."""

    scheme: str
    parameters: dict[str, str]


def read_challenge(header: str) -> Challenge | None:
    """The challenge that can be answered; bearer before basic; None if there is none."""
    found = {}
    for scheme in ("bearer", "basic"):
        start = re.search(rf"(?:^|,)\s*{scheme}(?:\s+|$)", header, re.IGNORECASE)
        if start is None:
            continue
        rest = header[start.end() :]
        other = re.search(r",\s*(?:bearer|basic|negotiate|digest)\s", rest, re.IGNORECASE)
        text = rest[: other.start()] if other else rest
        found[scheme] = {
            name.lower(): re.sub(r"\\(.)", r"\1", quoted) if quoted else plain
            for name, quoted, plain in _PARAMETER.findall(text)
        }
    if "realm" in found.get("bearer", {}):
        return Challenge("bearer", found["bearer"])
    if "basic" in found:
        return Challenge("basic", found["basic"])
    return None
