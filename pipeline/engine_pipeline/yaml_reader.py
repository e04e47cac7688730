"""The YAML dialect: strict YAML 1.2 to plain values and the line of each. Pure.

The core schema of YAML 1.2 (`no` and `on` are text) without the parts that surprise or attack: no
anchors, aliases, merge keys, tags, directives, second documents, duplicate keys, keys that are not
text, infinity or NaN. Values are built from the parser's events, so nothing is ever constructed
that the file did not spell out, and depth is checked before anything recurses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_pipeline.yaml_problems import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

Positions = dict[tuple[str | int, ...], int]

MAX_DEPTH = 32
MAX_NODES = 50_000
# Far beyond any real number, far below Python's limit for turning digits into an int.
_MAX_NUMBER_LENGTH = 64

_INT = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEX = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_NOT_FINITE = re.compile(r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)")
_WORDS = {
    "": None,
    "~": None,
    "null": None,
    "Null": None,
    "NULL": None,
    "true": True,
    "True": True,
    "TRUE": True,
    "false": False,
    "False": False,
    "FALSE": False,
}


class Refused(Exception):
    """The text is not in the dialect; `problem` says where and why."""

    def __init__(self, line: int, path: tuple[str | int, ...], text: str, hint: str = "") -> None:
        super().__init__(text)
        where = ".".join(map(str, path))
        self.problem = Problem(line=line, path=where, text=text, **({"hint": hint} if hint else {}))


@dataclass(slots=True)
class _Frame:
    """An open mapping or list, and the key its next value belongs to."""

    value: dict[str, Any] | list[Any]
    path: tuple[str | int, ...]
    key: str | None = None


class Reader:
    """Builds plain values from the events of one document; used once.

    Attributes:
        positions: key path → line, 1-based, filled by `read`.
    """

    def __init__(self) -> None:
        self.positions: Positions = {(): 1}
        self._frames: list[_Frame] = []
        self._nodes = 0
        self._result: Any = None
        self._documents = 0

    def read(self, text: str) -> Any:
        """The plain value of the one document in `text`; raises Refused."""
        from ruamel.yaml import events

        for event in self._events(text):
            line = event.start_mark.line + 1
            match event:
                case events.DocumentStartEvent():
                    self._start_document(event, line)
                case events.AliasEvent():
                    raise self._refuse(line, f"alias *{event.anchor}", "write the value out")
                case events.ScalarEvent():
                    self._check_node(event, line)
                    self._scalar(event, line)
                case events.MappingStartEvent():
                    self._check_node(event, line)
                    self._open({}, line)
                case events.SequenceStartEvent():
                    self._check_node(event, line)
                    self._open([], line)
                case events.MappingEndEvent() | events.SequenceEndEvent():
                    self._frames.pop()
        if not self._documents:
            raise Refused(1, (), "the file is empty")
        return self._result

    @staticmethod
    def _events(text: str) -> Iterator[Any]:
        from ruamel.yaml import YAML
        from ruamel.yaml.error import MarkedYAMLError, YAMLError

        yaml = YAML(typ="safe", pure=True)
        try:
            yield from yaml.parse(text)
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line = mark.line + 1 if mark else 1
            what = " ".join(str(error.problem or error.context or "cannot be read").split())
            raise Refused(line, (), f"not YAML: {what}") from None
        except YAMLError as error:
            first = str(error).split("\n", 1)[0]
            raise Refused(1, (), f"not YAML: {first}") from None

    def _start_document(self, event: Any, line: int) -> None:
        self._documents += 1
        if self._documents > 1:
            raise self._refuse(line, "a second document", "keep one document in a file")
        if event.version or event.tags:
            raise self._refuse(line, "a % directive", "remove it: the file is YAML 1.2")

    def _check_node(self, event: Any, line: int) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise self._refuse(line, f"more than {MAX_NODES} values")
        if event.anchor:
            raise self._refuse(line, f"anchor &{event.anchor}", "write the value out")
        if event.ctag is not None:
            raise self._refuse(line, f"tag {event.ctag}", "remove the tag")

    def _scalar(self, event: Any, line: int) -> None:
        text: str = event.value
        frame = self._frames[-1] if self._frames else None
        plain = event.style is None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            self._key(frame, text, line, plain=plain)
            return
        self._put(self._plain(text, line) if plain else text, line)

    def _key(self, frame: _Frame, text: str, line: int, *, plain: bool) -> None:
        if plain and text == "<<":
            raise self._refuse(line, "merge key <<", "write the keys out")
        if plain and not isinstance(self._plain(text, line), str):
            raise self._refuse(line, f"key {text or 'null'} is not text", "put it in quotes")
        if text in frame.value:
            first = self.positions[(*frame.path, text)]
            raise Refused(
                line,
                (*frame.path, text),
                f"stands twice, first on line {first}",
                "keep one of the two",
            )
        frame.key = text
        self.positions[(*frame.path, text)] = line

    def _open(self, value: dict[str, Any] | list[Any], line: int) -> None:
        frame = self._frames[-1] if self._frames else None
        if frame is not None and isinstance(frame.value, dict) and frame.key is None:
            raise self._refuse(line, "a key that is a mapping or a list", "use text as key")
        if len(self._frames) >= MAX_DEPTH:
            raise self._refuse(line, f"nested deeper than {MAX_DEPTH}")
        path = self._put(value, line)
        self._frames.append(_Frame(value, path))

    def _put(self, value: Any, line: int) -> tuple[str | int, ...]:
        """Hang `value` where it belongs; its key path."""
        if not self._frames:
            self._result = value
            return ()
        frame = self._frames[-1]
        if isinstance(frame.value, list):
            path = (*frame.path, len(frame.value))
            self.positions[path] = line
            frame.value.append(value)
        else:
            path = (*frame.path, str(frame.key))
            frame.value[str(frame.key)] = value
            frame.key = None
        return path

    def _plain(self, text: str, line: int) -> Any:
        if text in _WORDS:
            return _WORDS[text]
        if _NOT_FINITE.fullmatch(text):
            raise self._refuse(line, f"{text} is not a finite number")
        number = _number(text) if len(text) <= _MAX_NUMBER_LENGTH else text
        if number in (float("inf"), float("-inf")):
            raise self._refuse(line, f"{text} is too large for a number")
        return number

    def _refuse(self, line: int, what: str, hint: str = "") -> Refused:
        path: tuple[str | int, ...] = ()
        if self._frames:
            frame = self._frames[-1]
            path = frame.path if frame.key is None else (*frame.path, frame.key)
        return Refused(line, path, what, hint)


def _number(text: str) -> int | float | str:
    if _INT.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEX.fullmatch(text):
        return int(text[2:], 16)
    return float(text) if _FLOAT.fullmatch(text) else text
