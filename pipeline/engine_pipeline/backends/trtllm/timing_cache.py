"""Hands a given timing cache to the builder, if it is the one whose digest the spec names.

    python -m engine_pipeline.backends.trtllm.timing_cache --lock LOCK --path PATH --digest DIGEST
        --output FILE

TensorRT rejects or ignores a cache of another version or board without saying much, and the builder
only warns about a missing one: a build that lost its cache would pass unnoticed.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.runners.protocol import run_child
from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError, NotFound

if TYPE_CHECKING:
    from engine_pipeline.progress import Progress


def hand_over(options: argparse.Namespace, progress: Progress) -> None:
    """Copy the cache to the output after checking it.

    Raises:
        NotFound: `timing-cache-missing`.
        IntegrityError: `timing-cache-differs`, with both digests.
    """
    path: Path = options.lock.absolute().parent / options.path
    progress.phase("timing-cache", str(path))
    if not path.is_file():
        raise NotFound(
            f"timing cache {path}: no such file (paths are relative to the lock)",
            hint="put it there, or remove timing-cache and timing-cache-digest from the spec",
            reference="timing-cache-missing",
        )
    output: Path = options.output
    shutil.copyfile(path, output)
    # Over the copy: what is checked is what the builder reads.
    with output.open("rb") as stream:
        found = Digest.of_stream(stream)
    if str(found) != options.digest:
        output.unlink()
        raise IntegrityError(
            f"timing cache {path}: spec says {options.digest}, the file is {found}",
            hint="restore the file, or write the new digest into the spec and review the change",
            reference="timing-cache-differs",
        )


def main(argv: list[str] | None = None) -> int:
    """Run the step; the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m engine_pipeline.backends.trtllm.timing_cache")
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--path", required=True)
    parser.add_argument("--digest", required=True)
    parser.add_argument("--output", type=Path, required=True)
    return run_child(partial(hand_over, parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
