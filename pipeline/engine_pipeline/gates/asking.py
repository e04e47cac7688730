"""From a case to the request that asks it. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from engine_pipeline.gates.suite import Case

CHAT = "/v1/chat/completions"
COMPLETION = "/v1/completions"
_MODES = frozenset({"auto", "none", "required"})


def request_of(case: Case) -> tuple[str, dict[str, Any]]:
    """The path of the API, and the fields that hold the question."""
    if case.prompt is not None:
        return COMPLETION, {"prompt": case.prompt}
    fields: dict[str, Any] = {
        "messages": [message.model_dump(mode="json") for message in case.messages]
    }
    if case.tools:
        fields["tools"] = list(case.tools)
    if case.tool_choice is not None:
        fields["tool_choice"] = (
            case.tool_choice
            if case.tool_choice in _MODES
            else {"type": "function", "function": {"name": case.tool_choice}}
        )
    if case.response_format is not None:
        fields["response_format"] = case.response_format
    return CHAT, fields
