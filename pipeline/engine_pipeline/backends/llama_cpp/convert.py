"""The convert step: a fetched model as one F16 GGUF file.

    python -m engine_pipeline.backends.llama_cpp.convert --source DIR --output FILE

Takes a directory with one GGUF file, or a Hugging Face checkpoint in safetensors.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.backends.llama_cpp.gguf_header import read_header
from engine_pipeline.runners.protocol import run_child
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from engine_pipeline.progress import Progress

# Part of the step's key: raise it with every change that can alter the bytes written.
REVISION = 1


def convert(source: Path, output: Path, progress: Progress) -> None:
    """Write the model in `source` to `output` as F16.

    Raises:
        InvalidInput: no model, more than one, or one this converter does not know; names it.
    """
    ggufs = sorted(source.rglob("*.gguf"))
    if len(ggufs) > 1:
        raise InvalidInput(
            f"source has {len(ggufs)} GGUF files, want one: "
            f"{', '.join(path.name for path in ggufs[:8])}",
            hint="name the one to use in `model.files` of the spec, then run `enginectl lock`",
            reference="source-ambiguous",
        )
    if ggufs:
        from engine_pipeline.backends.llama_cpp.from_gguf import convert_gguf

        convert_gguf(ggufs[0], read_header(ggufs[0]), output, progress)
        return
    if (source / "config.json").is_file():
        from engine_pipeline.backends.llama_cpp.from_checkpoint import convert_checkpoint

        convert_checkpoint(source, output, progress)
        return
    raise InvalidInput(
        "source has neither a GGUF file nor a config.json with safetensors",
        hint="check `model.source` and `model.files` of the spec, then run `enginectl lock`",
        reference="source-without-model",
    )


def main(argv: list[str] | None = None) -> int:
    """Run the step; the exit status."""
    parser = argparse.ArgumentParser(prog="convert")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args(argv)
    return run_child(partial(convert, arguments.source, arguments.output))


if __name__ == "__main__":
    sys.exit(main())
