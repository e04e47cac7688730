"""Turns what pydantic says of a YAML file into problems that a person can act on. Pure.

Every problem has the line, the dotted key path, what was found and what is allowed: the choices of
an enum, the nearest known key, or the words of the model's own docstring.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_pipeline.yaml_models import fields_of, model_at

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic import BaseModel, ValidationError
    from pydantic_core import ErrorDetails

    from engine_pipeline.yaml_models import Key

# Of a problem that says itself what to do; whoever knows the file's name says more.
DEFAULT_HINT = "correct the file, then run `enginectl validate` on it"
_SHOWN_LENGTH = 60
_SLUG_WORDS = "lower-case letters, digits, `.`, `_` and `-`, at most 64"
# The pattern of `engine_registry.refs.Slug`, as pydantic repeats it.
_SLUG_START = "^[a-z0-9](?:"
_ATTRIBUTE = re.compile(r"^(\w+): (.*)$")
_WORD = re.compile(r"[A-Za-z_][\w.-]*\w")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'")
_TYPE_WORDS = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "int_parsing": "an integer",
    "float_type": "a number",
    "float_parsing": "a number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "tuple_type": "a list",
    "list_type": "a list",
    "set_type": "a list",
    "frozen_set_type": "a list",
    "none_required": "nothing",
}
_BOUND_WORDS = {
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "multiple_of": "a multiple of {multiple_of}",
    "string_too_short": "at least {min_length} characters",
    "string_too_long": "at most {max_length} characters",
    "too_short": "a list of at least {min_length}",
    "too_long": "a list of at most {max_length}",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with a file.

    Attributes:
        line: 1-based.
        path: dotted key path; empty for the file as a whole.
        text: what was found and what is allowed, one line.
        hint: what to do about it.
    """

    line: int
    path: str
    text: str
    hint: str = DEFAULT_HINT

    def within(self, name: str) -> str:
        """`name:line: path: text`, the form that editors can jump to."""
        where = f"{self.path}: " if self.path else ""
        return f"{name}:{self.line}: {where}{self.text}"


def problems_of(
    error: ValidationError,
    value: Any,
    positions: Mapping[tuple[Key, ...], int],
    model: type[BaseModel],
) -> tuple[Problem, ...]:
    """All problems, in the order of the file; several tries of one union become one problem."""
    found: dict[tuple[Key, ...], list[tuple[str, str]]] = {}
    for detail in error.errors(include_url=False):
        if _counts_only_good_items(detail):
            continue
        path = _path_in_file(detail["loc"], value, missing=detail["type"] == "missing")
        if detail["type"] == "union_tag_invalid":
            path = (*path, _tag_key(detail))
        found.setdefault(path, []).append(_describe(detail, path, value, model))
    problems = [
        Problem(
            line=_line((*path, *_key_named(texts[0][0], path, positions)), positions),
            path=".".join(map(str, path)),
            text=_joined([text for text, _ in texts]),
            hint=next((hint for _, hint in texts if hint), DEFAULT_HINT),
        )
        for path, texts in found.items()
    ]
    return tuple(sorted(problems, key=lambda problem: problem.line))


def attribute_docs(model: type[BaseModel]) -> dict[str, str]:
    """Field → its words in the `Attributes:` section of the model's docstring, one line each.

    A field's own `description` goes first.
    """
    docs: dict[str, str] = {}
    current = ""
    lines = inspect.cleandoc(model.__doc__ or "").splitlines()
    if "Attributes:" in lines:
        for line in lines[lines.index("Attributes:") + 1 :]:
            text = line.strip()
            match = _ATTRIBUTE.match(text)
            if line and not line.startswith(" "):
                break
            if match and match.group(1) in model.model_fields:
                current = match.group(1)
                docs[current] = match.group(2)
            elif current and text:
                docs[current] += f" {text}"
    for name, field in model.model_fields.items():
        if field.description:
            docs[name] = field.description
    return {name: text.rstrip(".") for name, text in docs.items()}


def nearest(word: str, known: list[str]) -> str | None:
    """The known word that `word` was most likely meant to be; None if nothing is close."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return close[0] if close else None


def _path_in_file(loc: tuple[Key, ...], value: Any, *, missing: bool) -> tuple[Key, ...]:
    """The key path as it stands in the file.

    pydantic puts names of union members, tags and validators in between; what is not a key of the
    value there is left out, save for a missing key at the end.
    """
    path: list[Key] = []
    current = value
    for index, part in enumerate(loc):
        in_mapping = isinstance(current, dict) and part in current
        in_list = isinstance(current, list) and isinstance(part, int) and part < len(current)
        if in_mapping or in_list:
            current = current[part]
            path.append(part)
        elif missing and index == len(loc) - 1:
            path.append(part)
    return tuple(path)


def _counts_only_good_items(detail: ErrorDetails) -> bool:
    """Whether pydantic finds a list too short because some of its items are wrong themselves."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]


def _tag_key(detail: ErrorDetails) -> str:
    return str(detail["ctx"]["discriminator"]).strip("'")


def _line(path: tuple[Key, ...], positions: Mapping[tuple[Key, ...], int]) -> int:
    while path not in positions and path:
        path = path[:-1]
    return positions.get(path, 1)


def _key_named(
    text: str, path: tuple[Key, ...], positions: Mapping[tuple[Key, ...], int]
) -> tuple[Key, ...]:
    """The first key below `path` that a rule about the whole mapping names: what to look at."""
    for word in _WORD.findall(text):
        named = tuple(int(key) if key.isdigit() else key for key in word.split("."))
        if (*path, *named) in positions:
            return named
    return ()


def _describe(
    detail: ErrorDetails, path: tuple[Key, ...], value: Any, model: type[BaseModel]
) -> tuple[str, str]:
    """What is wrong, and a hint if there is a better one than the default."""
    kind, context = detail["type"], detail.get("ctx", {})
    owner = model_at(model, path[:-1], value)
    name = str(path[-1]) if path else ""
    docs = attribute_docs(owner) if owner else {}
    wanted = f"; want: {docs[name]}" if name in docs else ""
    if kind == "missing":
        return f"missing{wanted}", ""
    if kind == "extra_forbidden":
        return _unknown_key(name, owner)
    if kind in {"enum", "literal_error", "union_tag_invalid"}:
        expected = str(context.get("expected") or context.get("expected_tags"))
        return _not_a_choice(context.get("tag", detail["input"]), expected)
    if kind == "union_tag_not_found":
        return f"missing key {_tag_key(detail)}", ""
    if kind == "value_error":
        return str(context.get("error", detail["msg"])), ""
    if detail["loc"] and detail["loc"][-1] == "[key]":
        return f"key {_shown(detail['input'])}: want {_SLUG_WORDS}", ""
    if kind == "string_pattern_mismatch":
        pattern = str(context.get("pattern", ""))
        if pattern.startswith(_SLUG_START):
            return f"found {_shown(detail['input'])}, want {_SLUG_WORDS}", ""
        return f"found {_shown(detail['input'])}{wanted or f', want text like {pattern}'}", ""
    if kind in _TYPE_WORDS:
        hint = ""
        if kind == "string_type" and isinstance(detail["input"], bool | int | float):
            hint = "put it in quotes, exactly as it stands in the file"
        return f"found {_shown(detail['input'])}, want {_TYPE_WORDS[kind]}", hint
    if kind in _BOUND_WORDS:
        return f"found {_shown(detail['input'])}, want {_BOUND_WORDS[kind].format(**context)}", ""
    said = detail["msg"].removeprefix("Value error, ")
    return f"found {_shown(detail['input'])}: {said[:1].lower()}{said[1:]}", ""


def _unknown_key(name: str, owner: type[BaseModel] | None) -> tuple[str, str]:
    known = sorted(fields_of(owner)) if owner else []
    close = nearest(name, known)
    meant = f"; did you mean {close}?" if close else ""
    listed = f" (known keys: {', '.join(known)})" if known else ""
    return f"unknown key{meant}{listed}", f"rename it to {close}" if close else ""


def _not_a_choice(found: Any, expected: str) -> tuple[str, str]:
    choices = _QUOTED.findall(expected)
    close = nearest(str(found), choices)
    meant = f"; did you mean {close}?" if close else ""
    allowed = ", ".join(choices) if choices else expected
    return f"found {_shown(found)}, allowed: {allowed}{meant}", f"write {close}" if close else ""


def _joined(texts: list[str]) -> str:
    """One line for one place: the tries of a union share their `found …` and join their wants."""
    unique = list(dict.fromkeys(texts))
    heads = {text.rpartition(", want ")[0] for text in unique}
    if len(unique) > 1 and len(heads) == 1 and "" not in heads:
        wants = [text.rpartition(", want ")[2] for text in unique]
        return f"{heads.pop()}, want {', '.join(wants[:-1])} or {wants[-1]}"
    return "; or ".join(unique)


def _shown(found: Any) -> str:
    if isinstance(found, dict):
        return "a mapping"
    if isinstance(found, list):
        return "a list" if found else "an empty list"
    text = json.dumps(found, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…"
