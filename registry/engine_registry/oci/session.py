"""Requests to one repository of an OCI registry: logins, patience and errors in one place.

Tokens go to the host that asked for them and nowhere else: `requests` drops them when a registry
sends us on to a store of its own, and addresses that a registry names for uploads get none unless
they are on the same host. Certificates and proxies are those of the environment.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit

from engine_registry.cause import cause_of
from engine_registry.errors import EngineCIError, InvalidInput, NotFound, Unavailable
from engine_registry.oci.challenge import read_challenge
from engine_registry.oci.credentials import Credentials, docker_credentials

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import requests

    from engine_registry.oci.challenge import Challenge
    from engine_registry.oci.reference import OciRef

_LOG = logging.getLogger(__name__)

ATTEMPTS = 6
_FIRST_PAUSE_S = 0.5
_LONGEST_PAUSE_S = 30.0
_TIMEOUT_S = (10.0, 120.0)  # to connect; between two bytes
_MAX_ERROR_BYTES = 8192
_CLIENT = "enginectl"


@dataclass(slots=True)
class Remote:
    """One repository.

    Attributes:
        ref: its address.
        plain_http: talk without TLS; always so with this very machine.
        credentials: gives the login of a host.
        sleep: waits between two tries, in seconds.
    """

    ref: OciRef
    plain_http: bool = False
    credentials: Callable[[str], Credentials | None] = docker_credentials
    sleep: Callable[[float], None] = time.sleep
    mount_from: tuple[str, ...] = ()
    _local: threading.local = field(default_factory=threading.local, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    _authorization: str | None = field(default=None, repr=False)

    @property
    def base(self) -> str:
        """The URL of the repository."""
        return f"{self._scheme}://{self.ref.server}/v2/{self.ref.repository}/"

    @property
    def _scheme(self) -> str:
        return "http" if self.plain_http or self.ref.is_local else "https"

    def request(
        self,
        method: str,
        where: str,
        *,
        expect: tuple[int, ...],
        headers: dict[str, str] | None = None,
        body: Callable[[], Any] | None = None,
        stream: bool = False,
        resumed: bool = False,
    ) -> requests.Response:
        """The answer to one request, if its status is expected.

        Args:
            method: of HTTP.
            where: a URL, absolute or below the repository.
            expect: statuses that are answers; anything else is an error.
            headers: besides our own.
            body: gives the body anew for each try.
            stream: leave the body of the answer unread.
            resumed: leave a broken connection to the caller, who goes on where it broke.

        Raises:
            NotFound, Unavailable, InvalidInput: the registry's refusal, after some patience.
        """
        url = urljoin(self.base, where)
        asked = False
        last: EngineCIError | None = None
        for attempt in range(ATTEMPTS):
            answer, last = self._try(method, url, headers or {}, body, stream=stream)
            if answer is not None and answer.status_code in expect:
                return answer
            wait_s = pause_s(attempt)
            if answer is not None:
                if answer.status_code == 401 and not asked:
                    asked = True
                    if self._log_in(answer):
                        answer.close()
                        continue
                last = self._refusal(method, answer)
                told_s = _retry_after_s(answer)
                answer.close()
                if answer.status_code != 429 and answer.status_code < 500:
                    raise last
                wait_s = min(max(wait_s, told_s), 10 * _LONGEST_PAUSE_S)
            if (resumed and answer is None) or attempt == ATTEMPTS - 1:
                break
            _LOG.info("%s: trying again in %.1f s", self.ref.host, wait_s)
            self.sleep(wait_s)
        raise last or self._unreachable("no answer")

    def _try(
        self,
        method: str,
        url: str,
        headers: dict[str, str],
        body: Callable[[], Any] | None,
        *,
        stream: bool,
    ) -> tuple[requests.Response | None, EngineCIError | None]:
        requests = _library()
        sent = {"User-Agent": _CLIENT, "Accept-Encoding": "identity", **headers}
        same_host = urlsplit(url).netloc == self.ref.server
        if self._authorization and same_host:
            sent["Authorization"] = self._authorization
        try:
            return self._session().request(
                method,
                url,
                headers=sent,
                data=body() if body else None,
                stream=stream,
                timeout=_TIMEOUT_S,
            ), None
        except requests.exceptions.SSLError:
            raise self._unreachable("its certificate is not trusted, or it speaks no TLS") from None
        except (requests.exceptions.RequestException, OSError) as error:
            return None, self._unreachable(cause_of(error))

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            requests = _library()
            session = requests.Session()
            # A login comes from Docker's configuration and goes where we say, not from ~/.netrc.
            session.auth = _no_auth
            self._local.session = session
        return session

    def _log_in(self, answer: requests.Response) -> bool:
        """Answer a challenge; False if there is nothing to answer it with."""
        challenge = read_challenge(answer.headers.get("WWW-Authenticate", ""))
        if challenge is None or urlsplit(answer.url).netloc != self.ref.server:
            return False
        login = self.credentials(self.ref.host)
        with self._lock:
            if challenge.scheme == "basic":
                if login is None or login.identity_token:
                    return False
                self._authorization = f"Basic {_basic(login)}"
                return True
            self._authorization = f"Bearer {self._token(challenge, login)}"
            return True

    def _token(self, challenge: Challenge, login: Credentials | None) -> str:
        """Fetch a token for pulls and pushes here and pulls from where blobs are mounted from."""
        import requests

        realm = challenge.parameters["realm"]
        if urlsplit(realm).scheme != "https" and self._scheme == "https":
            raise Unavailable(
                f"registry {self.ref.host}: wants the login sent to an address without TLS",
                hint="use --plain-http only on a network that you trust",
                reference="oci-token-refused",
            )
        scopes = [challenge.parameters.get("scope", f"repository:{self.ref.repository}:pull")]
        scopes += [f"repository:{name}:pull" for name in self.mount_from]
        fields = {"service": challenge.parameters.get("service", ""), "scope": scopes}
        try:
            if login is not None and login.identity_token:
                form = {
                    **fields,
                    "scope": " ".join(scopes),
                    "grant_type": "refresh_token",
                    "client_id": _CLIENT,
                    "refresh_token": login.identity_token,
                }
                answer = self._session().post(
                    realm, data=form, timeout=_TIMEOUT_S, allow_redirects=False
                )
            else:
                headers = {"Authorization": f"Basic {_basic(login)}"} if login else {}
                answer = self._session().get(
                    realm, params=fields, headers=headers, timeout=_TIMEOUT_S, allow_redirects=False
                )
            said = answer.json() if answer.status_code == 200 else {}
        except (requests.exceptions.RequestException, ValueError) as error:
            raise self._unreachable(f"its token service: {cause_of(error)}") from None
        if answer.status_code == 429 or answer.status_code >= 500:
            raise self._unreachable(f"its token service answered {answer.status_code}")
        token = said.get("token") or said.get("access_token") if isinstance(said, dict) else None
        if not isinstance(token, str) or not token.isprintable():
            raise self._denied(f"its token service answered {answer.status_code}")
        return token

    def _refusal(self, method: str, answer: requests.Response) -> EngineCIError:
        status = answer.status_code
        said = _said(answer)
        if status in {401, 403}:
            return self._denied(f"{method} answered {status}{said}")
        if status == 404:
            return NotFound(
                f"{self.ref}: not there{said}",
                hint="check the repository, the tag and the digest, and that you may read it",
                reference="oci-not-found",
            )
        if status == 429 or status >= 500:
            return self._unreachable(f"{method} answered {status}{said}, {ATTEMPTS} times")
        return InvalidInput(
            f"registry {self.ref.host}: {method} in {self.ref.repository} answered {status}{said}",
            hint="look at the limits of that registry in docs/moving-engines.md",
            reference="oci-refused",
        )

    def _denied(self, why: str) -> Unavailable:
        return Unavailable(
            f"registry {self.ref.host}: no access to {self.ref.repository}: {why}",
            hint=f"run `docker login {self.ref.host}`, and check that the login may push or pull",
            reference="oci-access-denied",
        )

    def _unreachable(self, why: str) -> Unavailable:
        return Unavailable(
            f"registry {self.ref.host}: {why}",
            hint="check the address and the network, then run the same command again: it goes on",
            reference="oci-unreachable",
        )


def pause_s(attempt: int) -> float:
    """How long to wait after try number `attempt`, from 0."""
    return float(min(_FIRST_PAUSE_S * 2**attempt, _LONGEST_PAUSE_S))


def _library() -> ModuleType:
    """The HTTP library, or what to install."""
    try:
        import requests
    except ImportError as error:
        raise InvalidInput(
            f"OCI registries need the package requests, which cannot be imported: {error}",
            hint="install it with `pip install 'engine-ci[oci]'`",
            reference="extra-missing",
        ) from error
    return requests


def _no_auth(prepared: requests.PreparedRequest) -> requests.PreparedRequest:
    return prepared


def _basic(login: Credentials) -> str:
    import base64

    return base64.b64encode(f"{login.user}:{login.password}".encode()).decode()


def _retry_after_s(answer: requests.Response) -> float:
    text = answer.headers.get("Retry-After", "")
    return float(text) if text.isdigit() else 0.0


def _said(answer: requests.Response) -> str:
    """The registry's own first error, as something that can be printed."""
    try:
        data = answer.raw.read(_MAX_ERROR_BYTES, decode_content=True) or answer.content
        first = json.loads(data)["errors"][0]
        text = f"{first.get('code', '')} {first.get('message', '')}".strip()
    except Exception:  # whatever it sent, the status alone will do
        return ""
    shown = "".join(c if c.isprintable() else " " for c in text)[:200]
    return f" ({shown})" if shown else ""
