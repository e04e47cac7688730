"""A reason as the event log keeps it: one line of text, not too long, free of secrets. Pure."""

from __future__ import annotations

import unicodedata

from engine_pipeline.redact import looks_secret, redact
from engine_registry.errors import InvalidInput
from engine_registry.record import MAX_TEXT_CHARS

# Characters that turn the direction of what follows: a log line would read as another.
_TURNING = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def recorded_reason(text: str) -> str:
    """`text` on one line, with what looks like a secret masked.

    Raises:
        InvalidInput: it is blank, too long, not UTF-8, or has control characters.
    """
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise _unusable("is not UTF-8")
    line = " ".join(text.split())
    if not line:
        raise _unusable("is empty", reference="reason-missing")
    bad = next((c for c in line if unicodedata.category(c) == "Cc" or c in _TURNING), None)
    if bad is not None:
        raise _unusable(f"holds the control character U+{ord(bad):04X}")
    if looks_secret(line):
        line = redact(line)
    if len(line) > MAX_TEXT_CHARS:
        raise _unusable(f"has {len(line):,} characters, at most {MAX_TEXT_CHARS} are recorded")
    return line


def _unusable(what: str, reference: str = "reason-unusable") -> InvalidInput:
    return InvalidInput(
        f"--reason {what}",
        hint="say why in one line, --reason 'p95 doubled since release 8'; details belong in a "
        "ticket that it names",
        reference=reference,
    )
