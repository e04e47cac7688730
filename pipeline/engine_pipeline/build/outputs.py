"""The files a step left, against those its plan promises. An exit code alone proves nothing."""

from __future__ import annotations

import os
import stat as modes
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from engine_registry.documents import Value
from engine_registry.errors import EngineCIError

if TYPE_CHECKING:
    from engine_pipeline.build.plan import Step

_READ_ONLY = 0o444
_LISTED = 8


class OutputFile(Value):
    """One file of a finished step, as it was when the step ended."""

    path: str
    size_bytes: Annotated[int, Field(ge=0)]
    mtime_ns: int


def check_outputs(step: Step, directory: Path) -> None:
    """Refuse anything but exactly the promised files, regular and not empty.

    Raises:
        EngineCIError: `step-output-differs`; names what is missing, empty, or one too many.
    """
    found: dict[str, os.stat_result] = {}
    for folder, folders, names in os.walk(directory):
        paths = [Path(folder, name) for name in (*names, *folders)]
        for path in paths:
            if path.is_symlink() or not path.is_dir():
                found[path.relative_to(directory).as_posix()] = path.lstat()
    wanted = set(step.outputs)
    problems = [f"missing {name}" for name in sorted(wanted - found.keys())]
    problems += [f"not expected {name}" for name in sorted(found.keys() - wanted)]
    for name in sorted(wanted & found.keys()):
        if not modes.S_ISREG(found[name].st_mode):
            problems.append(f"not a regular file {name}")
        elif not found[name].st_size:
            problems.append(f"empty {name}")
    if problems:
        more = f" and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
        raise EngineCIError(
            f"step {step.name} ended well and left other files than planned: "
            f"{'; '.join(problems[:_LISTED])}{more}",
            hint="read what it said in the cache's logs/, and report it as a bug of that step",
            reference="step-output-differs",
        )


def settle_outputs(step: Step, directory: Path) -> tuple[OutputFile, ...]:
    """Make the files read-only and durable; what they are now. `check_outputs` goes before."""
    settled = []
    folders = {directory}
    for name in sorted(step.outputs):
        path = directory / name
        folders |= {parent for parent in path.parents if parent.is_relative_to(directory)}
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
        try:
            stat = os.fstat(descriptor)
            if stat.st_mode & 0o222:
                os.fchmod(descriptor, _READ_ONLY)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        settled.append(OutputFile(path=name, size_bytes=stat.st_size, mtime_ns=stat.st_mtime_ns))
    for folder in sorted(folders, reverse=True):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    return tuple(settled)
