"""Filling a Triton `config.pbtxt` template: placeholders, and which may stay open. Pure.

The templates are those of the serving image (`/app/all_models`), so that the tensors are the ones
its backend knows. Upstream's own tool fills what it is given and leaves the rest; the backend takes
an open placeholder within quotes as "not set". Outside quotes an open one makes a file that does
not parse, and that is found here instead of at load time.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_PLACEHOLDER = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
# A comment, or a string with escapes: what a placeholder can hide in.
_COMMENT_OR_STRING = re.compile(r"#[^\n]*|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'")
_BARE = re.compile(r"-?[A-Za-z0-9_.]+")


def placeholders(text: str) -> frozenset[str]:
    """Every placeholder's name, wherever it stands."""
    return frozenset(_PLACEHOLDER.findall(text))


def fill(text: str, values: Mapping[str, str], name: str) -> str:
    """`text` with the placeholders of `values` filled; other quoted ones stay open.

    Args:
        text: the template.
        values: names may be more than the template has.
        name: the template's path, for errors.

    Raises:
        InvalidInput: `template-not-filled` for a placeholder outside quotes without a value,
            `template-value-invalid` for a value that cannot stand where the placeholder does.
    """
    pieces, end = [], 0
    for quoted in _COMMENT_OR_STRING.finditer(text):
        pieces.append(_bare(text[end : quoted.start()], values, name))
        pieces.append(_quoted(quoted.group(), values, name))
        end = quoted.end()
    pieces.append(_bare(text[end:], values, name))
    return "".join(pieces)


def refuse_without(text: str, wanted: Iterable[str], name: str) -> None:
    """Refuse a template that has not all of these placeholders: it is filled already, or another.

    Raises:
        InvalidInput: reference `template-foreign`.
    """
    if missing := sorted(set(wanted) - placeholders(text)):
        raise InvalidInput(
            f"{name}: no template: has no ${{{missing[0]}}}"
            + (f" (nor {', '.join(missing[1:])})" if missing[1:] else ""),
            hint="name the untouched /app/all_models of the serving image in `templates`",
            reference="template-foreign",
        )


def with_parameters(text: str, parameters: Mapping[str, str]) -> str:
    """`text` with further model parameters, which the server tells back over its API."""
    added = "".join(
        f'parameters: {{\n  key: "{key}"\n  value: {{\n    string_value: "{value}"\n  }}\n}}\n'
        for key, value in parameters.items()
    )
    return f"{text.rstrip()}\n{added}"


def _bare(text: str, values: Mapping[str, str], name: str) -> str:
    def value(match: re.Match[str]) -> str:
        key = match.group(1)
        if key not in values:
            raise InvalidInput(
                f"{name}: ${{{key}}} stands outside quotes and has no value",
                hint=f"give `{key}` in the target's `settings`",
                reference="template-not-filled",
            )
        if not _BARE.fullmatch(values[key]):
            raise _invalid(name, key, values[key], "one word of letters, digits, '.' and '_'")
        return values[key]

    return _PLACEHOLDER.sub(value, text)


def _quoted(text: str, values: Mapping[str, str], name: str) -> str:
    def value(match: re.Match[str]) -> str:
        key = match.group(1)
        found = values.get(key, match.group())
        if key in values and (not found.isprintable() or any(c in found for c in "\"'\\$")):
            raise _invalid(name, key, found, "printable text without quotes, '\\' and '$'")
        return found

    return text if text.startswith("#") else _PLACEHOLDER.sub(value, text)


def _invalid(name: str, key: str, value: str, wanted: str) -> InvalidInput:
    return InvalidInput(
        f"{name}: {key} is {value[:80]!r}, want {wanted}",
        hint=f"change `{key}` in the target's `settings`",
        reference="template-value-invalid",
    )
