"""Keyless signatures made: a certificate for whoever runs this, an entry in the log, a bundle.

The identity is the environment's own: a token that the CI system hands to the job. No browser is
ever opened and nobody is asked, so that a build never waits for a person.

Sources: `id` 1.6 for which environments have a token; SIGSTORE_ID_TOKEN as cosign reads it.
"""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeVar

from engine_pipeline.redact import redact
from engine_pipeline.trust.keyless import Instance, certified
from engine_registry.errors import EngineCIError, IntegrityError, InvalidInput, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from engine_pipeline.trust.standing import Certified

TOKEN: Final = "SIGSTORE_ID_TOKEN"
_HOW = (
    "give the GitHub job `permissions: id-token: write`, the GitLab job an id_token "
    f"{TOKEN} with audience sigstore; elsewhere set {TOKEN}, or sign with a key file"
)
# The library sets no limit of its own; the services answer within seconds.
_LIMIT_S = 60.0
# A certificate that runs out sooner is not begun with: the log must still see it valid.
_LEFT = timedelta(minutes=1)
# Of the words of `id`: the rest says that something is not set.
_TRANSIENT = re.compile(r"timed out|request failed")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeylessIdentity:
    """Whom an instance certified, as what they sign is known by."""

    identity: str
    issuer: str
    instance: Instance


@dataclass(frozen=True, slots=True, kw_only=True)
class _Session:
    """A certificate while it is valid, with the only copy of its key."""

    signer: Any
    certificate: Certified


class KeylessSigner:
    """Signs as whoever the environment says this is.

    Args:
        instance: that certifies and logs.
        environment: of this process.
        clock: aware UTC time.
        limit_s: longest wait for one of the instance's services.
    """

    def __init__(
        self,
        instance: Instance,
        environment: Mapping[str, str],
        clock: Callable[[], datetime],
        *,
        limit_s: float = _LIMIT_S,
    ) -> None:
        self._instance = instance
        self._environment = environment
        self.clock = clock
        self._limit_s = limit_s
        self._open: _Session | None = None

    @property
    def public(self) -> KeylessIdentity:
        """Who this is; asks for a certificate, so whatever is in the way is found here.

        Raises:
            InvalidInput: `no-identity-token`, `identity-token-unusable`, `keyless-refused`.
            Unavailable: `keyless-unavailable`, or the root of trust.
        """
        found = self._session().certificate
        return KeylessIdentity(
            identity=found.identity, issuer=found.issuer, instance=self._instance
        )

    def bundle(self, statement: bytes) -> bytes:
        """The statement signed and logged, as a bundle that was verified once; raises as `public`.

        Every call gives another one: each has a signature, a log entry and a time of its own.
        """
        from sigstore.dsse import Statement

        session = self._session()
        signed = self._asked("log entry", lambda: session.signer.sign_dsse(Statement(statement)))
        data: bytes = signed.to_json().encode()
        if self._instance.verified(data, session.certificate) != statement:
            raise IntegrityError(
                f"{self._instance.name}: the bundle that came back holds another statement",
                hint="tell whoever runs the sigstore instance; nothing was attached",
                reference="bundle-not-verified",
            )
        return data

    def _session(self) -> _Session:
        now = self.clock()
        if self._open is None or self._open.certificate.until - now < _LEFT:
            self._open = self._certified()
        return self._open

    def _certified(self) -> _Session:
        trust = self._instance.trust(refreshed=True)
        token = self._token()
        from sigstore.oidc import IdentityError, IdentityToken
        from sigstore.sign import Signer, SigningContext

        try:
            identity = IdentityToken(token)
        except IdentityError as error:
            raise InvalidInput(
                f"the identity token cannot be used: {_told(error.__cause__ or error, token)}",
                hint=f"get a fresh one with audience sigstore: {_HOW}",
                reference="identity-token-unusable",
            ) from error

        def ask() -> _Session:
            signer = Signer(identity, SigningContext.from_trust_config(trust))
            # The certificate is asked for when the signer is made; it is kept, not asked for twice.
            return _Session(signer=signer, certificate=certified(signer._signing_cert()))

        return self._asked("certificate", ask, token)

    def _token(self) -> str:
        """The token of this environment; never shown."""
        from sigstore.oidc import IdentityError, detect_credential

        given = self._environment.get(TOKEN)
        if given:
            return given
        try:
            found = detect_credential()
        except IdentityError as error:
            told = _told(error, self._environment.get("ACTIONS_ID_TOKEN_REQUEST_TOKEN", ""))
            if _TRANSIENT.search(told):
                raise Unavailable(
                    f"no identity token, the environment did not give it: {told}",
                    hint="run it again; finished steps are kept. Or sign with a key file",
                    reference="identity-token-unavailable",
                ) from error
            raise InvalidInput(
                f"no identity token, keyless signing needs one: {told}",
                hint=_HOW,
                reference="no-identity-token",
            ) from error
        if found is None:
            raise InvalidInput(
                "no identity token here, keyless signing needs one that says who this is",
                hint=_HOW,
                reference="no-identity-token",
            )
        return found

    def _asked(self, what: str, call: Callable[[], T], token: str = "") -> T:
        """What a service of the instance gave, within the limit."""
        answers: list[T] = []
        errors: list[Exception] = []

        def ask() -> None:
            try:
                answers.append(call())
            except Exception as error:  # raised again below, where somebody waits for it
                errors.append(error)

        thread = threading.Thread(target=ask, daemon=True)
        thread.start()
        thread.join(self._limit_s)
        if answers:
            return answers[0]
        error = errors[0] if errors else TimeoutError(f"no answer in {self._limit_s:g} s")
        if isinstance(error, EngineCIError):
            raise error
        raise self._failure(what, error, token) from error

    def _failure(self, what: str, error: Exception, token: str) -> EngineCIError:
        # The library's own errors say little; the answer that they came from is behind them.
        behind = (error, error.__cause__, error.__context__)
        answers: list[Any] = [getattr(one, "response", None) for one in behind]
        response = next((answer for answer in answers if answer is not None), None)
        status = 0 if response is None else response.status_code
        told = _told(error, token) or type(error).__name__
        if response is not None:
            told = f"{status} {_told(response.text, token)}"
        if 400 <= status < 500 and status not in {408, 429}:
            return InvalidInput(
                f"{self._instance.name} refused a {what}: {told}",
                hint="see which issuers and audiences it accepts; sign with a key file meanwhile",
                reference="keyless-refused",
            )
        return Unavailable(
            f"{self._instance.name} gave no {what}: {told}",
            hint="run it again; finished steps are kept. Or sign with a key file",
            reference="keyless-unavailable",
        )


def _told(error: object, *secrets: str) -> str:
    text = " ".join(str(error).split())
    return redact(text[:300], *secrets)
