"""JSON answers: strict parsing, and JSON Schema 2020-12. Pure; the home of `jsonschema`."""

from __future__ import annotations

import json
import re
from typing import Any

_FENCE = re.compile(r"```[ \t]*(?:json|JSON)?[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)


def check_schema(schema: dict[str, Any]) -> None:
    """Refuse what is no JSON Schema (draft 2020-12), or accepts everything; raises ValueError."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        msg = f"not a JSON Schema (draft 2020-12): {error.json_path}: {error.message[:200]}"
        raise ValueError(msg) from error
    if not schema:
        msg = "empty JSON Schema accepts everything; leave `schema` out to ask for any JSON"
        raise ValueError(msg)


def defect(text: str, schema: dict[str, Any] | None, *, fenced: bool) -> str | None:
    """What is wrong with `text` as a JSON answer, in words; None if nothing is.

    Args:
        text: the whole answer.
        schema: what the value must satisfy; None accepts any JSON value.
        fenced: if the answer has a Markdown code fence, the first one's content is judged.
    """
    try:
        value = value_of(text, fenced=fenced)
    except RecursionError:
        return "want JSON, nested too deep to read"
    except ValueError as error:
        return f"want JSON, got {text[:80]!r}: {error}"
    return None if schema is None else _violation(value, schema)


def value_of(text: str, *, fenced: bool) -> Any:
    """The JSON value of an answer, strictly read.

    Raises:
        ValueError, RecursionError: it is no JSON, or nested too deep.
    """
    fence = _FENCE.search(text) if fenced else None
    return json.loads(
        fence.group(1) if fence else text,
        parse_constant=_refuse_constant,
        object_pairs_hook=_without_duplicates,
    )


def _violation(value: object, schema: dict[str, Any]) -> str | None:
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    # An empty registry keeps a `$ref` to a web address from being fetched.
    validator = Draft202012Validator(schema, registry=Registry())
    try:
        error = best_match(validator.iter_errors(value))
    except Unresolvable as missing:
        return f"schema refers to something outside itself: {missing}"
    if error is None:
        return None
    return f"JSON does not fit the schema at {error.json_path}: {error.message[:200]}"


def _refuse_constant(name: str) -> object:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            msg = f"key {key[:40]!r} given twice"
            raise ValueError(msg)
        found[key] = value
    return found
