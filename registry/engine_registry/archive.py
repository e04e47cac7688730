"""A release in one file, for sites that no network reaches.

The file is a plain tar of a registry (docs/registry-format.md) that holds one engine, at most one
release of it, and all that belongs to them. Unpacked it is a registry, and `sha256sum` checks it.
The same content gives the same bytes.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from engine_registry import layout
from engine_registry.archive_header import END, RECORD, header, padded
from engine_registry.archive_reader import ArchiveOrigin, opened
from engine_registry.digest import READ_SIZE_BYTES, Digest
from engine_registry.documents import seal
from engine_registry.errors import InvalidInput, Unavailable
from engine_registry.partial import partial_file
from engine_registry.record import RegistryInfo
from engine_registry.refs import ReleaseRef
from engine_registry.room import disk_full, is_full
from engine_registry.transfer import bring
from engine_registry.transfer_cargo import Cargo, Part, read_cargo
from engine_registry.transfer_origin import StoreOrigin, check_arrived

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from engine_registry.record import Actor
    from engine_registry.registry import Registry
    from engine_registry.transfer import Arrival
    from engine_registry.transfer_cargo import Origin


def _silent(_done: int, _total: int) -> None:
    pass


def write_archive(
    source: Registry,
    what: Digest | ReleaseRef,
    path: Path,
    progress: Callable[[int, int], None] = _silent,
) -> tuple[Cargo, Digest]:
    """Write an engine, or a release with its engine, to `path`, which must not exist.

    Every blob is checked as it is written; the file is whole or absent afterwards.

    Returns:
        What is in it, and the digest of the file itself.

    Raises:
        InvalidInput: the file exists.
        NotFound, IntegrityError: what belongs to it is not whole.
        Unavailable: no room (`disk-full`), no right.
    """
    origin = StoreOrigin(source.stores)
    if isinstance(what, ReleaseRef):
        release = source.releases.release(what)
        cargo = read_cargo(origin, release.content.engine, what)
    else:
        cargo = read_cargo(origin, what)
    with _new(path, cargo.size_bytes) as stream:
        digest = _Writer(stream, origin, cargo.size_bytes, progress).write(cargo)
    return cargo, digest


def read_archive(path: Path) -> tuple[Cargo, int]:
    """What an archive holds, and its length; the bytes of its blobs are not looked at.

    Raises:
        IntegrityError: it is no whole archive of one engine.
    """
    with opened(path) as (fd, size_bytes):
        return ArchiveOrigin(fd, size_bytes).cargo(), size_bytes


def import_archive(
    path: Path,
    to: Registry,
    *,
    actor: Actor,
    renumber: bool = False,
    progress: Callable[[int, int], None] = _silent,
) -> Arrival:
    """Bring what an archive holds into a registry; see `transfer.bring`.

    The archive may be hostile: nothing of it becomes visible unless all of it is right.

    Raises:
        IntegrityError: it is no whole archive, or some bytes are wrong.
        Conflict: as `transfer.bring`.
    """
    with opened(path) as (fd, size_bytes):
        origin = ArchiveOrigin(fd, size_bytes)
        cargo = origin.cargo()
        return bring(cargo, origin, to, actor=actor, renumber=renumber, progress=progress)


class _Writer:
    """Writes one archive and hashes it."""

    def __init__(
        self, stream: BinaryIO, origin: Origin, total: int, progress: Callable[[int, int], None]
    ) -> None:
        self._stream = stream
        self._origin = origin
        self._total = total
        self._progress = progress
        self._state = hashlib.sha256()
        self._length = 0
        self._done = 0

    def write(self, cargo: Cargo) -> Digest:
        documents = {document.name: document.data for document in cargo.documents}
        documents[layout.REGISTRY] = registry_info(cargo)
        blobs = {layout.blob(part.digest): part for part in (*cargo.files, *cargo.manifests)}
        for name in sorted({*documents, *blobs}):
            if name in documents:
                self._put(header(name, len(documents[name])) + documents[name])
            else:
                self._blob(name, blobs[name])
            self._put(bytes(padded(self._length) - self._length))
        self._put(END)
        self._put(bytes(padded(self._length, RECORD) - self._length))
        return Digest(self._state.hexdigest())

    def _blob(self, name: str, part: Part) -> None:
        self._put(header(name, part.size_bytes))
        state = hashlib.sha256()
        count = 0
        with self._origin.open(part.digest) as stream:
            while data := stream.read(READ_SIZE_BYTES):
                count += len(data)
                if count > part.size_bytes:
                    break
                state.update(data)
                self._put(data)
                self._done += len(data)
                self._progress(self._done, self._total)
        check_arrived(part.digest, part.size_bytes, Digest(state.hexdigest()), count)

    def _put(self, data: bytes) -> None:
        self._state.update(data)
        self._stream.write(data)
        self._length += len(data)


def registry_info(cargo: Cargo) -> bytes:
    """The `registry.json` of an archive: dated by what it holds, so that it is always the same."""
    at = cargo.release[1].created_at if cargo.release else None
    first = min(record.built_at for _, record, _ in cargo.records)
    return seal(RegistryInfo(created_at=at or first))


@contextmanager
def _new(path: Path, need_bytes: int) -> Iterator[BinaryIO]:
    """A hidden sibling that gets the name `path` when the block ends, or is removed."""
    if path.exists() or path.is_symlink():
        raise InvalidInput(
            f"cannot write {path}: it exists",
            hint="name a file that does not exist yet",
            reference="path-exists",
        )
    try:
        with partial_file(path) as partial:
            with partial.open("wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            os.link(partial, path)
    except FileExistsError as error:
        raise InvalidInput(
            f"cannot write {path}: it exists",
            hint="name a file that does not exist yet",
            reference="path-exists",
        ) from error
    except OSError as error:
        if is_full(error):
            raise disk_full(path, need_bytes) from error
        raise Unavailable(
            f"cannot write {path}: {error.strerror or error}",
            hint="check that its directory is there and writable, then run the command again",
            reference="directory-not-writable",
        ) from error
