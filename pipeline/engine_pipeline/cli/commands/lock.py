"""`enginectl lock`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engine_pipeline.cli.options import verb

if TYPE_CHECKING:
    from engine_pipeline.cli.answer import Answer
    from engine_pipeline.cli.render import Page
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.spec.compare import Moved


@verb("lock")
@click.argument(
    "specs",
    nargs=-1,
    required=True,
    metavar="SPEC...",
    type=click.Path(dir_okay=False, path_type=Path),
)
@click.option("--check", is_flag=True, help="Write nothing; fail if a lock is missing or stale.")
def command(shell: Shell, specs: tuple[Path, ...], check: bool) -> Answer:
    """Pin every reference of each SPEC into <spec>.lock.json, for review in a pull request.

    A branch becomes a commit, every file a digest, a tool an exact version. --check compares the
    spec and the installed tools with the lock, without the network.
    """
    from engine_pipeline.cli.answer import Answer

    rows = [_check(shell, path) if check else _lock(shell, path) for path in specs]
    shell.close()

    def page(out: Page) -> None:
        for row in rows:
            out.verdict("ok" if row["current"] else "locked", row["lock"])
            out.facts([("build key", row["build_key"]), ("pins", row["pins"])])
            for line in row["moved"]:
                out.line(f"    {line}")

    return Answer(document={"locks": rows}, page=page)


def _check(shell: Shell, path: Path) -> dict[str, Any]:
    from engine_pipeline.cli.locked import locked_spec, refuse_stale
    from engine_pipeline.spec.compare import check_lock

    lock, place = locked_spec(shell, path)
    tools = shell.backend(lock.spec.backend.kind).tools()
    refuse_stale(path, check_lock(lock.spec, lock, tools))
    return _row(place, lock, (), current=True)


def _lock(shell: Shell, path: Path) -> dict[str, Any]:
    from engine_pipeline.cli.locked import resolve_spec
    from engine_pipeline.spec.compare import diff_locks
    from engine_pipeline.spec.lock_file import lock_path, read_lock, write_lock
    from engine_registry.errors import EngineCIError

    shell.progress.phase("lock", str(path))
    lock = resolve_spec(shell, path)
    place = lock_path(path)
    try:
        moved = diff_locks(read_lock(place), lock)
    except EngineCIError:  # none there, or not readable: nothing to compare with
        moved = ()
    written = write_lock(lock, place)
    return _row(place, lock, moved, current=not written)


def _row(place: Path, lock: Any, moved: tuple[Moved, ...], *, current: bool) -> dict[str, Any]:
    from engine_pipeline.cli.render import counted
    from engine_pipeline.spec.lock import build_key

    source = lock.source
    return {
        "lock": str(place),
        "current": current,
        "build_key": str(build_key(lock, {})),
        "pins": f"{source.source} at {source.revision}, {counted(len(source.files), 'file')}; "
        + ", ".join(f"{name} {version}" for name, version in sorted(lock.tools.items())),
        "moved": [str(item) for item in moved],
    }
