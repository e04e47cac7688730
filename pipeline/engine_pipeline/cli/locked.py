"""From the path of a spec to its lock: shared by the build commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from engine_pipeline.cli.wiring import Shell
    from engine_pipeline.spec.compare import Moved
    from engine_pipeline.spec.lock import BuildLock
    from engine_pipeline.spec.model import BuildSpec
    from engine_registry.record import Record


def checked_spec(shell: Shell, path: Path) -> BuildSpec:
    """The spec at `path`, after refusing what its backend or its target cannot do."""
    from engine_pipeline.spec.hardware import refuse_impossible
    from engine_pipeline.spec.load import load_spec

    spec = load_spec(path)
    refuse_impossible(spec)
    shell.backend(spec.backend.kind).check(spec)
    return spec


def locked_spec(shell: Shell, path: Path) -> tuple[BuildLock, Path]:
    """The lock of the spec at `path`, if it still holds, and the lock's path.

    Raises:
        NotFound: there is no lock.
        InvalidInput: `lock-stale`, naming the fields that moved.
    """
    from engine_pipeline.spec.compare import check_lock
    from engine_pipeline.spec.lock_file import lock_path, read_lock

    spec = checked_spec(shell, path)
    place = lock_path(path)
    lock = read_lock(place)
    refuse_stale(path, check_lock(spec, lock))
    return lock, place


def refuse_stale(path: Path, moved: tuple[Moved, ...]) -> None:
    """Raise if anything moved since the spec was locked, naming every field."""
    if not moved:
        return
    raise InvalidInput(
        f"{path}: the lock is stale: " + "; ".join(str(item) for item in moved),
        hint=f"run `enginectl lock {path}` and commit the lock, or undo the edit",
        reference="lock-stale",
    )


def resolve_spec(shell: Shell, path: Path) -> BuildLock:
    """Pin everything the spec at `path` refers to."""
    from engine_pipeline.spec.resolve import resolve

    spec = checked_spec(shell, path)
    backend = shell.backend(spec.backend.kind)
    return resolve(
        spec,
        path.parent,
        backend.tools(),
        gguf_tokenizer=shell.gguf_tokenizer,
        images=shell.images(spec),
        progress=shell.progress,
    )


def lock_named(shell: Shell, text: str) -> tuple[BuildLock, dict[str, str] | None]:
    """The lock that a path, a build key or the name of an engine means, and the engine's host."""
    from engine_pipeline.cli.lookup import latest_record
    from engine_pipeline.spec.lock_file import read_lock
    from engine_registry.digest import Digest

    path = Path(text)
    if path.suffix == ".json":
        return read_lock(path), None
    if path.suffix in {".yaml", ".yml"}:
        return locked_spec(shell, path)[0], None
    registry = shell.registry
    if text.startswith("sha256:") and len(text) == len("sha256:") + 64:
        stored = registry.engines.find_by_key(Digest.parse(text))
        if stored is not None:
            key = Digest.parse(text)
            return _built(shell, next(r for r in stored.records if r.build_key == key))
    return _built(shell, latest_record(registry.engines.records(registry.resolve_engine(text))))


def _built(shell: Shell, record: Record) -> tuple[BuildLock, dict[str, str]]:
    from engine_pipeline.build.host import host_of
    from engine_pipeline.promote.release import lock_of

    return lock_of(shell.registry, record), host_of(record.platform)
