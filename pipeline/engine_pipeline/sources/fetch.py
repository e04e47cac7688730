"""The fetch step of a plan: puts exactly the locked files into a directory, each one checked.

    python -m engine_pipeline.sources.fetch --lock LOCK --part source|calibration --output DIR

A process of its own, so that a hub client's threads and memory end with it. Speaks
`runners.protocol`; the exit status is that of the error tree.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.runners.protocol import run_child
from engine_pipeline.sources.schemes import open_source
from engine_pipeline.spec.lock_file import read_lock
from engine_registry.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from engine_pipeline.progress import Progress
    from engine_pipeline.spec.lock import BuildLock, LockedSource

PARTS = ("source", "calibration")


def fetch(lock: BuildLock, part: str, base_dir: Path, output: Path, progress: Progress) -> None:
    """Put the files of one part of a lock into `output`.

    Args:
        lock: what was locked.
        part: one of `PARTS`.
        base_dir: what a `file://dir` source is relative to.
        output: an existing directory.
        progress: is told about downloads and checks.
    """
    locked: LockedSource | None = lock.source if part == "source" else lock.calibration
    if locked is None:
        raise InvalidInput(
            f"the lock of {lock.spec.name} has no {part}",
            hint="run `enginectl lock` again after adding it to the spec",
            reference="lock-part-missing",
        )
    if not output.is_dir():
        raise NotFound(f"{output}: no such directory", hint="create it before fetching into it")
    open_source(locked.source, base_dir).fetch(locked, output, progress)
    progress.note(f"every file as locked: {len(locked.files):,}, {locked.size_bytes:,} bytes")


def main() -> int:
    """Run the step; the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m engine_pipeline.sources.fetch")
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--part", choices=PARTS, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument(
        "--base-dir",
        type=Path,
        help="what a file://dir source is relative to; by default the lock's directory",
    )
    options = parser.parse_args()

    def act(progress: Progress) -> None:
        lock = read_lock(options.lock)
        base_dir = options.base_dir or options.lock.absolute().parent
        fetch(lock, options.part, base_dir, options.output, progress)

    return run_child(act)


if __name__ == "__main__":
    sys.exit(main())
