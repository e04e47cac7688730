"""Reads and writes files of workloads, and reads logs line by line."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import TYPE_CHECKING

from engine_pipeline.whole_file import replace_whole
from engine_pipeline.workload.model import Workload
from engine_pipeline.yaml_file import validated
from engine_registry.errors import Conflict, InvalidInput, NotFound, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from engine_registry.digest import Digest

# A line holds a whole chat where a log keeps those.
_MAX_LINE_BYTES = 16 << 20
_HEAD = """\
# A load on an engine: docs/speed.md. A lane names this file with its digest, which
# `enginectl workload show` says.
"""


def load_workload(path: Path) -> Workload:
    """The workload in a file.

    Raises:
        NotFound: no such file.
        InvalidInput: with every problem, its line and its key.
    """
    return validated(path, Workload, reference="workload-invalid")


def pinned_workload(folder: Path, file: str, digest: Digest) -> Workload:
    """The workload that a lane pins.

    Args:
        folder: of `channels.yaml`.
        file: below it.
        digest: what it must be.

    Raises:
        NotFound: no such file.
        InvalidInput: it is another workload, or none.
    """
    found = load_workload(folder / file)
    if found.digest != digest:
        raise InvalidInput(
            f"{file} is workload {found.digest.short}, the lane pins {digest.short}",
            hint=f"if the change is meant, pin {found.digest} where the lane is written; what was "
            "measured under the other workload then counts no more",
            reference="workload-not-the-pinned-one",
        )
    return found


def write_workload(path: Path, workload: Workload) -> None:
    """Write the file, whole or not at all.

    Raises:
        Conflict: there is something already.
        Unavailable: it cannot be written.
    """
    refuse_existing(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_whole(path, workload_text(workload).encode())
    except OSError as error:
        raise Unavailable(
            f"{path}: cannot be written: {error.strerror or error}",
            hint="check the permissions of its folder, then run the command again",
            reference="workload-not-written",
        ) from error


def refuse_existing(path: Path) -> None:
    """Raise Conflict if there is something already: gates may pin it."""
    if path.exists():
        raise Conflict(
            f"{path} is there already, and gates may pin it",
            hint=f"move it away, or name another file: --out {path.with_stem(path.stem + '-2')}",
            reference="workload-exists",
        )


def workload_text(workload: Workload) -> str:
    """The file: a field a line, its value as JSON, which YAML reads alike."""
    plain = workload.model_dump(mode="json", exclude_none=True)
    order = ["schema_version", *(name for name in plain if name != "schema_version")]
    lines = [
        f"{name}: {json.dumps(plain[name], ensure_ascii=False)}" for name in order if name in plain
    ]
    return _HEAD + "\n".join(lines) + "\n"


def read_log(path: Path) -> Iterator[bytes]:
    """The lines of a log, also of one that is compressed (`.gz`).

    A line that is too long to be one request comes cut, so that it is no JSON.

    Raises:
        NotFound: no such file.
        InvalidInput: it is none, or not whole.
        Unavailable: it cannot be read.
    """
    if not path.exists():
        raise NotFound(
            f"{path}: no such log",
            hint="name a file with one JSON object a line, also compressed (.gz)",
            reference="workload-log-missing",
        )
    if not path.is_file():
        found = "a directory" if path.is_dir() else "no regular file"
        raise InvalidInput(
            f"{path}: {found}, want a log",
            hint="name a file with one JSON object a line, also compressed (.gz)",
            reference="workload-log-unusable",
        )
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as log:
            yield from _lines(log.readline)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InvalidInput(
            f"{path}: not a whole .gz file: {error}",
            hint="bring the file again, whole, or unpack it and name what was in it",
            reference="workload-log-unusable",
        ) from error
    except OSError as error:
        raise Unavailable(
            f"{path}: cannot be read: {error.strerror or error}",
            hint="check the file and its permissions, then run the command again",
            reference="workload-log-unreadable",
        ) from error


def _lines(readline: Callable[[int], bytes]) -> Iterator[bytes]:
    rest_of_long = False
    while line := readline(_MAX_LINE_BYTES):
        ended = line.endswith(b"\n")
        if not rest_of_long:
            yield line
        rest_of_long = not ended
