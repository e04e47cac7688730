"""Source `hf://`: a repository of a Hugging Face hub, or of anything that speaks its protocol.

HF_TOKEN, HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE have their usual meaning. A branch or tag is
resolved once, when locking, and nothing is ever asked of a default branch. Files go through the
hub's own cache, so that other tools share them, but what is in there is not believed: each file is
checked, and a bad one is removed and fetched once more.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from engine_pipeline.sources.hub_client import HubClient, Repo
from engine_pipeline.sources.place import check, measure, place
from engine_pipeline.sources.rules import COMMIT, select_files
from engine_pipeline.sources.tally import Tally
from engine_pipeline.spec.lock import LockedFile, LockedSource
from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from engine_pipeline.progress import Progress
    from engine_pipeline.sources.hub_client import RemoteFile
    from engine_pipeline.sources.port import Wanted

# Enough to fill a line with small files; large ones saturate it alone.
_DOWNLOADS_AT_ONCE = 4


class HubSource:
    """Files of a hub repository.

    Args:
        client: how to talk to the hub; None takes everything from the environment.
    """

    def __init__(self, client: HubClient | None = None) -> None:
        self._client = client or HubClient()

    def resolve(self, wanted: Wanted, progress: Progress) -> LockedSource:
        """See the port. Large files are pinned by what the hub states, small ones by download."""
        repo = Repo.parse(wanted.uri)
        progress.phase("list", f"{wanted.uri} {wanted.revision}")
        listing = self._client.listing(repo, wanted.revision)
        _check_commit(listing.commit, wanted)
        remote = {file.path: file for file in listing.files}
        selection = select_files(
            remote,
            name=wanted.uri,
            patterns=wanted.patterns,
            allow_code=wanted.allow_code,
            pinned=COMMIT.fullmatch(wanted.revision) is not None,
            purpose=wanted.purpose,
        )
        for note in selection.notes:
            progress.note(note)
        taken = [remote[path] for path in selection.paths]
        small = [file for file in taken if file.sha256 is None]
        if small:
            self._download(repo, listing.commit, small, progress)
        else:
            # The list is public even where the files are not: find that out now, not at the build.
            self._client.probe(repo, listing.commit, taken[0].path)
        files = [self._locked(repo, listing.commit, file) for file in taken]
        return LockedSource(source=wanted.uri, revision=listing.commit, files=tuple(files))

    def fetch(self, locked: LockedSource, dest_dir: Path, progress: Progress) -> None:
        """See the port."""
        repo = Repo.parse(locked.source)
        self._download(repo, locked.revision, locked.files, progress)
        progress.phase("verify", locked.source)
        tally = Tally(progress, locked.size_bytes)
        for file in locked.files:

            def put(cached: Path, file: LockedFile = file) -> None:
                place(cached, file, dest_dir, locked.source, tally.add)

            self._checked(repo, locked.revision, file.path, put)

    def local_path(self, locked: LockedSource, file: LockedFile, progress: Progress) -> Path:
        """See the port: the file in the hub's cache."""
        repo = Repo.parse(locked.source)
        self._download(repo, locked.revision, [file], progress)
        progress.phase("verify", f"{locked.source} {file.path}")
        return self._checked(
            repo, locked.revision, file.path, lambda cached: check(cached, file, locked.source)
        )

    def _download(
        self,
        repo: Repo,
        commit: str,
        files: Sequence[LockedFile] | Sequence[RemoteFile],
        progress: Progress,
    ) -> None:
        """Get into the cache whatever is not there yet."""

        def missing() -> list[LockedFile | RemoteFile]:
            return [f for f in files if self._client.cached(repo, commit, f.path) is None]

        if not missing():
            return
        progress.phase("download", f"{repo} {commit}")
        with self._client.turn(repo, commit, progress):
            needed = missing()
            tally = Tally(progress, sum(file.size_bytes or 0 for file in needed))
            with ThreadPoolExecutor(_DOWNLOADS_AT_ONCE) as pool:
                downloads = [
                    pool.submit(self._client.download, repo, commit, file.path, tally.add)
                    for file in needed
                ]
                try:
                    for download in as_completed(downloads):
                        download.result()
                finally:
                    pool.shutdown(cancel_futures=True)

    def _checked(self, repo: Repo, commit: str, path: str, verify: Callable[[Path], None]) -> Path:
        """The cached file once `verify` accepts it; a bad one is removed and fetched again."""
        cached = self._client.cached(repo, commit, path)
        if cached is not None:
            try:
                verify(cached)
            except IntegrityError:
                self._client.discard(cached)
            else:
                return cached
        cached = self._client.download(repo, commit, path, lambda _: None)
        try:
            verify(cached)
        except IntegrityError as error:
            self._client.discard(cached)
            raise IntegrityError(
                f"{error.message}; the bad file was removed from the cache",
                hint="run the same command again; if it repeats, the hub or a proxy is at fault",
                reference="hub-wrong-bytes",
            ) from error
        return cached

    def _locked(self, repo: Repo, commit: str, file: RemoteFile) -> LockedFile:
        if file.sha256 is not None and file.size_bytes is not None:
            return LockedFile(
                path=file.path, size_bytes=file.size_bytes, digest=Digest(file.sha256)
            )
        cached = self._checked(
            repo, commit, file.path, lambda path: _check_blob(path, file, str(repo))
        )
        size, digest = measure(cached, lambda _: None)
        return LockedFile(path=file.path, size_bytes=size, digest=digest)


def _check_commit(commit: str, wanted: Wanted) -> None:
    exact = COMMIT.fullmatch(wanted.revision) is not None
    if COMMIT.fullmatch(commit) and (not exact or commit == wanted.revision):
        return
    raise IntegrityError(
        f"{wanted.uri}: asked for {wanted.revision}, the hub answered with commit {commit!r}",
        hint="check HF_ENDPOINT: what answers there is no hub, or not a faithful one",
        reference="hub-wrong-commit",
    )


def _check_blob(path: Path, file: RemoteFile, name: str) -> None:
    """Compare with the digest under which git knows the content at that commit."""
    if file.blob_id is None:
        return
    data = path.read_bytes()
    # Git's name of a blob is SHA-1 by definition; the lock gets SHA-256.
    found = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    if found != file.blob_id:
        raise IntegrityError(
            f"{name}: {file.path}: git blob {file.blob_id}, found {found}",
            hint="run the same command again",
            reference="hub-wrong-bytes",
        )
