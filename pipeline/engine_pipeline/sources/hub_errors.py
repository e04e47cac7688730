"""Turns what huggingface_hub raises into errors that say which of many causes it was.

The hub answers a missing repository, a private one and a missing token much alike; what tells them
apart is the status, the hub's own error code and whether a token was sent. Messages are rebuilt,
never passed on, because a server may echo what it was sent.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_pipeline.redact import redact
from engine_registry.errors import EngineCIError, InvalidInput, NotFound, Unavailable
from engine_registry.room import is_full

if TYPE_CHECKING:
    from collections.abc import Iterator

_AGAIN = "run the same command again; what is already downloaded is kept"
_TRANSIENT_STATUS = frozenset({408, 425, 500, 502, 503, 504})
# A second try can help with these; the caller decides how often.
TRANSIENT = frozenset(
    {"hub-timeout", "hub-unreachable", "hub-failing", "hub-rate-limited", "hub-transfer-broken"}
)
_SAID_LENGTH = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What was asked of which hub, for messages.

    Attributes:
        repo: as in the spec, `hf://org/repo`.
        page: where a person finds the repository.
        token: the token that would be sent; never shown.
    """

    repo: str
    page: str
    revision: str
    path: str = ""
    token: str | None = None

    def __str__(self) -> str:
        return f"{self.repo} at {self.revision}" + (f": {self.path}" if self.path else "")


def translate(error: BaseException, asked: Asked) -> EngineCIError:
    """The error of ours for one of huggingface_hub, httpx or the operating system.

    Anything unknown comes back as an unexpected error, with its type and redacted text.
    """
    for cause in _chain(error):
        known = _known(cause, asked)
        if known is not None:
            return known
    said = redact(str(error), asked.token)[:_SAID_LENGTH]
    return EngineCIError(
        f"{asked}: {type(error).__name__}: {said}", hint="report this as a bug, with the command"
    )


def retry_after_s(error: BaseException) -> float | None:
    """How long the hub says to wait before the next request; None if it does not say."""
    for cause in _chain(error):
        headers = getattr(getattr(cause, "response", None), "headers", {})
        value = str(headers.get("retry-after", "")).strip()
        if value.isdigit():
            return float(value)
        # ratelimit: "api";r=0;t=55 (IETF draft-ietf-httpapi-ratelimit-headers)
        for part in str(headers.get("ratelimit", "")).split(";"):
            name, _, number = part.strip().partition("=")
            if name == "t" and number.strip().isdigit():
                return float(number)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The error and what it came from: the library wraps the cause in a vaguer one."""
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__


def _known(error: BaseException, asked: Asked) -> EngineCIError | None:
    from huggingface_hub import errors as hub

    if isinstance(error, hub.OfflineModeIsEnabled):
        return _offline(asked)
    if isinstance(error, hub.HFValidationError):
        return InvalidInput(
            f"{asked.repo}: not a name the hub can have",
            hint="write the source as hf://org/repo",
            reference="hub-name-invalid",
        )
    if isinstance(error, hub.LocalEntryNotFoundError):
        return None if error.__cause__ else _offline(asked)
    if isinstance(error, hub.FileMetadataError):
        return Unavailable(
            f"{asked}: the answer is not that of a model hub",
            hint="check HF_ENDPOINT and the proxy settings, then run the same command again",
            reference="hub-foreign",
        )
    if isinstance(error, hub.HfHubHTTPError):
        return _of_status(error, asked)
    names = {kind.__name__ for kind in type(error).__mro__}
    if "TimeoutException" in names or isinstance(error, TimeoutError):
        return Unavailable(
            f"{asked}: the hub did not answer in time", hint=_AGAIN, reference="hub-timeout"
        )
    if "TransportError" in names or "NetworkError" in names:
        return Unavailable(
            f"{asked}: cannot reach the hub ({type(error).__name__})",
            hint="check the network and HF_ENDPOINT, then run the same command again",
            reference="hub-unreachable",
        )
    return _of_system(error, asked) if isinstance(error, OSError) else None


def _of_status(error: Any, asked: Asked) -> EngineCIError:
    from huggingface_hub import errors as hub

    status: int = error.response.status_code
    request = getattr(error.response, "request", None)
    token_sent = request is not None and "authorization" in request.headers
    if status == 401:
        return _bad_token(asked) if token_sent else _no_token(asked)
    if isinstance(error, hub.GatedRepoError):
        return _licence(asked) if token_sent else _no_token(asked)
    if isinstance(error, hub.RevisionNotFoundError):
        return revision_missing(asked)
    if isinstance(error, hub.RemoteEntryNotFoundError):
        return NotFound(
            f"{asked}: no such file there",
            hint="run `enginectl lock`: the repository may have changed under the same name",
            reference="hub-file-missing",
        )
    if isinstance(error, hub.RepositoryNotFoundError):
        return repo_missing(asked, token_sent=token_sent)
    if status == 403:
        return InvalidInput(
            f"{asked}: the hub forbids it to this token{_said(error, asked)}",
            hint=f"give the token read access to the repository, or see {asked.page}",
            reference="hub-forbidden",
        )
    if status == 429:
        wait = retry_after_s(error)
        when = f" in {wait:.0f} s" if wait is not None else " later"
        return Unavailable(
            f"{asked}: the hub's rate limit is reached",
            hint=f"run the same command again{when}; a token (HF_TOKEN) has a higher limit",
            reference="hub-rate-limited",
        )
    if status == 416:
        return Unavailable(
            f"{asked}: the hub refused to go on with a partial download",
            hint=_AGAIN,
            reference="hub-transfer-broken",
        )
    if status in _TRANSIENT_STATUS:
        return Unavailable(
            f"{asked}: the hub failed with status {status}", hint=_AGAIN, reference="hub-failing"
        )
    if status == 404:
        return repo_missing(asked, token_sent=token_sent)
    return Unavailable(
        f"{asked}: the hub answered with status {status}{_said(error, asked)}",
        hint="check source and revision of the spec and HF_ENDPOINT",
        reference="hub-refused",
    )


def _of_system(error: OSError, asked: Asked) -> EngineCIError:
    if is_full(error):
        return Unavailable(
            f"{asked}: no space left in the hub cache",
            hint="free space there or set HF_HOME to a larger disk, then run the command again",
            reference="disk-full",
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Unavailable(
            f"{asked}: the hub cache cannot be written: {error.strerror}: {error.filename}",
            hint="set HF_HOME to a directory that this user may write",
            reference="hub-cache-unwritable",
        )
    return Unavailable(
        f"{asked}: the download broke off", hint=_AGAIN, reference="hub-transfer-broken"
    )


def repo_missing(asked: Asked, *, token_sent: bool) -> NotFound:
    """There is no such repository, as far as this token can see."""
    unseen = "" if token_sent else ", or it is private and no token is set"
    return NotFound(
        f"{asked.repo}: no such repository{unseen}",
        hint="check the spelling of model.source; for a private one set HF_TOKEN",
        reference="hub-repo-missing",
    )


def revision_missing(asked: Asked) -> NotFound:
    """The repository is there, the revision is not; nothing else is taken in its place."""
    return NotFound(
        f"{asked.repo}: no revision {asked.revision!r}",
        hint=f"write a branch, tag or commit that {asked.page} has as the revision",
        reference="hub-revision-missing",
    )


def _no_token(asked: Asked) -> InvalidInput:
    return InvalidInput(
        f"{asked.repo}: private, gated or missing, and no token is set",
        hint="check the name; then set HF_TOKEN to a token that may read it",
        reference="hub-no-token",
    )


def _bad_token(asked: Asked) -> InvalidInput:
    return InvalidInput(
        f"{asked.repo}: the hub does not accept the token: wrong, revoked or expired",
        hint="set HF_TOKEN to a valid token, or unset it for a public model",
        reference="hub-bad-token",
    )


def _licence(asked: Asked) -> InvalidInput:
    return InvalidInput(
        f"{asked.repo}: gated, and the account of this token has no access yet",
        hint=f"accept the licence at {asked.page} with that account; some need approval",
        reference="hub-licence-not-accepted",
    )


def _offline(asked: Asked) -> Unavailable:
    return Unavailable(
        f"{asked}: not in the hub cache, and offline mode is on",
        hint="unset HF_HUB_OFFLINE, or fill the cache (HF_HOME) on a machine with network",
        reference="hub-offline",
    )


def _said(error: Any, asked: Asked) -> str:
    said = redact(" ".join(str(error.server_message or "").split()), asked.token)
    return f": {said[:_SAID_LENGTH]}" if said else ""
