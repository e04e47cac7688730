"""Puts plans and tokenizer into one engine directory, sharing bytes where the file system can.

    python -m engine_pipeline.backends.trtllm.assemble --plans DIR --source DIR --output DIR
        --files NAME... --tokenizer NAME...

`trtllm-build` never writes a tokenizer, and a server must not look for one on a hub. It lies in a
folder of its own, because its `config.json` is the model's and the engine has another.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.backends.trtllm.builder import TOKENIZER_DIR
from engine_pipeline.runners.protocol import run_child
from engine_registry.errors import NotFound

if TYPE_CHECKING:
    from engine_pipeline.progress import Progress


def assemble(options: argparse.Namespace, progress: Progress) -> None:
    """Fill the output directory.

    Raises:
        NotFound: a file that the plan promised is not there.
    """
    plans, source, output = options.plans, options.source, options.output
    pairs = [(plans / name, output / name) for name in options.files]
    pairs += [(source / name, output / TOKENIZER_DIR / name) for name in options.tokenizer]
    progress.phase("assemble", f"{len(pairs)} files")
    for done, (original, target) in enumerate(pairs, start=1):
        target.parent.mkdir(exist_ok=True)
        share_or_copy(original, target)
        progress.update(done, len(pairs), "files")


def share_or_copy(original: Path, target: Path) -> None:
    """Make `target` the same bytes as `original`: a hard link if nobody may write it, or a copy.

    Raises:
        NotFound: there is no such file.
    """
    try:
        mode = original.stat().st_mode
    except FileNotFoundError as error:
        raise NotFound(
            f"{original}: no such file",
            hint="run `enginectl build` again; it makes damaged steps anew",
            reference="step-input-missing",
        ) from error
    if not mode & 0o222:
        with suppress(OSError):
            os.link(original, target)
            return
    shutil.copyfile(original, target)


def main(argv: list[str] | None = None) -> int:
    """Run the step; the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m engine_pipeline.backends.trtllm.assemble")
    parser.add_argument("--plans", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--files", nargs="+", required=True)
    parser.add_argument("--tokenizer", nargs="*", default=[])
    return run_child(partial(assemble, parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
