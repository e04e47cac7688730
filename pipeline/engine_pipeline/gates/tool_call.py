"""Calls of tools in an answer: read from a stream, and held to what was wanted. Pure.

Servers stream a call in pieces: its name in the first, its arguments as parts of a JSON text in
those after, told apart by `index`. A server that sends each call whole needs no index.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from engine_pipeline.gates import json_answer
from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_CALLS = 32
ToolName = Annotated[str, Field(min_length=1, max_length=200)]


class ToolCall(Value):
    """One call; `arguments` is the JSON text as the server gave it, well-formed or not."""

    name: str
    arguments: str

    def __str__(self) -> str:
        return f"{self.name}({self.arguments})"


class WantedCall(Value):
    """A call that an answer must make.

    Attributes:
        arguments: the call's arguments equal these, as JSON values: 1 is 1.0, keys in any order.
        json_schema: written `schema`: JSON Schema (draft 2020-12) that the arguments satisfy.
    """

    name: ToolName
    arguments: dict[str, Any] | None = None
    json_schema: Annotated[dict[str, Any] | None, Field(alias="schema")] = None


@dataclass(slots=True)
class CallStream:
    """The calls of one streamed answer so far."""

    _names: dict[int, str] = field(default_factory=dict)
    _arguments: dict[int, list[str]] = field(default_factory=dict)
    _at: int = -1

    def take(self, deltas: object) -> None:
        """Note the `tool_calls` of one delta, or of a whole message.

        Raises:
            TypeError, ValueError: they are not as the API has them.
        """
        if not isinstance(deltas, list):
            msg = f"tool_calls is {type(deltas).__name__}, want a list"
            raise TypeError(msg)
        for delta in deltas:
            function = delta.get("function", {}) if isinstance(delta, dict) else None
            if not isinstance(function, dict):
                msg = f"a tool call that is {delta!s:.80}"
                raise TypeError(msg)
            name, given = function.get("name"), function.get("arguments")
            index = delta.get("index")
            if isinstance(index, int):
                self._at = index
            elif name:
                self._at = max(self._names, default=-1) + 1
            if self._at not in self._names and len(self._names) >= MAX_CALLS:
                msg = f"more than {MAX_CALLS} tool calls"
                raise ValueError(msg)
            self._names[self._at] = self._names.get(self._at) or str(name or "")
            # Some servers give an object where the API has its JSON text.
            text = given if isinstance(given, str) else "" if given is None else json.dumps(given)
            self._arguments.setdefault(self._at, []).append(text)

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """In the order of their indices."""
        return tuple(
            ToolCall(name=self._names[at], arguments="".join(self._arguments[at]))
            for at in sorted(self._names)
        )


def defect(
    wanted: Sequence[WantedCall], calls: Sequence[ToolCall], *, ordered: bool, others: bool
) -> str | None:
    """How `calls` are not what was wanted, in words; None if they are.

    Args:
        wanted: each must be met by a call of its own.
        calls: those of the answer.
        ordered: they come in the order of `wanted`.
        others: further calls are allowed.
    """
    if not calls:
        return f"want a call of {_names(wanted)}, got no tool call"
    broken = [[_unlike(want, call) for call in calls] for want in wanted]
    met = _in_order(broken) if ordered else _matched(broken)
    for number, want in enumerate(wanted):
        if number in met:
            continue
        # The reason is that of the call which comes nearest: the right tool with other arguments.
        same = [
            why for why, call in zip(broken[number], calls, strict=True) if call.name == want.name
        ]
        near = next((why for why in same if why is not None), None)
        if near is not None:
            return near
        if same:
            order = " in this order" if ordered else ""
            return f"want {_names(wanted)} called{order}, got {_said(calls)}"
        return f"want a call of {want.name}, got {_said(calls)}"
    if not others and len(calls) > len(wanted):
        return f"want {len(wanted)} tool calls and no others, got {len(calls)}: {_said(calls)}"
    return None


def _unlike(want: WantedCall, call: ToolCall) -> str | None:
    if call.name != want.name:
        return f"want a call of {want.name}, got {call.name}"
    if want.arguments is None and want.json_schema is None:
        # Whatever the arguments are, they are JSON or there was no call.
        return _arguments_defect(call, {"type": "object"})
    if want.json_schema is not None and (why := _arguments_defect(call, want.json_schema)):
        return why
    if want.arguments is None:
        return None
    return _arguments_defect(call, {"const": want.arguments}) and (
        f"{call.name}: want arguments {_short(json.dumps(want.arguments, ensure_ascii=False))}, "
        f"got {_short(call.arguments)}"
    )


def _arguments_defect(call: ToolCall, schema: dict[str, Any]) -> str | None:
    # A call without arguments may come with none at all.
    why = json_answer.defect(call.arguments.strip() or "{}", schema, fenced=False)
    return None if why is None else f"{call.name}: arguments: {why}"


def _in_order(broken: Sequence[Sequence[str | None]]) -> set[int]:
    met: set[int] = set()
    start = 0
    for number, row in enumerate(broken):
        at = next((at for at in range(start, len(row)) if row[at] is None), None)
        if at is None:
            break
        met.add(number)
        start = at + 1
    return met


def _matched(broken: Sequence[Sequence[str | None]]) -> set[int]:
    """Wants that get a call of their own in a largest assignment (augmenting paths)."""
    taken: dict[int, int] = {}

    def place(number: int, tried: set[int]) -> bool:
        for at, why in enumerate(broken[number]):
            if why is not None or at in tried:
                continue
            tried.add(at)
            if at not in taken or place(taken[at], tried):
                taken[at] = number
                return True
        return False

    return {number for number in range(len(broken)) if place(number, set())}


def _names(wanted: Sequence[WantedCall]) -> str:
    return ", ".join(want.name for want in wanted)


def _said(calls: Sequence[ToolCall]) -> str:
    return _short(", ".join(map(str, calls)))


def _short(text: str) -> str:
    return text if len(text) <= 160 else f"{text[:159]}…"
