"""Source `package://`: an installed Python distribution that carries weights.

Reads the distribution's list of files; never imports it, so it works for one whose dependencies are
not installed and runs none of its code.
"""

from __future__ import annotations

import base64
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from engine_pipeline.sources.place import check, measure, place
from engine_pipeline.sources.rules import is_code, is_pickle, is_weights, select_files
from engine_pipeline.sources.tally import Tally
from engine_pipeline.spec.lock import LockedFile, LockedSource
from engine_registry.errors import IntegrityError, NotFound

if TYPE_CHECKING:
    from engine_pipeline.progress import Progress
    from engine_pipeline.sources.port import Wanted
    from engine_registry.digest import Digest

SCHEME = "package://"


class PackageSource:
    """Weights inside an installed distribution; paths are relative to the directory they lie in."""

    def resolve(self, wanted: Wanted, progress: Progress) -> LockedSource:
        """See the port. The revision is the installed version; a package's code is never taken."""
        files = _files(wanted.uri, wanted.revision)
        selection = select_files(
            files,
            name=wanted.uri,
            patterns=wanted.patterns,
            purpose=wanted.purpose,
        )
        for note in selection.notes:
            progress.note(note)
        progress.phase("hash", wanted.uri)
        paths = {path: _located(files[path]) for path in selection.paths}
        tally = Tally(progress, sum(path.stat().st_size for path in paths.values()))
        locked = []
        for path, original in paths.items():
            size, digest = measure(original, tally.add)
            _check_record(files[path], digest, wanted.uri)
            locked.append(LockedFile(path=path, size_bytes=size, digest=digest))
        return LockedSource(source=wanted.uri, revision=wanted.revision, files=tuple(locked))

    def fetch(self, locked: LockedSource, dest_dir: Path, progress: Progress) -> None:
        """See the port."""
        files = _files(locked.source, locked.revision)
        progress.phase("verify", locked.source)
        tally = Tally(progress, locked.size_bytes)
        for file in locked.files:
            place(_original(files, file, locked), file, dest_dir, locked.source, tally.add)

    def local_path(self, locked: LockedSource, file: LockedFile, progress: Progress) -> Path:
        """See the port: the installed file itself."""
        progress.phase("verify", f"{locked.source} {file.path}")
        path = _original(_files(locked.source, locked.revision), file, locked)
        check(path, file, locked.source)
        return path


def _files(uri: str, version: str) -> dict[str, PackagePath]:
    """Path → file, of everything in the directory that holds the weights, code left out."""
    name = uri.removeprefix(SCHEME)
    try:
        distribution = Distribution.from_name(name)
    except PackageNotFoundError as error:
        raise NotFound(
            f"{uri}: the package {name} is not installed",
            hint=f"run `pip install --no-deps {name}=={version}` in this environment",
            reference="package-missing",
        ) from error
    if distribution.version != version:
        raise NotFound(
            f"{uri}: locked to version {version}, installed is {distribution.version}",
            hint=f"run `pip install --no-deps {name}=={version}`, or correct the revision",
            reference="package-version-missing",
        )
    listed = [
        file for file in distribution.files or () if ".." not in file.parts and not _is_meta(file)
    ]
    weights = [file for file in listed if is_weights(str(file)) or is_pickle(str(file))]
    root = _common_directory(weights)
    return {
        file.relative_to(root).as_posix(): file
        for file in listed
        if file.is_relative_to(root) and not is_code(str(file))
    }


def _is_meta(file: PackagePath) -> bool:
    return file.parts[0].endswith((".dist-info", ".data", ".egg-info"))


def _common_directory(files: list[PackagePath]) -> PurePosixPath:
    parents = [file.parent.parts for file in files]
    common: list[str] = []
    for level in zip(*parents, strict=False):
        if len(set(level)) > 1:
            break
        common.append(level[0])
    return PurePosixPath(*common)


def _located(file: PackagePath) -> Path:
    return Path(str(file.locate()))


def _original(files: dict[str, PackagePath], file: LockedFile, locked: LockedSource) -> Path:
    if file.path in files:
        return _located(files[file.path])
    raise NotFound(
        f"{locked.source}: {file.path}: locked, and not in the installed package",
        hint=f"reinstall the package at version {locked.revision}",
        reference="source-file-missing",
    )


def _check_record(file: PackagePath, digest: Digest, uri: str) -> None:
    """Compare with the digest that the installer wrote down, where it did."""
    if file.hash is None or file.hash.mode != "sha256":
        return
    padded = file.hash.value + "=" * (-len(file.hash.value) % 4)
    recorded = base64.urlsafe_b64decode(padded).hex()
    if recorded != digest.hex:
        raise IntegrityError(
            f"{uri}: {file}: the installer recorded sha256:{recorded}, found {digest}",
            hint="reinstall the package: its files were changed after installation",
            reference="package-damaged",
        )
