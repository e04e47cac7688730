"""Blobs on their way from a repository, resumed where a connection broke, and checked."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from engine_registry.digest import READ_SIZE_BYTES, Digest
from engine_registry.errors import IntegrityError
from engine_registry.oci.session import ATTEMPTS, pause_s
from engine_registry.transfer_staging import new_file

if TYPE_CHECKING:
    from pathlib import Path

    import requests

    from engine_registry.oci.session import Remote


def fetch_blob(remote: Remote, digest: Digest, size_bytes: int, path: Path) -> None:
    """Fetch a blob to a new file, going on where a connection broke, and check it.

    Raises:
        IntegrityError: another size or digest arrived.
        NotFound: it is not there.
    """
    state = hashlib.sha256()
    done, stuck = 0, 0
    # Each piece is hashed while it is written and the next one arrives.
    with new_file(path) as out, ThreadPoolExecutor(1) as beside:
        hashed = beside.submit(lambda: None)
        while done < size_bytes:
            before = done
            for data in _pieces(remote, digest, done):
                done += len(data)
                if done > size_bytes:
                    break
                hashed.result()
                hashed = beside.submit(state.update, data)
                view = memoryview(data)
                while view:
                    view = view[os.write(out, view) :]
            stuck = 0 if done > before else stuck + 1
            if stuck == ATTEMPTS or done > size_bytes:
                break
            if done < size_bytes:
                remote.sleep(pause_s(stuck))
        hashed.result()
    found = Digest(state.hexdigest())
    if done != size_bytes or found != digest:
        raise IntegrityError(
            f"blob {digest}: {remote.ref.host} sent {done:,} bytes with digest {found}, want "
            f"{size_bytes:,} bytes",
            hint="the copy in that registry is damaged, or something changes bytes on the way",
            reference="blob-damaged",
        )


def _pieces(remote: Remote, digest: Digest, offset: int) -> _Pieces:
    headers = {"Range": f"bytes={offset}-"} if offset else {}
    answer = remote.request(
        "GET", f"blobs/{digest}", expect=(200, 206), headers=headers, stream=True
    )
    pieces = _Pieces(answer)
    if offset and answer.status_code == 200:  # it knows no ranges
        pieces.drop(offset)
    return pieces


class _Pieces:
    """The body of an answer, piece by piece, to wherever it breaks."""

    def __init__(self, answer: requests.Response) -> None:
        self._answer = answer
        self._drop = 0

    def drop(self, count: int) -> None:
        """Leave out so many bytes at the start."""
        self._drop = count

    def __iter__(self) -> _Pieces:
        return self

    def __next__(self) -> bytes:
        from urllib3.exceptions import HTTPError

        while True:
            try:
                data = self._answer.raw.read(READ_SIZE_BYTES)
            except (HTTPError, OSError):
                data = b""
            if not data:
                self._answer.close()
                raise StopIteration
            dropped = min(self._drop, len(data))
            self._drop -= dropped
            if dropped < len(data):
                return bytes(data[dropped:])
