"""Puts recorded answers into the case files that people write, and touches no other line.

Comments, order and layout of a file stay. What comes out is read again and compared before it is
written: nothing but `recorded` may differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.yaml_text import yaml_text
from engine_pipeline.whole_file import replace_whole
from engine_pipeline.yaml_file import load_yaml, parse_yaml
from engine_registry.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine_pipeline.gates.suite import Recorded
    from engine_pipeline.yaml_reader import Positions

_KEY = "recorded"


def with_recorded(path: Path, answers: Mapping[str, Recorded]) -> str | None:
    """The text of a case file with these answers, by case; None if none of them is in it.

    Raises:
        NotFound, InvalidInput: it cannot be read, or a case is not written a key to a line.
    """
    plain, positions = load_yaml(path)
    lines = path.read_text(encoding="utf-8").splitlines()
    wanted = [
        (at, answers[case["id"]]) for at, case in enumerate(plain["cases"]) if case["id"] in answers
    ]
    if not wanted:
        return None
    # From the last case on, so that the lines of those before it stay where they are.
    for at, recorded in reversed(wanted):
        _put(lines, at, recorded, positions, len(plain["cases"]))
    text = "\n".join(lines) + "\n"
    if not _differs_in_answers_alone(plain, text, answers):
        raise InvalidInput(
            f"{path}: cannot put recorded answers into it without touching something else",
            hint="write its cases in block style, a key to a line, as golden_prompts/smollm2-core "
            "has them",
            reference="case-file-layout",
        )
    return text


def write_case_file(path: Path, text: str) -> None:
    """Replace a case file, whole or not at all; raises Unavailable if it cannot be written."""
    try:
        replace_whole(path, text.encode())
    except OSError as error:
        raise Unavailable(
            f"{path}: cannot be written: {error.strerror or error}",
            hint="check the permissions of the suite's folder, then record again",
            reference="case-file-not-written",
        ) from error


def _put(lines: list[str], at: int, recorded: Recorded, positions: Positions, cases: int) -> None:
    first = positions["cases", at] - 1
    indent = " " * (len(lines[first]) - len(lines[first].lstrip(" -")))
    own = positions.get(("cases", at, _KEY))
    if own is not None:
        start, end = own - 1, _end_of(lines, own - 1, len(indent))
    else:
        limit = positions["cases", at + 1] - 1 if at + 1 < cases else len(lines)
        start = end = _last_line(lines, first, limit) + 1
    lines[start:end] = [
        f"{indent}{_KEY}:",
        f"{indent}  text: {yaml_text(recorded.text)}",
        f"{indent}  agreement: {recorded.agreement}",
        f"{indent}  n: {recorded.n}",
    ]


def _end_of(lines: list[str], start: int, indent: int) -> int:
    """The line after the last one that belongs to the key at `start`."""
    end = start + 1
    while end < len(lines) and (not lines[end].strip() or _indent(lines[end]) > indent):
        end += 1
    return _last_line(lines, start, end) + 1


def _last_line(lines: list[str], first: int, limit: int) -> int:
    """The last line before `limit` that is neither blank nor a comment of what comes after."""
    last = limit - 1
    while last > first and (not lines[last].strip() or lines[last].lstrip().startswith("#")):
        last -= 1
    return last


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _differs_in_answers_alone(
    before: dict[str, Any], text: str, answers: Mapping[str, Recorded]
) -> bool:
    try:
        after, _ = parse_yaml(text.encode(), "what was written")
        cases = after["cases"]
    except (InvalidInput, KeyError, TypeError):
        return False
    if {**after, "cases": None} != {**before, "cases": None} or len(cases) != len(before["cases"]):
        return False
    for one, other in zip(before["cases"], cases, strict=True):
        wanted = dict(one)
        if one["id"] in answers:
            wanted[_KEY] = answers[one["id"]].model_dump(mode="json")
        if wanted != other:
            return False
    return True
