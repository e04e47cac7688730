"""From a log of chats to the files of a suite: limits first, duplicates once, no secret unasked.

1 look     a regular file of text, not an archive, not larger than it may be
2 read     line by line; a line that is no chat is named by its number
3 choose   each question once; of too many, those with the smallest ids, which is a fair sample
           and the same one next time
4 write    files beside each other, whole, and never over one that is there
"""

from __future__ import annotations

import json
import stat
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.suite_jsonl import BadLine, IdealAs, read_line
from engine_pipeline.gates.yaml_text import yaml_text
from engine_pipeline.redact import looks_secret
from engine_pipeline.whole_file import replace_whole
from engine_registry.errors import Conflict, InvalidInput, NotFound, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from engine_pipeline.gates.suite import Case

MAX_FILE_BYTES = 1 << 30
MAX_LINE_BYTES = 1 << 20
# Of one case file; the reader of YAML takes at most twice as much.
_FILE_BYTES = 512 << 10
_MAGIC = (
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "gzip"),
    (b"\x28\xb5\x2f\xfd", "zstandard"),
    (b"BZh", "bzip2"),
    (b"\xfd7zXZ\x00", "xz"),
    (b"PAR1", "Parquet"),
    (b"SQLite format 3", "a SQLite database"),
)
_SHOWN_LINES = 5


@dataclass(slots=True)
class Import:
    """What was read.

    Attributes:
        cases: each question once, by id.
        lines: that were not empty.
        duplicates: lines that asked what was asked before.
        answered: cases with an answer on their line.
        skipped: lines that are no chat, by number, with why.
        secret_lines: numbers of lines with what looks like a secret.
        ignored: fields that a case does not hold, and how many lines had them.
        left_out: cases beyond the limit.
    """

    cases: dict[str, Case] = field(default_factory=dict)
    lines: int = 0
    duplicates: int = 0
    answered: int = 0
    skipped: dict[int, str] = field(default_factory=dict)
    secret_lines: list[int] = field(default_factory=list)
    ignored: Counter[str] = field(default_factory=Counter)
    left_out: int = 0


def read_log(
    path: Path,
    *,
    tag: str,
    ideal_as: IdealAs | None,
    at_least: float | None = None,
    limit: int,
    skips_invalid: bool,
    keeps_secrets: bool,
) -> Import:
    """The cases of a log.

    Args:
        path: the log.
        tag: of every case.
        ideal_as: the check that an answer becomes; None makes none.
        at_least: the bar of a check `similar`.
        limit: how many cases at most.
        skips_invalid: leave out lines that are no chat; else the first of them refuses the log.
        keeps_secrets: keep lines with what looks like a secret; else they are left out.

    Raises:
        NotFound: no such file.
        InvalidInput: not text, too large, a line that is no chat, or nothing that is one.
    """
    found = Import()
    answered: set[str] = set()
    for number, line in _lines(path):
        found.lines += 1
        try:
            read = read_line(line, tag=tag, ideal_as=ideal_as, at_least=at_least)
        except BadLine as error:
            if not skips_invalid:
                raise InvalidInput(
                    f"{path}:{number}: {error}",
                    hint="correct the line, or leave such lines out with --skip-invalid",
                    reference="suite-log-invalid",
                ) from error
            found.skipped[number] = str(error)
            continue
        found.ignored.update(read.ignored)
        if looks_secret(read.case.model_dump_json()):
            found.secret_lines.append(number)
            if not keeps_secrets:
                continue
        if read.case.id in found.cases:
            found.duplicates += 1
            continue
        found.cases[read.case.id] = read.case
        if read.answered:
            answered.add(read.case.id)
    if not found.cases:
        raise _nothing_in(path, found)
    if len(found.cases) > limit:
        found.left_out = len(found.cases) - limit
        found.cases = {name: found.cases[name] for name in sorted(found.cases)[:limit]}
    found.answered = len(answered & set(found.cases))
    return found


def _nothing_in(path: Path, found: Import) -> InvalidInput:
    why = []
    if found.skipped:
        why.append(f"{some_lines(list(found.skipped))}: {next(iter(found.skipped.values()))}")
    if found.secret_lines:
        why.append(f"{some_lines(found.secret_lines)}: looks like a secret")
    return InvalidInput(
        f"{path}: no line of the log could be used: {'; '.join(why) or 'it is empty'}",
        hint="want one JSON object a line, with `messages` or with `prompt`",
        reference="suite-log-invalid",
    )


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of every line that is not empty; raises as `read_log`."""
    try:
        status = path.stat()
    except OSError as error:
        raise NotFound(
            f"{path}: {error.strerror}",
            hint="name a file of JSON lines, one chat each",
            reference="suite-log-not-found",
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise _not_a_log(path, "not a regular file")
    if status.st_size > MAX_FILE_BYTES:
        raise _not_a_log(path, f"{status.st_size} bytes, at most {MAX_FILE_BYTES} are read")
    try:
        with path.open("rb") as stream:
            head = stream.read(16)
            for magic, name in _MAGIC:
                if head.startswith(magic):
                    raise _not_a_log(path, f"begins like {name}")
            stream.seek(0)
            number = 0
            while line := stream.readline(MAX_LINE_BYTES + 1):
                number += 1
                if len(line) > MAX_LINE_BYTES:
                    raise _not_a_log(path, f"line {number} has more than {MAX_LINE_BYTES} bytes")
                if b"\x00" in line:
                    raise _not_a_log(path, f"line {number} holds a NUL: not text")
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                except UnicodeDecodeError as error:
                    raise _not_a_log(path, f"line {number} is not UTF-8") from error
                if text:
                    yield number, text
    except OSError as error:
        raise Unavailable(
            f"{path}: cannot be read: {error.strerror}",
            hint="check the file and its permissions, then run the command again",
            reference="suite-log-unreadable",
        ) from error


def _not_a_log(path: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"{path}: {what}",
        hint="give one JSON object a line, as UTF-8 text; unpack archives first",
        reference="suite-log-invalid",
    )


def case_files(cases: Iterable[Case], stem: str) -> dict[str, str]:
    """Names and texts of case files, none too large to be read again, in the order of ids."""
    texts: list[list[str]] = []
    size = _FILE_BYTES
    for case in sorted(cases, key=lambda case: case.id):
        text = _case_text(case)
        size += len(text.encode())
        if size > _FILE_BYTES:
            texts.append([])
            size = len(text.encode())
        texts[-1].append(text)
    names = [f"{stem}.yaml" if n == 1 else f"{stem}-{n}.yaml" for n in range(1, len(texts) + 1)]
    return {name: "cases:\n" + "".join(chosen) for name, chosen in zip(names, texts, strict=True)}


def _case_text(case: Case) -> str:
    """One item of a case file; each value is JSON, which YAML reads alike."""
    fields: dict[str, Any] = case.model_dump(
        mode="json", by_alias=True, exclude_none=True, exclude_defaults=True
    )
    fields["checks"] = [
        check.model_dump(mode="json", by_alias=True, exclude_defaults=True) | {"kind": check.kind}
        for check in case.checks
    ]
    lines: list[str] = []
    for name, value in fields.items():
        mark = "  - " if not lines else "    "
        if name in {"messages", "tools", "checks"}:
            lines += [f"{mark}{name}:", *(f"      - {yaml_text(item)}" for item in value)]
        else:
            lines.append(f"{mark}{name}: {yaml_text(value)}")
    return "\n".join(lines) + "\n"


def write_files(suite_dir: Path, files: dict[str, str]) -> tuple[Path, ...]:
    """Write files that are not there yet, all of them or none.

    Raises:
        Conflict: one is there.
        Unavailable: they cannot be written.
    """
    there = [name for name in files if (suite_dir / name).exists()]
    if there:
        raise Conflict(
            f"{suite_dir / there[0]} is there already",
            hint="move it away, or import with another --tag",
            reference="suite-file-exists",
        )
    written: list[Path] = []
    try:
        suite_dir.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            path = suite_dir / name
            written.append(path)
            replace_whole(path, text.encode())
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise Unavailable(
            f"{suite_dir}: cannot be written: {error.strerror}",
            hint="check the permissions of the folder, then import again",
            reference="suite-not-written",
        ) from error
    return tuple(written)


def head_text(fields: dict[str, Any], files: Sequence[str]) -> str:
    """`suite.yaml` of a new suite."""
    lines = ["schema_version: 1"]
    lines += [f"{name}: {yaml_text(value)}" for name, value in fields.items()]
    lines.append(f"cases: {json.dumps(list(files))}")
    return "\n".join(lines) + "\n"


def some_lines(numbers: Sequence[int]) -> str:
    """Numbers of lines, not too many, for people."""
    shown = ", ".join(map(str, numbers[:_SHOWN_LINES]))
    more = f" and {len(numbers) - _SHOWN_LINES} more" if len(numbers) > _SHOWN_LINES else ""
    return f"{'line' if len(numbers) == 1 else 'lines'} {shown}{more}"
