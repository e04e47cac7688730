"""What is put to a model: the messages of a chat, and the tools it may call. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from engine_pipeline.gates.grown import Grown
from engine_pipeline.gates.tool_call import MAX_CALLS
from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Sequence


class CalledFunction(Value):
    """What a call of an earlier turn called; `arguments` is JSON text."""

    name: Annotated[str, Field(min_length=1, max_length=200)]
    arguments: Annotated[str, Field(max_length=100_000)]


class EarlierCall(Value):
    """A call that the assistant made in an earlier turn of a chat."""

    id: Annotated[str, Field(min_length=1, max_length=200)]
    type: Literal["function"] = "function"
    function: CalledFunction


class Message(Grown):
    """One chat message.

    Attributes:
        tool_calls: what the assistant called; such a message may have no content.
        tool_call_id: the call that a tool's message answers.
    """

    LATER = frozenset({"tool_calls", "tool_call_id"})

    role: Literal["system", "user", "assistant", "tool"]
    content: Annotated[str, Field(max_length=100_000)] = ""
    tool_calls: Annotated[tuple[EarlierCall, ...], Field(max_length=MAX_CALLS)] = ()
    tool_call_id: Annotated[str | None, Field(min_length=1, max_length=200)] = None

    @model_validator(mode="after")
    def _says_something(self) -> Self:
        if not self.content and not self.tool_calls:
            msg = f"the {self.role}'s message is empty"
            raise ValueError(msg)
        if self.tool_calls and self.role != "assistant":
            msg = f"tool_calls in a message of the {self.role}, only the assistant calls tools"
            raise ValueError(msg)
        if (self.tool_call_id is not None) != (self.role == "tool"):
            msg = "tool_call_id belongs to the messages of the role tool, and to each of them"
            raise ValueError(msg)
        return self


def tool_names(tools: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    """The names of tools, as the API writes them.

    Raises:
        ValueError: one is not of the form `{type: function, function: {name, ...}}`.
    """
    names = []
    for tool in tools:
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if tool.get("type") != "function" or not isinstance(name, str) or not name:
            msg = f"not a tool: want {{type: function, function: {{name, ...}}}}, got {tool!s:.80}"
            raise ValueError(msg)
        names.append(name)
    return tuple(names)
