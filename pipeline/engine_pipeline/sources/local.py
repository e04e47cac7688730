"""Source `file://`: a directory or one file on this machine.

`file:///abs/dir` is absolute, `file://dir` lies beside the spec and its lock. Symbolic links are
followed only while they stay inside.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

from engine_pipeline.sources.place import check, measure, place
from engine_pipeline.sources.rules import select_files
from engine_pipeline.sources.tally import Tally
from engine_pipeline.spec.lock import LockedFile, LockedSource
from engine_registry.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from engine_pipeline.progress import Progress
    from engine_pipeline.sources.port import Wanted

SCHEME = "file://"
_NOT_SOURCES = {".git", ".cache", "__pycache__"}


class LocalSource:
    """Files below a directory.

    Args:
        base_dir: what relative URIs are relative to.
    """

    def __init__(self, base_dir: Path) -> None:
        self._base_dir = base_dir

    def resolve(self, wanted: Wanted, progress: Progress) -> LockedSource:
        """See the port. The revision is a label: the digests pin the files."""
        root, only = self._root(wanted.uri)
        selection = select_files(
            [only] if only else _walk(root),
            name=wanted.uri,
            patterns=wanted.patterns,
            allow_code=wanted.allow_code,
            # Nobody elsewhere can move a local directory, and the lock has each file's digest.
            pinned=True,
            purpose=wanted.purpose,
        )
        paths = {path: _inside(root, path, wanted.uri) for path in selection.paths}
        for note in selection.notes:
            progress.note(note)
        progress.phase("hash", wanted.uri)
        tally = Tally(progress, sum(path.stat().st_size for path in paths.values()))
        files = []
        for name, path in paths.items():
            size, digest = measure(path, tally.add)
            files.append(LockedFile(path=name, size_bytes=size, digest=digest))
        return LockedSource(source=wanted.uri, revision=wanted.revision, files=tuple(files))

    def fetch(self, locked: LockedSource, dest_dir: Path, progress: Progress) -> None:
        """See the port."""
        root, _ = self._root(locked.source)
        progress.phase("verify", locked.source)
        tally = Tally(progress, locked.size_bytes)
        for file in locked.files:
            original = _inside(root, file.path, locked.source)
            place(original, file, dest_dir, locked.source, tally.add)

    def local_path(self, locked: LockedSource, file: LockedFile, progress: Progress) -> Path:
        """See the port: the original itself."""
        progress.phase("verify", f"{locked.source} {file.path}")
        root, _ = self._root(locked.source)
        path = _inside(root, file.path, locked.source)
        check(path, file, locked.source)
        return path

    def _root(self, uri: str) -> tuple[Path, str | None]:
        """The directory, and the name of the one file if the URI names a file."""
        path = self._base_dir / unquote(uri.removeprefix(SCHEME))
        if path.is_dir():
            return path, None
        if path.is_file():
            return path.parent, path.name
        raise NotFound(
            f"{uri}: no such directory or file ({path})",
            hint="correct the source of the spec; file://dir is relative to the spec",
            reference="source-missing",
        )


def _walk(root: Path) -> list[str]:
    found = []
    for directory, subdirectories, names in os.walk(root):
        subdirectories[:] = sorted(set(subdirectories) - _NOT_SOURCES)
        found += [(Path(directory) / name).relative_to(root).as_posix() for name in names]
    return found


def _inside(root: Path, path: str, uri: str) -> Path:
    """The file at `path`, which must be a plain file inside `root` after every link is followed."""
    full = root / path
    real = full.resolve()
    if not real.is_relative_to(root.resolve()):
        raise InvalidInput(
            f"{uri}: {path} leads out of the directory, to {real}",
            hint="copy the files instead of linking them: `cp -rL` follows links",
            reference="source-link-escapes",
        )
    if real.exists() and not real.is_file():
        raise InvalidInput(
            f"{uri}: {path} is not a plain file",
            hint="remove it, or name the files to take in model.files",
            reference="source-not-a-file",
        )
    return full
