"""The command line: thin over the typed acts. `main` is the entry point of `enginectl`."""

from __future__ import annotations


def main() -> None:
    """Run `enginectl` and exit with its code."""
    import gc
    import os
    import sys

    # A tenth of the time of a short command, measured as instructions of `rollback`: starting makes
    # many objects and no garbage, leaving need not look for any, and pydantic need not read the
    # metadata of every installed package for plugins, which no check of ours may depend on anyway.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    gc.set_threshold(100_000)
    from engine_pipeline.cli.app import run

    code = run(sys.argv[1:])
    gc.freeze()
    sys.exit(code)
