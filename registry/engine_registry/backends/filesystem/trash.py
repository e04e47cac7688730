"""Removal over a directory: a rename into `<root>/trash/`, later an unlink.

The age of a file is told by its change time, which nobody can set: naming, linking, renaming and
changing its mode renew it, so a blob that was linked into a deployment today counts as new.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.backends.filesystem.documents import SCRATCH
from engine_registry.backends.filesystem.durable import (
    READ_ONLY,
    ensure_dir,
    link_into,
    reading,
    sync_dir,
    writing,
)
from engine_registry.backends.filesystem.root import CACHE
from engine_registry.backends.filesystem.stamps import Stamps
from engine_registry.store import AgedFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from engine_registry.backends.filesystem.root import StoreRoot
    from engine_registry.digest import Digest

_BLOBS = f"{layout.BLOBS}/"
# `records/<2>/<engine>/<key>.json` and its like: folders of one engine, of no use once empty.
_PARTS_IN_A_FOLDER_OF_ITS_OWN = 4


class FileTrash:
    """The trash port over a directory. Safe to use from many threads and processes.

    Args:
        root: of the registry.
        age_s: seconds since a file last changed; default: by the clock that gives files their
            times, which is found out by writing one.
    """

    def __init__(
        self, root: StoreRoot, age_s: Callable[[os.stat_result], float] | None = None
    ) -> None:
        self._root = root
        self._stamps = Stamps(root.path / CACHE)
        self._age_s = age_s or _FileClock(root).age_s

    def aged(self) -> Iterator[AgedFile]:
        """See `Trash.aged`."""
        self._root.require()
        with reading(self._root.path, "list the registry"):
            for name, entry in self._root.walk(SCRATCH):
                with suppress(FileNotFoundError):
                    stat = entry.stat(follow_symlinks=False)
                    yield AgedFile(name, stat.st_size, _span(self._age_s(stat)))

    def discard(self, name: str, min_age: timedelta) -> bool:
        """See `Trash.discard`."""
        path = self._root.path_of(name)
        target = self._root.path_of(layout.trash(name))
        self._root.require()
        with writing(self._root.path, f"discard {name}"):
            before = _lstat(path)
            if before is None or _span(self._age_s(before)) < min_age:
                return False
            ensure_dir(target.parent)
            try:
                # Some file systems keep the change time over a rename: what is in the trash must
                # not look as if it had lain there for long.
                with suppress(PermissionError):  # somebody else's file on a shared mount
                    path.chmod(READ_ONLY)
                if _is_same(path, target):
                    path.unlink()  # a restore died half-way; renaming would do nothing
                else:
                    path.rename(target)
            except FileNotFoundError:
                return False  # another collector was quicker
            self._keep_stamp(name, before, target)
            sync_dir(target.parent)
            self._leave(path)
            return True

    def restore(self, name: str) -> bool:
        """See `Trash.restore`."""
        path = self._root.path_of(name)
        target = self._root.path_of(layout.trash(name))
        self._root.require()
        with writing(self._root.path, f"restore {name}"):
            before = _lstat(target)
            if before is None:
                return False
            try:
                link_into(target, path)
            except FileExistsError:
                if not _is_same(path, target):
                    return False
            except FileNotFoundError:
                return False  # another collector was quicker
            sync_dir(path.parent)
            target.unlink(missing_ok=True)
            self._keep_stamp(name, before, path)
            self._leave(target)
            return True

    def purge(self, name: str, min_age: timedelta) -> bool:
        """See `Trash.purge`."""
        target = self._root.path_of(layout.trash(name))
        self._root.require()
        with writing(self._root.path, f"purge {name}"):
            before = _lstat(target)
            if before is None or _span(self._age_s(before)) < min_age:
                return False
            try:
                target.unlink()
            except FileNotFoundError:
                return False
            digest = _digest(name)
            if digest is not None and not self._root.path_of(name).exists():
                self._stamps.forget(digest)
            self._leave(target)
            return True

    def _keep_stamp(self, name: str, before: os.stat_result, now_at: Path) -> None:
        """Moving a blob touched no byte of it: let the stamp of its last hash follow."""
        digest = _digest(name)
        if digest is not None and self._stamps.vouches(digest, before):
            with suppress(FileNotFoundError):
                self._stamps.write(digest, now_at.lstat())

    def _leave(self, path: Path) -> None:
        """Remove the folder that this was the last file of, if it is one of a single engine."""
        depth = len(path.relative_to(self._root.path).parts)
        depth -= path.is_relative_to(self._root.path / layout.TRASH)
        if depth == _PARTS_IN_A_FOLDER_OF_ITS_OWN:
            with suppress(OSError):
                path.parent.rmdir()
        with suppress(FileNotFoundError):
            sync_dir(path.parent if path.parent.is_dir() else path.parent.parent)


class _FileClock:
    """The clock of the file system, read once from a new file and counted on from there."""

    def __init__(self, root: StoreRoot) -> None:
        self._root = root
        self._offset_s: float | None = None

    def age_s(self, stat: os.stat_result) -> float:
        if self._offset_s is None:
            self._offset_s = self._probe() - time.monotonic()
        return time.monotonic() + self._offset_s - stat.st_ctime

    def _probe(self) -> float:
        try:
            with self._root.temporary() as (fd, _):
                return os.fstat(fd).st_ctime
        except PermissionError:
            return time.time()  # who may not write can only look; the difference is of no harm


def _span(seconds: float) -> timedelta:
    """Never negative: the clocks that give files their times tick coarsely, or run backwards."""
    return timedelta(seconds=max(seconds, 0.0))


def _digest(name: str) -> Digest | None:
    return layout.digest_of(name.removeprefix(_BLOBS)) if name.startswith(_BLOBS) else None


def _lstat(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_same(one: Path, other: Path) -> bool:
    first, second = _lstat(one), _lstat(other)
    return first is not None and second is not None and os.path.samestat(first, second)
