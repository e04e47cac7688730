"""Talks to a model hub through huggingface_hub: list, download one file, look into the cache.

Owns retries, time limits and the translation of errors. What is asked for, and whether the bytes
are right, is `hub`'s business. The library loads when first used.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from engine_pipeline.redact import redact
from engine_pipeline.sources import hub_cache
from engine_pipeline.sources.hub_errors import (
    TRANSIENT,
    Asked,
    retry_after_s,
    revision_missing,
    translate,
)
from engine_pipeline.sources.hub_meter import Meter
from engine_registry.errors import EngineCIError, InvalidInput, NotFound

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import ModuleType

    from engine_pipeline.progress import Progress

T = TypeVar("T")

SCHEME = "hf://"
_DATASETS = "datasets/"
ATTEMPTS = 4
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
# Beyond this a CI job had better stop and say so than hold its runner.
LONGEST_RETRY_AFTER_S = 120.0
# Listing a repository of some thousand files takes the hub a few seconds.
LIST_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Repo:
    """A repository: `org/name`, and `model` or `dataset`."""

    id: str
    type: str

    @classmethod
    def parse(cls, uri: str) -> Repo:
        """Read `hf://org/name` or `hf://datasets/org/name`; raises InvalidInput."""
        name = uri.removeprefix(SCHEME)
        kind = "dataset" if name.startswith(_DATASETS) else "model"
        name = name.removeprefix(_DATASETS)
        if name.count("/") != 1:
            raise InvalidInput(
                f"{uri}: want hf://org/name or hf://datasets/org/name",
                hint="look the full name up on the hub: organisation, slash, repository",
                reference="hub-name-invalid",
            )
        return cls(id=name, type=kind)

    def __str__(self) -> str:
        return f"{SCHEME}{_DATASETS if self.type == 'dataset' else ''}{self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteFile:
    """What the hub says of a file.

    Attributes:
        sha256: of the content, for files kept in large-file storage; None for the others.
        blob_id: git's own digest of the content, for files kept in git; None for the others.
    """

    path: str
    size_bytes: int | None
    sha256: str | None
    blob_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """A revision as the hub knows it now."""

    commit: str
    files: tuple[RemoteFile, ...]


class HubClient:
    """One hub, as one user.

    Args:
        endpoint, cache_dir, token: None takes them from the environment, as every tool of the hub.
        attempts: tries of each request before giving up.
        timeout_s: for listing; downloads follow HF_HUB_DOWNLOAD_TIMEOUT.
        sleep: waits between tries.
    """

    def __init__(
        self,
        *,
        endpoint: str | None = None,
        cache_dir: Path | None = None,
        token: str | None = None,
        attempts: int = ATTEMPTS,
        timeout_s: float = LIST_TIMEOUT_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._endpoint = endpoint
        self._cache_dir = cache_dir
        self._token = token
        self._attempts = attempts
        self._timeout_s = timeout_s
        self._sleep = sleep

    def listing(self, repo: Repo, revision: str) -> Listing:
        """The commit that `revision` is at, and all its files, from one answer."""
        asked = self._asked(repo, revision)
        try:
            info = self._tried(lambda: self._info(repo, revision), asked)
        except NotFound as missing:
            # Not every hub says which of the two is missing.
            if missing.name == "hub-repo-missing" and self._exists(repo):
                raise revision_missing(asked) from None
            raise
        files = [
            RemoteFile(
                path=item.rfilename,
                size_bytes=item.size,
                sha256=item.lfs.sha256 if item.lfs else None,
                blob_id=None if item.lfs else item.blob_id,
            )
            for item in info.siblings or ()
        ]
        return Listing(commit=str(info.sha), files=tuple(files))

    def probe(self, repo: Repo, commit: str, path: str) -> None:
        """Ask for the head of a file: raises what downloading it would, and costs nothing."""
        url = _library().hf_hub_url(
            repo.id, path, repo_type=repo.type, revision=commit, endpoint=self._endpoint
        )
        self._tried(
            lambda: _library().get_hf_file_metadata(
                url, token=self._token, timeout=self._timeout_s, endpoint=self._endpoint
            ),
            self._asked(repo, commit, path),
        )

    def cached(self, repo: Repo, commit: str, path: str) -> Path | None:
        """Where the cache has the file; unchecked."""
        found = _library().try_to_load_from_cache(
            repo.id, path, cache_dir=self._cache(), revision=commit, repo_type=repo.type
        )
        return Path(found) if isinstance(found, str) else None

    def download(self, repo: Repo, commit: str, path: str, tick: Callable[[int], None]) -> Path:
        """Get the file into the cache, from the beginning after a broken try; unchecked.

        Args:
            repo: the repository.
            commit: 40 hex digits.
            path: the file.
            tick: told how many bytes came; negative for what a broken try had counted.
        """

        def once() -> Path:
            meter = Meter(tick)
            try:
                found = _library().hf_hub_download(
                    repo.id,
                    path,
                    repo_type=repo.type,
                    revision=commit,
                    cache_dir=self._cache(),
                    endpoint=self._endpoint,
                    token=self._token,
                    tqdm_class=meter.bar(),
                )
            except BaseException:
                meter.undo()
                raise
            return Path(found)

        return self._tried(once, self._asked(repo, commit, path))

    def discard(self, cached: Path) -> None:
        """Remove a bad file from the cache: its name and the bytes behind it."""
        hub_cache.discard(cached, self._cache())

    def turn(self, repo: Repo, commit: str, progress: Progress) -> AbstractContextManager[None]:
        """One process at a time downloads a revision; the others wait and find it cached."""
        name = f"{repo.type}--{repo.id.replace('/', '--')}--{commit}"
        return hub_cache.turn(self._cache(), name, progress)

    def _info(self, repo: Repo, revision: str | None) -> Any:
        api = _library().HfApi(endpoint=self._endpoint, token=self._token)
        return api.repo_info(
            repo.id,
            repo_type=repo.type,
            revision=revision,
            files_metadata=revision is not None,
            timeout=self._timeout_s,
        )

    def _exists(self, repo: Repo) -> bool:
        with suppress(Exception):
            self._info(repo, None)
            return True
        return False

    def _tried(self, call: Callable[[], T], asked: Asked) -> T:
        """Call until it succeeds, fails for good or has been tried often enough."""
        for attempt in range(1, self._attempts + 1):
            try:
                return call()
            except EngineCIError:
                raise
            except Exception as error:
                ours = translate(error, asked)
                # The library has tried again by itself before it raises this one.
                tried_out = type(error).__name__ == "LocalEntryNotFoundError"
                wait = retry_after_s(error)
                if (
                    ours.name not in TRANSIENT
                    or tried_out
                    or attempt == self._attempts
                    or (wait or 0) > LONGEST_RETRY_AFTER_S
                ):
                    raise ours from None
            backoff = min(FIRST_WAIT_S * 2 ** (attempt - 1), LONGEST_WAIT_S)
            self._sleep(max(backoff, wait or 0))
        raise AssertionError("a HubClient makes at least one attempt")

    def _asked(self, repo: Repo, revision: str, path: str = "") -> Asked:
        base = redact(self._endpoint or _library().constants.ENDPOINT)
        prefix = _DATASETS if repo.type == "dataset" else ""
        return Asked(
            repo=str(repo),
            page=f"{base}/{prefix}{repo.id}",
            revision=revision,
            path=path,
            token=self._token or _library().get_token(),
        )

    def _cache(self) -> Path:
        return self._cache_dir or Path(_library().constants.HF_HUB_CACHE)


@cache
def _library() -> ModuleType:
    # A build asks the hub for what it needs and nothing else; a user's own setting wins.
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    import huggingface_hub
    from huggingface_hub.utils import logging as library_logging

    # Asking for the logger is what gives it its handlers.
    for handler in library_logging.get_logger("huggingface_hub").handlers:
        handler.addFilter(_redacted)
    return huggingface_hub


def _redacted(record: logging.LogRecord) -> bool:
    record.msg, record.args = redact(record.getMessage()), ()
    return True
