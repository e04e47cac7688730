"""`enginectl explain`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell


@verb("explain")
@click.argument("one", metavar="KEY-OR-SPEC")
@click.argument("other", required=False)
def command(shell: Shell, one: str, other: str | None) -> Answer:
    """Name the inputs that differ between two builds, or list the inputs of one.

    Each is a spec, a lock file, a build key, or an engine (digest, prefix, release, channel).
    """
    return _inputs(shell, one) if other is None else _difference(shell, one, other)


def _inputs(shell: Shell, one: str) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.locked import lock_named
    from engine_pipeline.spec.lock import build_inputs, build_key

    lock, host = lock_named(shell, one)
    key, inputs = build_key(lock, host or {}), build_inputs(lock, host or {})
    document = {"build_key": str(key), "inputs": inputs}

    def page(out: Page) -> None:
        import json

        out.line(f"build key {key}")
        out.facts((name, json.dumps(value, ensure_ascii=False)) for name, value in inputs.items())

    return Answer(document=document, page=page)


def _difference(shell: Shell, one: str, other: str) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.locked import lock_named
    from engine_pipeline.spec.compare import diff_hosts, diff_locks
    from engine_pipeline.spec.lock import build_key

    (left, built), (right, also_built) = lock_named(shell, one), lock_named(shell, other)
    # What nobody has built yet would be built on the other's machine.
    hosts = [built if built is not None else also_built or {}]
    hosts.append(also_built if also_built is not None else hosts[0])
    keys = [build_key(lock, host) for lock, host in zip((left, right), hosts, strict=True)]
    moved = (*diff_hosts(*hosts), *diff_locks(left, right))
    document = {
        "build_keys": [str(key) for key in keys],
        "same_key": keys[0] == keys[1],
        "differ": [item.model_dump(mode="json") for item in moved],
    }

    def page(out: Page) -> None:
        same = keys[0] == keys[1]
        out.line("same build key: an engine of one serves the other" if same else "other build key")
        if moved:
            names = [Path(text).stem if "/" in text else text[:19] for text in (one, other)]
            rows = [
                (m.path, _word(m.locked), _word(m.now), "yes" if m.changes_engine else "no")
                for m in moved
            ]
            out.table(("input", *names, "changes the engine"), rows)
        else:
            out.line("every input is the same")

    return Answer(document=document, page=page)


def _word(value: object) -> str:
    return "-" if value is None else str(value)
