"""Reads the text form of protocol buffers, as strictly as Triton's parser does."""

from __future__ import annotations

import re
from typing import Any

_TOKEN = re.compile(
    r"(?P<space>\s+|#[^\n]*)|(?P<string>\"(?:[^\"\\\n]|\\.)*\")|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r"|(?P<number>-?[0-9][0-9.]*)|(?P<mark>[{}\[\]:,])"
)


class ParseError(ValueError):
    """Not the text form of a message."""


def parse(text: str) -> dict[str, list[Any]]:
    """A message as fields with all their values; words stay text, numbers become numbers."""
    tokens: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            line = text.count("\n", 0, at) + 1
            raise ParseError(f"line {line}: unexpected {text[at : at + 20]!r}")
        at = match.end()
        if match.lastgroup != "space":
            tokens.append((match.lastgroup or "", match.group()))
    return _Reader(tokens).message("")


def text_of(message: dict[str, list[Any]], field: str, default: str = "") -> str:
    """The one value of a field."""
    return str(message.get(field, [default])[-1])


def parameters(message: dict[str, list[Any]]) -> dict[str, str]:
    """`parameters` as names and string values."""
    return {
        text_of(entry, "key"): text_of(entry["value"][0], "string_value")
        for entry in message.get("parameters", [])
    }


class _Reader:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    def message(self, end: str) -> dict[str, list[Any]]:
        fields: dict[str, list[Any]] = {}
        while self._peek() != ("mark", end) if end else self._at < len(self._tokens):
            if self._peek() == ("mark", ","):
                self._next()
                continue
            kind, name = self._next()
            if kind != "word":
                raise ParseError(f"want a field, found {name!r}")
            colon = self._peek() == ("mark", ":")
            if colon:
                self._next()
            fields.setdefault(name, []).extend(self._values(name, colon=colon))
        if end:
            self._next()
        return fields

    def _values(self, name: str, *, colon: bool) -> list[Any]:
        kind, text = self._next()
        if (kind, text) == ("mark", "{"):
            return [self.message("}")]
        if (kind, text) == ("mark", "["):
            found: list[Any] = []
            while self._peek() != ("mark", "]"):
                if self._peek() == ("mark", ","):
                    self._next()
                    continue
                found += self._values(name, colon=True)
            self._next()
            return found
        if not colon:
            raise ParseError(f"{name}: want ':' or '{{' before {text!r}")
        if kind == "string":
            return [text[1:-1]]
        if kind == "number":
            return [float(text) if "." in text else int(text)]
        if kind == "word":
            return [text]
        raise ParseError(f"{name}: want a value, found {text!r}")

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise ParseError("ends too early")
        self._at += 1
        return self._tokens[self._at - 1]
