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
    _open_what_is_closed()
    from engine_pipeline.cli.app import run
    from engine_registry.stopping import stop_waiting_on_interrupt

    stop_waiting_on_interrupt()
    code = run(sys.argv[1:])
    gc.freeze()
    sys.exit(code)


def _open_what_is_closed() -> None:
    """Give a process that was started without standard output or error one that takes nothing.

    Python has None there. A file opened later would get the free descriptor and, with it, whatever
    is printed. Standard output stays unwritable, so that a lost answer is an error.
    """
    import os
    import sys

    if sys.stdout is None:
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: PTH123, SIM115
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115
