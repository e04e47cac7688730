"""Puts a fetched checkpoint, its serving settings and its runtime into one engine directory.

    python -m engine_pipeline.backends.checkpoint.assemble --lock LOCK --source DIR --output DIR

Before anything is put there, the checkpoint's own words about its precision are held against the
spec, and every shard's size against its header.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.backends.checkpoint.check import check_quantisation
from engine_pipeline.backends.checkpoint.quantisation import (
    CONFIG_FILE,
    QUANT_FILE,
    read_quantisation,
)
from engine_pipeline.backends.checkpoint.runtime_file import (
    RUNTIME_FILE,
    runtime_bytes,
    runtime_of,
)
from engine_pipeline.backends.checkpoint.serving_yaml import (
    SERVING_FILE,
    serving_config,
    serving_text,
)
from engine_pipeline.backends.checkpoint.shards import read_shards
from engine_pipeline.runners.protocol import run_child
from engine_pipeline.spec.lock_file import read_lock
from engine_pipeline.spec.shape import shape_of_config

if TYPE_CHECKING:
    from engine_pipeline.progress import Progress


def assemble(options: argparse.Namespace, progress: Progress) -> None:
    """Check the checkpoint and fill the output directory.

    Raises:
        Incompatible: `checkpoint-precision-differs`, with both sides.
        InvalidInput: the checkpoint is damaged or says nothing usable.
    """
    lock = read_lock(options.lock)
    source, output = options.source, options.output
    progress.phase("check", lock.spec.name)
    config = json.loads((source / CONFIG_FILE).read_bytes())
    quant_file = source / QUANT_FILE
    found = read_quantisation(
        config, quant_file.read_bytes() if quant_file.is_file() else None, lock.source.source
    )
    shape = shape_of_config(config)
    check_quantisation(lock.spec, found, shape.dtype if shape else None)
    read_shards(source)
    progress.phase("assemble", f"{len(lock.source.files)} files")
    for done, file in enumerate(lock.source.files, start=1):
        target = output / file.path
        target.parent.mkdir(parents=True, exist_ok=True)
        _share_or_copy(source / file.path, target)
        progress.update(done, len(lock.source.files), "files")
    (output / SERVING_FILE).write_text(serving_text(serving_config(lock.spec)))
    (output / RUNTIME_FILE).write_bytes(runtime_bytes(runtime_of(lock)))


def _share_or_copy(original: Path, target: Path) -> None:
    """The same bytes under another name: a hard link if nobody may write them, or a copy."""
    if not original.stat().st_mode & 0o222:
        with suppress(OSError):
            os.link(original, target)
            return
    shutil.copyfile(original, target)


def main(argv: list[str] | None = None) -> int:
    """Run the step; the process's exit status."""
    parser = argparse.ArgumentParser(prog="python -m engine_pipeline.backends.checkpoint.assemble")
    parser.add_argument("--lock", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    return run_child(partial(assemble, parser.parse_args(argv)))


if __name__ == "__main__":
    sys.exit(main())
