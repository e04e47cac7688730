"""Reads the YAML that people write, with errors that name line, key path and way out.

Owns files and their errors for everything of that kind: specs, policies, suites. The dialect is
`yaml_reader`'s, the wording `yaml_problems`', and what the values mean is each model's.
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from engine_pipeline.yaml_problems import DEFAULT_HINT, Problem, problems_of
from engine_pipeline.yaml_reader import Positions, Reader, Refused
from engine_registry.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from pathlib import Path

    from engine_registry.errors import EngineCIError

M = TypeVar("M", bound=BaseModel)

MAX_BYTES = 1 << 20
_SHOWN_FILES = 8


class InvalidDocument(InvalidInput):
    """A file is not what it should be. `problems` has every error, the message the first one.

    `file` is the file's name.

    Args:
        name: the file.
        problems: at least one.
        reference: the stable name for this kind of file, e.g. `spec-invalid`.
    """

    def __init__(self, name: str, problems: tuple[Problem, ...], *, reference: str) -> None:
        more = len(problems) - 1
        tail = f" (and {more} more {'problem' if more == 1 else 'problems'})" if more else ""
        hint = problems[0].hint
        if hint == DEFAULT_HINT:
            hint = f"correct the file, then run `enginectl validate {shlex.quote(name)}`"
            hint += " for the full list" if more else ""
        super().__init__(f"{problems[0].within(name)}{tail}", hint=hint, reference=reference)
        self.file = name
        self.problems = problems


def load_yaml(path: Path, *, reference: str = "yaml-invalid") -> tuple[Any, Positions]:
    """The plain value of a YAML file, and the line of every key and item by its key path.

    Values are dict, list, str, int, float, bool and None.

    Raises:
        NotFound: no such file.
        InvalidDocument: not UTF-8, too large, too deep, or not in the dialect.
    """
    try:
        if not path.is_file():
            raise _no_file(path, reference)
        size = path.stat().st_size
        data = path.read_bytes() if size <= MAX_BYTES else b""
    except OSError as error:
        raise InvalidInput(
            f"{path}: cannot be read: {error.strerror}",
            hint="check the permissions of the file",
            reference=reference,
        ) from error
    if size > MAX_BYTES:
        problem = Problem(line=1, path="", text=f"{size} bytes, at most {MAX_BYTES} are read")
        raise InvalidDocument(str(path), (problem,), reference=reference)
    return parse_yaml(data, str(path), reference=reference)


def _no_file(path: Path, reference: str) -> EngineCIError:
    """What is at `path` instead of a file, and what lies beside it."""
    if path.exists():
        found = "a directory" if path.is_dir() else "no regular file"
        near = path if path.is_dir() else path.parent
        return InvalidInput(
            f"{path}: {found}, want a YAML file", hint=_files_in(near), reference=reference
        )
    return NotFound(
        f"{path}: no such file", hint=_files_in(path.parent), reference="file-not-found"
    )


def _files_in(folder: Path) -> str:
    if not folder.is_dir():
        return f"check the path: there is no folder {folder}"
    names = sorted(path.name for path in folder.glob("*.yaml"))
    shown = ", ".join(names[:_SHOWN_FILES]) + (", …" if len(names) > _SHOWN_FILES else "")
    return f"check the path; YAML files in {folder}: {shown or 'none'}"


def parse_yaml(data: bytes, name: str, *, reference: str = "yaml-invalid") -> tuple[Any, Positions]:
    """As `load_yaml`, from bytes; `name` is what errors call them."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        problem = Problem(line=line, path="", text="not UTF-8", hint="save the file as UTF-8")
        raise InvalidDocument(name, (problem,), reference=reference) from error
    reader = Reader()
    try:
        return reader.read(text), reader.positions
    except Refused as refused:
        raise InvalidDocument(name, (refused.problem,), reference=reference) from None


def validated(path: Path, model: type[M], *, reference: str = "yaml-invalid") -> M:
    """The file at `path` as a `model`, validated strictly: `"4"` and `true` are no numbers.

    Raises:
        NotFound: no such file.
        InvalidDocument: with all problems of the file, each with line, key path, what was found
            and what is allowed.
    """
    value, positions = load_yaml(path, reference=reference)
    return validate(value, positions, model, str(path), reference=reference)


def validate(value: Any, positions: Positions, model: type[M], name: str, *, reference: str) -> M:
    """A value of `load_yaml` as a `model`; raises InvalidDocument."""
    try:
        # JSON mode: strict, and yet text becomes an enum and a list a tuple.
        return model.model_validate_json(json.dumps(value), strict=True)
    except ValidationError as error:
        problems = problems_of(error, value, positions, model)
        raise InvalidDocument(name, problems, reference=reference) from None
