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
    from engine_pipeline.spec.lock import BuildLock


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
    from engine_pipeline.spec.lock import build_inputs, build_key

    lock = _lock(shell, one)
    key, inputs = build_key(lock, {}), build_inputs(lock, {})
    document = {"build_key": str(key), "inputs": inputs}

    def page(out: Page) -> None:
        import json

        out.line(f"build key {key}")
        out.facts((name, json.dumps(value, ensure_ascii=False)) for name, value in inputs.items())

    return Answer(document=document, page=page)


def _difference(shell: Shell, one: str, other: str) -> Answer:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.spec.compare import diff_locks
    from engine_pipeline.spec.lock import build_key

    left, right = _lock(shell, one), _lock(shell, other)
    keys = [build_key(lock, {}) for lock in (left, right)]
    moved = diff_locks(left, right)
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


def _lock(shell: Shell, text: str) -> BuildLock:
    """The lock that a path, a build key or the name of an engine means."""
    from engine_pipeline.cli.lookup import latest_record
    from engine_pipeline.promote.release import lock_of
    from engine_pipeline.spec.lock_file import read_lock
    from engine_registry.digest import Digest

    path = Path(text)
    if path.suffix == ".json":
        return read_lock(path)
    if path.suffix in {".yaml", ".yml"}:
        from engine_pipeline.cli.locked import locked_spec

        return locked_spec(shell, path)[0]
    registry = shell.registry
    if text.startswith("sha256:") and len(text) == len("sha256:") + 64:
        stored = registry.engines.find_by_key(Digest.parse(text))
        if stored is not None:
            key = Digest.parse(text)
            return lock_of(registry, next(r for r in stored.records if r.build_key == key))
    return lock_of(registry, latest_record(registry.engines.records(registry.resolve_engine(text))))
