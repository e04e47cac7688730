"""The command line: thin over the typed acts. `main` is the entry point of `enginectl`."""

from __future__ import annotations


def main() -> None:
    """Run `enginectl` and exit with its code."""
    import sys

    from engine_pipeline.cli.app import run

    sys.exit(run(sys.argv[1:]))
