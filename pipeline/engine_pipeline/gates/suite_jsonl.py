"""Chats in the common form, one JSON object a line, to cases and back. Pure.

Read is what traffic logs, batch files, evaluation sets and training sets have in common:

    {"messages": [...], "tools": [...], "response_format": {...}}     a request
    {"prompt": "..."}                                                 a raw one
    {"body": {...}} or {"request": {...}, "response": {...}}          the same, wrapped
    {"messages": [..., {"role": "assistant", ...}], "ideal": ...}     with an answer

A case's id is made of what is asked, so the same question has the same id in every import. Nothing
is made up: an answer that comes along becomes a check only where the caller says of which kind.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from engine_pipeline.gates.suite import Case
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json

if TYPE_CHECKING:
    from collections.abc import Sequence

IdealAs = Literal["exact", "contains", "similar"]
_ID_DIGITS = 12
_ASKS = ("messages", "prompt", "tools", "tool_choice", "response_format")
_ANSWERS = ("ideal", "reference")
_MAX_ANSWERS = 20


class BadLine(ValueError):
    """A line that is no chat, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLine:
    """One line.

    Attributes:
        answered: an answer came along.
        ignored: fields that say how it was drawn, or something else that a case does not hold.
    """

    case: Case
    answered: bool
    ignored: tuple[str, ...]


def read_line(
    line: str, *, tag: str, ideal_as: IdealAs | None, at_least: float | None = None
) -> ReadLine:
    """The case that a line asks.

    Args:
        line: one JSON object.
        tag: of the case.
        ideal_as: the check that an answer on the line becomes; None makes no check of it.
        at_least: the bar of a check `similar`.

    Raises:
        BadLine: it is no JSON object, or asks what no suite can hold.
    """
    entry = _object_of(line)
    body, response = _unwrapped(entry)
    asked = {name: body[name] for name in _ASKS if body.get(name) not in (None, [], "")}
    answers = _answers(body, response)
    if "messages" in asked:
        messages = asked["messages"]
        if not isinstance(messages, list):
            msg = f"messages is {type(messages).__name__}, want a list"
            raise BadLine(msg)
        asked["messages"] = [_message(one) for one in messages]
        last = asked["messages"][-1]
        if last.get("role") == "assistant":
            # The end of a recorded chat is an answer, not a question.
            asked["messages"].pop()
            answers = answers or _texts([last.get("content")])
    if "tool_choice" in asked:
        asked["tool_choice"] = _tool_choice(asked["tool_choice"])
    ignored = sorted(set(body) - {*_ASKS, *_ANSWERS})
    case = {
        "id": f"c-{Digest.of(canonical_json(asked)).hex[:_ID_DIGITS]}",
        "tags": [tag],
        **asked,
        "checks": _checks(answers, ideal_as, at_least),
    }
    try:
        made = Case.model_validate_json(json.dumps(case), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(str(part) for part in first["loc"])
        msg = f"{path + ': ' if path else ''}{first['msg'].removeprefix('Value error, ')}"
        raise BadLine(msg) from error
    return ReadLine(case=made, answered=bool(answers), ignored=tuple(ignored))


def write_line(case: Case) -> str:
    """The case as a line: what is asked, an ideal answer if there is one, id and tags.

    Checks other than `exact`, and the texts of `similar`, have no place in that form and stay in
    the suite.
    """
    asked = case.model_dump(mode="json", include=set(_ASKS), exclude_none=True)
    line: dict[str, Any] = {name: value for name, value in asked.items() if value}
    exact = [text for check in case.checks if check.kind == "exact" for text in check.any_of]
    if exact:
        line["ideal"] = exact if len(exact) > 1 else exact[0]
    elif near := [text for check in case.checks if check.kind == "similar" for text in check.to]:
        line["reference"] = near if len(near) > 1 else near[0]
    elif case.recorded is not None:
        line["reference"] = case.recorded.text
    line["metadata"] = {"id": case.id, "tags": list(case.tags)}
    return json.dumps(line, ensure_ascii=False)


def _object_of(line: str) -> dict[str, Any]:
    try:
        entry = json.loads(line, object_pairs_hook=_once, parse_constant=_refuse)
    except RecursionError as error:
        msg = "nested too deep"
        raise BadLine(msg) from error
    except BadLine:
        raise
    except ValueError as error:
        msg = f"not JSON: {error}"
        raise BadLine(msg) from error
    if not isinstance(entry, dict):
        msg = f"{type(entry).__name__} where an object is wanted"
        raise BadLine(msg)
    try:
        json.dumps(entry, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        msg = f"not Unicode text: half a character, {error.object[error.start]!r}"
        raise BadLine(msg) from error
    return entry


def _once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            msg = f"key {key[:40]!r} is given twice"
            raise BadLine(msg)
        found[key] = value
    return found


def _refuse(name: str) -> object:
    msg = f"{name} is not JSON"
    raise BadLine(msg)


def _unwrapped(entry: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """The request of a line, and the response beside it."""
    if "messages" in entry or "prompt" in entry:
        return entry, entry.get("response")
    for name in ("body", "request"):
        inner = entry.get(name)
        if isinstance(inner, dict):
            nested = inner.get("body")
            found = nested if isinstance(nested, dict) else inner
            if "messages" in found or "prompt" in found:
                return found, entry.get("response")
    msg = f"no messages and no prompt; it has {', '.join(sorted(entry)[:8]) or 'nothing'}"
    raise BadLine(msg)


def _message(message: Any) -> dict[str, Any]:
    if not isinstance(message, dict):
        msg = f"a message is {type(message).__name__}, want an object"
        raise BadLine(msg)
    known = ("role", "content", "tool_calls", "tool_call_id")
    kept = {name: message[name] for name in known if message.get(name) not in (None, [])}
    content = kept.get("content")
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else None for part in content]
        # Several parts are joined by every chat template in its own way.
        if len(parts) != 1 or not isinstance(parts[0], str):
            msg = "content of several parts, or not of text: a suite holds texts"
            raise BadLine(msg)
        kept["content"] = parts[0]
    return kept


def _tool_choice(value: Any) -> Any:
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        return value["function"].get("name")
    return value


def _answers(body: dict[str, Any], response: Any) -> list[str]:
    for name in _ANSWERS:
        value = body.get(name)
        if value is not None:
            return _texts(value if isinstance(value, list) else [value])
    inner = response.get("body", response) if isinstance(response, dict) else None
    choices = inner.get("choices") if isinstance(inner, dict) else None
    if isinstance(choices, list) and choices and isinstance(choices[0], dict):
        message = choices[0].get("message")
        said = message.get("content") if isinstance(message, dict) else choices[0].get("text")
        return _texts([said])
    return []


def _texts(values: Sequence[Any]) -> list[str]:
    return [value for value in values if isinstance(value, str) and value.strip()][:_MAX_ANSWERS]


def _checks(
    answers: list[str], ideal_as: IdealAs | None, at_least: float | None
) -> list[dict[str, Any]]:
    if not answers or ideal_as is None:
        return [{"kind": "not-degenerate"}]
    if ideal_as == "similar":
        return [{"kind": "similar", "to": answers, "at_least": at_least}]
    if ideal_as == "exact":
        return [{"kind": "exact", "any_of": answers, "strip": True}]
    return [{"kind": "contains", "any_of": answers}]
