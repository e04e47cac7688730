"""An engine's files on a target: laid out whole, hashed where they lie, compared with the manifest.

Each engine lies once per target, in a directory named after its digest, however many deployments
name it. The directory gets that name only after every byte in it was hashed there.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.targets.durable import sync_dir
from engine_pipeline.targets.port import Damage
from engine_registry.digest import READ_SIZE_BYTES, Digest
from engine_registry.errors import IntegrityError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_pipeline.progress import Progress
    from engine_registry.manifest import Manifest

_LISTED = 4


def place_engine(
    engines_dir: Path,
    engine: Digest,
    manifest: Manifest,
    lay_out: Callable[[Path], None],
    progress: Progress,
) -> Path:
    """The directory with this engine's files, every byte hashed by this call.

    One that is there already is used again if it is whole, and replaced if it is not.

    Raises:
        IntegrityError: reference `target-bytes-differ`: what was just laid out is not the engine.
        EngineCIError: whatever `lay_out` raises.
    """
    place = engines_dir / engine.short
    progress.phase("lay out", f"engine {engine.short}")
    if place.is_dir():
        damaged = damaged_files(place, manifest, deep=True, progress=progress)
        if not damaged:
            progress.note(f"engine {engine.short}: there already, every byte as it should be")
            return place
        progress.note(f"engine {engine.short}: laid out anew: {say_damage(damaged)}")
    fresh = engines_dir / f".new-{engine.short}-{secrets.token_hex(4)}"
    try:
        lay_out(fresh)
    except Unavailable as error:
        # Nobody has to know of the name that it has until it is whole.
        error.message = error.message.replace(str(fresh), str(place))
        error.args = (error.message,)
        raise
    damaged = damaged_files(fresh, manifest, deep=True, progress=progress)
    if damaged:
        raise IntegrityError(
            f"engine {engine.short} on {engines_dir.parent}: {say_damage(damaged)}",
            hint="run `enginectl verify` on the registry and look at this disk, then deploy again",
            reference="target-bytes-differ",
        )
    _settle(fresh)
    if place.exists():
        place.rename(engines_dir / f".gone-{engine.short}-{secrets.token_hex(4)}")
    fresh.rename(place)
    sync_dir(engines_dir)
    return place


def damaged_files(
    engine_dir: Path, manifest: Manifest, *, deep: bool, progress: Progress | None = None
) -> tuple[Damage, ...]:
    """Files that are missing, of another size, one too many or, with `deep`, of other bytes."""
    found: list[Damage] = []
    titles = {layer.title: layer for layer in manifest.layers if layer.title is not None}
    done = 0
    for title, layer in titles.items():
        path = engine_dir / title
        try:
            size = path.stat().st_size if path.is_file() else None
        except OSError as error:
            found.append(Damage(path=title, expected=str(layer.digest), found=str(error.strerror)))
            continue
        if size != layer.size:
            there = "no such file" if size is None else f"{size} bytes"
            found.append(Damage(path=title, expected=f"{layer.size} bytes", found=there))
        elif deep and (digest := _digest_of(path)) != layer.digest:
            found.append(Damage(path=title, expected=str(layer.digest), found=str(digest)))
        done += layer.size
        if progress is not None and deep:
            progress.update(done, manifest.size_bytes, "bytes")
    surplus = sorted(_files_below(engine_dir) - set(titles))
    found += [Damage(path=name, expected="no such file", found="a file") for name in surplus]
    return tuple(found)


def say_damage(damaged: tuple[Damage, ...]) -> str:
    """All of it in one line."""
    said = [f"{item.path}: want {item.expected}, found {item.found}" for item in damaged[:_LISTED]]
    more = f" and {len(damaged) - _LISTED} more" if len(damaged) > _LISTED else ""
    return "; ".join(said) + more


def _digest_of(path: Path) -> Digest:
    with path.open("rb", buffering=READ_SIZE_BYTES) as stream:
        return Digest.of_stream(stream)


def _files_below(directory: Path) -> set[str]:
    return {
        path.relative_to(directory).as_posix()
        for path in directory.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }


def _settle(directory: Path) -> None:
    """Make the names of a directory tree durable; its files are when they were laid out."""
    for folder, _, _ in os.walk(directory, topdown=False):
        sync_dir(Path(folder))
