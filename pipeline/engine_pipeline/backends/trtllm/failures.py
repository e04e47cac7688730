"""What went wrong in a toolkit step or at load, from what was printed. Pure.

The table is `messages.json`, which names its sources. The build asks here before it gives up with
a step's exit code, the gate before it gives up with a server's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from engine_pipeline.tables import table_beside
from engine_registry.errors import EngineCIError, Incompatible, InvalidInput, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

_KINDS: dict[str, type[EngineCIError]] = {
    "incompatible": Incompatible,
    "invalid": InvalidInput,
    "unavailable": Unavailable,
    "bug": EngineCIError,
}
_LINE_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownMessage:
    """One thing the toolkit prints.

    Attributes:
        name: also the error's reference.
        says: what it means; `sides` are words for the pattern's groups.
        is_warning: the load goes on.
    """

    name: str
    pattern: re.Pattern[str]
    error: str
    says: str
    hint: str
    sides: tuple[str, ...] = ()
    is_warning: bool = False


def explain_step(step: str, lines: Iterable[str]) -> EngineCIError | None:
    """The error that a toolkit step ended with; None if none of its lines is known."""
    return _explain(f"step {step}", _messages("build"), lines)


def explain_load(name: str, lines: Iterable[str]) -> EngineCIError | None:
    """Why an engine did not load; None if none of the lines is known."""
    fatal = [message for message in _messages("load") if not message.is_warning]
    return _explain(name, fatal, lines)


def load_warnings(lines: Iterable[str]) -> tuple[KnownMessage, ...]:
    """Warnings of a load that went well and should not have: another board."""
    kept = tuple(lines)
    return tuple(
        message
        for message in _messages("load")
        if message.is_warning and any(message.pattern.search(line) for line in kept)
    )


class ToolkitWords:
    """The table as the backend port wants it."""

    def step_error(self, step: str, lines: Iterable[str]) -> EngineCIError | None:
        """See `explain_step`."""
        return explain_step(step, lines)

    def load_error(self, name: str, lines: Iterable[str]) -> EngineCIError | None:
        """See `explain_load`."""
        return explain_load(name, lines)

    def load_warnings(self, lines: Iterable[str]) -> tuple[str, ...]:
        """See `load_warnings`."""
        return tuple(f"{message.says}; {message.hint}" for message in load_warnings(lines))


def _explain(
    name: str, messages: Iterable[KnownMessage], lines: Iterable[str]
) -> EngineCIError | None:
    kept = tuple(lines)
    for message in messages:
        for line in kept:
            if (match := message.pattern.search(line)) is None:
                continue
            sides = ", ".join(
                f"{side} {value}"
                for side, value in zip(message.sides, match.groups(), strict=False)
            )
            said = sides or line.strip()[:_LINE_CHARACTERS]
            return _KINDS[message.error](
                f"{name}: {message.says}: {said}", hint=message.hint, reference=message.name
            )
    return None


@cache
def _messages(part: str) -> tuple[KnownMessage, ...]:
    table = table_beside(__file__, "messages.json")
    return tuple(
        KnownMessage(
            name=row["id"],
            pattern=re.compile(row.get("regex") or "|".join(map(re.escape, row["match"]))),
            error=row["error"],
            says=row["says"],
            hint=row["hint"],
            sides=tuple(row.get("groups", ())),
            is_warning=row.get("warning", False),
        )
        for row in table[part]
    )
