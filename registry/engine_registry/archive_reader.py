"""An archive from an unknown hand, as an origin of one cargo.

All headers are read and judged first, and so are all documents and manifests: an archive holds what
its engine needs, byte for byte, or it is refused before anything of it is stored. Blobs are then
read from where they lie in the file.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat as modes
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from engine_registry import layout
from engine_registry.archive_header import BLOCK, END, RECORD, damaged, padded, read_header
from engine_registry.digest import READ_SIZE_BYTES, Digest
from engine_registry.documents import unseal
from engine_registry.errors import InvalidInput, NotFound, Unavailable
from engine_registry.record import FORMAT, RegistryInfo
from engine_registry.refs import ProductRef, ReleaseRef
from engine_registry.transfer_cargo import (
    MAX_DOCUMENT_BYTES,
    MAX_MANIFEST_BYTES,
    Cargo,
    read_cargo,
)
from engine_registry.transfer_origin import check_arrived
from engine_registry.transfer_staging import new_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# More than any engine needs: 4,096 files, and 10,000 things attached of three blobs and a link.
MAX_MEMBERS = 50_000
# All documents together; they are read into memory.
MAX_DOCUMENTS_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Member:
    """Where a file's bytes lie in the archive."""

    offset: int
    size_bytes: int


class ArchiveOrigin:
    """See `Origin`. Safe to use from many threads.

    Args:
        fd: the open archive, a regular file.
        size_bytes: its length.

    Raises:
        IntegrityError: some header is not what `enginectl export --archive` writes.
    """

    def __init__(self, fd: int, size_bytes: int) -> None:
        self._fd = fd
        self._members = _members(fd, size_bytes)
        self._folders: dict[str, list[str]] = {}
        for name in self._members:
            folder, _, child = name.rpartition("/")
            self._folders.setdefault(folder, []).append(child)

    def cargo(self) -> Cargo:
        """The one engine or release that the archive holds, with nothing missing or to spare.

        Raises:
            IntegrityError: it holds anything else.
        """
        self._check_info()
        try:
            cargo = read_cargo(self, self._engine(), self._release())
        except NotFound as error:
            raise damaged(f"archive: {error.message}") from error
        needed = {layout.blob(part.digest): part.size_bytes for part in cargo.files}
        needed |= {layout.blob(part.digest): part.size_bytes for part in cargo.manifests}
        needed |= {document.name: len(document.data) for document in cargo.documents}
        held = {name: member.size_bytes for name, member in self._members.items()}
        held.pop(layout.REGISTRY)
        for name in sorted({*needed, *held}):
            if name not in needed:
                raise damaged(f"archive: holds {name}, which its engine does not need")
            if name not in held:
                raise damaged(f"archive: lacks {name}, which its engine needs")
            if needed[name] != held[name]:
                raise damaged(
                    f"archive: {name} has {held[name]:,} bytes, want {needed[name]:,} bytes"
                )
        return cargo

    def read(self, name: str) -> bytes:
        """See `Origin.read`."""
        member = self._members.get(name)
        if member is None:
            raise NotFound(
                f"{name}: not in the archive",
                hint="write it again with `enginectl export RELEASE --archive FILE`",
                reference="archive-incomplete",
            )
        return _read_at(self._fd, member.offset, min(member.size_bytes, MAX_DOCUMENT_BYTES + 1))

    def children(self, folder: str) -> list[str]:
        """See `Origin.children`."""
        return self._folders.get(folder, [])

    def open(self, digest: Digest) -> BinaryIO:
        """See `Origin.open`: for blobs that fit a manifest's limit."""
        member = self._blob(digest)
        data = _read_at(self._fd, member.offset, min(member.size_bytes, MAX_MANIFEST_BYTES + 1))
        return io.BytesIO(data)

    def file(self, digest: Digest) -> Path | None:  # noqa: ARG002 none is a file of its own
        """See `Origin.file`."""
        return None

    def fetch(self, digest: Digest, size_bytes: int, path: Path) -> None:
        """See `Origin.fetch`."""
        member = self._blob(digest)
        state = hashlib.sha256()
        done = 0
        with new_file(path) as out:
            while done < member.size_bytes:
                want = min(READ_SIZE_BYTES, member.size_bytes - done)
                data = memoryview(_read_at(self._fd, member.offset + done, want))
                state.update(data)
                done += len(data)
                while data:
                    data = data[os.write(out, data) :]
        check_arrived(digest, size_bytes, Digest(state.hexdigest()), done)

    def _blob(self, digest: Digest) -> Member:
        member = self._members.get(layout.blob(digest))
        if member is None:
            raise NotFound(
                f"blob {digest}: not in the archive",
                hint="write it again with `enginectl export RELEASE --archive FILE`",
                reference="archive-incomplete",
            )
        return member

    def _check_info(self) -> None:
        if layout.REGISTRY not in self._members:
            raise damaged(f"archive: holds no {layout.REGISTRY}")
        info, _ = unseal(self.read(layout.REGISTRY), RegistryInfo, layout.REGISTRY)
        if info.format != FORMAT:
            raise damaged(f"archive: format is {info.format!r}, want {FORMAT!r}")

    def _engine(self) -> Digest:
        folders = {name.split("/")[2] for name in self._members if name.startswith(layout.RECORDS)}
        if len(folders) != 1:
            raise damaged(f"archive: holds {len(folders)} engines, want one")
        return Digest(folders.pop())

    def _release(self) -> ReleaseRef | None:
        names = [name for name in self._members if name.startswith(f"{layout.RELEASES}/")]
        if len(names) > 1:
            raise damaged(f"archive: holds {len(names)} releases, want at most one")
        for name in names:
            _, model, target, child = name.split("/")
            return ReleaseRef(ProductRef(model, target), layout.number_of(child) or 0)
        return None


@contextmanager
def opened(path: Path) -> Iterator[tuple[int, int]]:
    """An archive's descriptor and length.

    Raises:
        InvalidInput: it cannot be read, or is no regular file.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InvalidInput(
            f"cannot read {path}: {error.strerror}",
            hint="name an archive that `enginectl export RELEASE --archive FILE` wrote",
            reference="archive-unreadable",
        ) from error
    try:
        stat = os.fstat(fd)
        if not modes.S_ISREG(stat.st_mode):
            raise InvalidInput(
                f"cannot read {path}: not a regular file",
                hint="name an archive that `enginectl export RELEASE --archive FILE` wrote",
                reference="archive-unreadable",
            )
        yield fd, stat.st_size
    finally:
        os.close(fd)


def _members(fd: int, size_bytes: int) -> dict[str, Member]:
    """Every file of the archive, in order of name; headers and padding are judged here."""
    found: dict[str, Member] = {}
    offset, documents_bytes, last = 0, 0, ""
    while True:
        if offset + len(END) > size_bytes:
            raise damaged(f"archive: ends at byte {size_bytes:,}, within a file: truncated")
        block = _read_at(fd, offset, BLOCK)
        if not any(block):
            break
        name, length = read_header(block, offset)
        if name <= last:
            raise damaged(f"archive: {name} comes after {last}: twice, or out of order")
        end = offset + BLOCK + padded(length)
        if end > size_bytes:
            raise damaged(f"archive: {name} has {length:,} bytes, more than there are: truncated")
        if not name.startswith(f"{layout.BLOBS}/"):
            documents_bytes += length
        if len(found) == MAX_MEMBERS or documents_bytes > MAX_DOCUMENTS_BYTES:
            raise damaged(
                f"archive: more than {MAX_MEMBERS:,} files, or {MAX_DOCUMENTS_BYTES:,} bytes of "
                "documents"
            )
        found[name] = Member(offset + BLOCK, length)
        if any(_read_at(fd, offset + BLOCK + length, end - offset - BLOCK - length)):
            raise damaged(f"archive: {name} is followed by bytes that belong to nothing")
        offset, last = end, name
    _check_end(fd, offset, size_bytes)
    return found


def _check_end(fd: int, offset: int, size_bytes: int) -> None:
    want = padded(offset + len(END), RECORD)
    rest = _read_at(fd, offset, min(size_bytes, want) - offset)
    if size_bytes != want or any(rest):
        raise damaged(f"archive: {size_bytes:,} bytes long, want {want:,} with nothing at the end")


def _read_at(fd: int, offset: int, count: int) -> bytes:
    parts = []
    try:
        while count:
            data = os.pread(fd, count, offset)
            if not data:
                raise damaged("archive: became shorter while it was read")
            parts.append(data)
            offset += len(data)
            count -= len(data)
    except OSError as error:
        raise Unavailable(
            f"cannot read the archive: {error.strerror or error}",
            hint="check the medium it lies on, then run the same command again",
            reference="archive-read-failed",
        ) from error
    return b"".join(parts)
