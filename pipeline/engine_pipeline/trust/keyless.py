"""Keyless signatures verified: one sigstore instance and what its services vouched for.

With `keyless_signing` the home of the `sigstore` library, which loads only when a bundle has to be
looked at. Verification asks nobody: the root of trust is in a file, or is the public instance's as
the library keeps it on this machine (its cache, or else what it was published with).

Sources: sigstore/fulcio, docs/oid-info.md (extensions of certificates); sigstore 4.5.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from engine_pipeline.redact import redact
from engine_pipeline.trust.standing import Certified
from engine_registry.dsse import IN_TOTO
from engine_registry.errors import (
    EngineCIError,
    Incompatible,
    IntegrityError,
    InvalidInput,
    Unavailable,
)

if TYPE_CHECKING:
    from sigstore.models import ClientTrustConfig
    from sigstore.verify import Verifier

MAX_IDENTITY = 1024
_NAMES: Final = "2.5.29.17"
_ISSUER: Final = "1.3.6.1.4.1.57264.1.8"
_ISSUER_OF_OLD: Final = "1.3.6.1.4.1.57264.1.1"
_UTF8: Final = 0x0C


class Instance:
    """A sigstore instance: whom it trusts to certify, to log and to tell the time.

    Args:
        config: a client trust config as JSON text; None for the public instance.
        name: what errors call it.
    """

    def __init__(self, config: str | None, name: str) -> None:
        self._config = config
        self.name = name

    def certified(self, bundle: bytes) -> Certified:
        """Whom the certificate of a bundle names, and until when; nothing is verified.

        Raises:
            IntegrityError: no certificate, or none that names one identity and its issuer.
            Incompatible: `tool-missing`.
        """
        _library()
        from sigstore.models import Bundle

        try:
            return certified(Bundle.from_json(bundle).signing_certificate)
        except EngineCIError:
            raise
        except Exception as error:  # whatever bytes of a stranger make the library stumble over
            raise _not_verified("its certificate cannot be read", error) from error

    def verified(self, bundle: bytes, signer: Certified) -> bytes:
        """The statement in a bundle, once everything in it verifies.

        The certificate must lead to the instance's authority, carry a timestamp of its certificate
        log, name the signer and its issuer; the log must have held the very signature while the
        certificate was valid, as its signed checkpoint and a time that it signed show.

        Raises:
            IntegrityError: `bundle-not-verified`.
            Incompatible: `tool-missing`.
            InvalidInput: `trust-config-unusable`.
            Unavailable: `trust-root-missing`.
        """
        verifier = self._verifier
        from sigstore.models import Bundle
        from sigstore.verify import policy

        vouched = policy.AnyOf(
            [policy.OIDCIssuerV2(signer.issuer), policy.OIDCIssuer(signer.issuer)]
        )
        wanted = policy.AllOf([policy.Identity(identity=signer.identity), vouched])
        try:
            kind, content = verifier.verify_dsse(Bundle.from_json(bundle), wanted)
        except Exception as error:  # what cannot be verified is not, for whatever reason
            raise _not_verified(f"under {self.name}", error) from error
        if kind != IN_TOTO:
            raise _not_verified(f"content type {kind[:80]!r}, want {IN_TOTO!r}", None)
        return content

    def trust(self, *, refreshed: bool) -> ClientTrustConfig:
        """The instance's description.

        Args:
            refreshed: of the public instance, fetch it over TUF if it has changed.

        Raises:
            InvalidInput: `trust-config-unusable`.
            Unavailable: `trust-root-missing`, or `trust-root-not-refreshed`.
            Incompatible: `tool-missing`.
        """
        _library()
        from sigstore.errors import Error
        from sigstore.models import ClientTrustConfig

        if self._config is not None:
            try:
                return ClientTrustConfig.from_json(self._config)
            except (Error, ValueError) as error:
                raise InvalidInput(
                    f"{self.name}: no client trust config: {_first_line(error)}",
                    hint="get the file from whoever runs the sigstore instance",
                    reference="trust-config-unusable",
                ) from error
        logging.getLogger("sigstore._internal.tuf").setLevel(logging.ERROR)  # offline is on purpose
        try:
            return ClientTrustConfig.production(offline=not refreshed)
        except (Error, ValueError, OSError) as error:
            raise _no_trust_root(error, refreshed=refreshed) from error

    @cached_property
    def _verifier(self) -> Verifier:
        trust = self.trust(refreshed=False)
        from sigstore.errors import Error
        from sigstore.verify import Verifier

        try:
            return Verifier(trusted_root=trust.trusted_root)
        except (Error, ValueError) as error:
            raise InvalidInput(
                f"{self.name}: no usable root of trust: {_first_line(error)}",
                hint="get the file from whoever runs the sigstore instance",
                reference="trust-config-unusable",
            ) from error


def certified(certificate: Any) -> Certified:
    """What a certificate says of whoever holds it.

    Raises:
        IntegrityError: it names none or several, or no issuer.
    """
    found = {item.oid.dotted_string: item.value for item in certificate.extensions}
    names = [name.value for name in found.get(_NAMES, ()) if isinstance(name.value, str)]
    if _ISSUER in found:
        issuer = _utf8(found[_ISSUER].value)
    elif _ISSUER_OF_OLD in found:
        issuer = found[_ISSUER_OF_OLD].value.decode()
    else:
        issuer = ""
    fit = all(0 < len(text) <= MAX_IDENTITY and text.isprintable() for text in (*names, issuer))
    if len(names) != 1 or not fit:
        what = f"its certificate names {len(names)} identities and issuer {issuer[:80]!r}"
        raise _not_verified(f"{what}, want one of each, printable", None)
    return Certified(identity=names[0], issuer=issuer, until=certificate.not_valid_after_utc)


def _utf8(der: bytes) -> str:
    """The text of a DER UTF8String of at most 255 bytes."""
    long_form = der[1] == 0x81
    content = der[3:] if long_form else der[2:]
    if der[0] != _UTF8 or len(content) != (der[2] if long_form else der[1]):
        msg = "an issuer that is no DER text"
        raise ValueError(msg)
    return content.decode()


def _library() -> None:
    try:
        import sigstore.verify  # noqa: F401
    except ImportError as error:
        raise Incompatible(
            "the sigstore package is not installed, keyless signatures need it",
            hint="pip install 'engine-ci[sigstore]'",
            reference="tool-missing",
        ) from error


def _no_trust_root(error: Exception, *, refreshed: bool) -> Unavailable:
    pinned = "name a trust_config_file in channels.yaml, or sign with `keyless:FILE`"
    if refreshed:
        return Unavailable(
            f"the public sigstore instance's root of trust: not refreshed: {_first_line(error)}",
            hint=f"run it again once the network is back, or {pinned}",
            reference="trust-root-not-refreshed",
        )
    return Unavailable(
        f"the public sigstore instance's root of trust is not here: {_first_line(error)}",
        hint=f"run `sigstore plumbing update-trust-root` where there is a network, or {pinned}",
        reference="trust-root-missing",
    )


def _not_verified(what: str, error: Exception | None) -> IntegrityError:
    why = f": {_first_line(error)}" if error is not None else ""
    return IntegrityError(
        f"signature bundle: {what}{why}",
        hint="sign again: `enginectl sign`",
        reference="bundle-not-verified",
    )


def _first_line(error: Exception) -> str:
    text = str(error).strip().partition("\n")[0]
    return redact(text[:160]) or type(error).__name__
