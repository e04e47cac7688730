"""Feeds one way in with bytes that a fuzzer chooses by the code they reach; ends at the first bug.

    python -m tests.properties.guided KIND SECONDS FOLDER

Needs atheris, which has builds for Linux on x86-64. The good examples come first; what reached
anything new stays in FOLDER/corpus, what broke the parser in FOLDER/broke-<digest>.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["engine_registry", "engine_pipeline"]):
    from tests.properties.ways_in import HANG_S, PARSERS, fed

MOST_BYTES = 65_536


def main() -> None:
    """Never returns: the fuzzer ends the process."""
    kind, seconds, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    parser, room, corpus = PARSERS[kind], folder / "room", folder / "corpus"
    for made in (room, corpus):
        made.mkdir(parents=True, exist_ok=True)
    for number, example in enumerate(parser.examples):
        (corpus / f"example-{number}").write_bytes(example)
    options = {
        "max_total_time": seconds,
        "timeout": HANG_S,
        "max_len": MOST_BYTES,
        "rss_limit_mb": 4096,
        "artifact_prefix": f"{folder}/broke-",
        "print_final_stats": 1,
    }
    argv = [sys.argv[0], *(f"-{name}={value}" for name, value in options.items()), str(corpus)]
    atheris.Setup(argv, lambda data: fed(parser, data, room) and None)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
