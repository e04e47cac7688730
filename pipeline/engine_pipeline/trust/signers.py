"""Who signs: the holder of a key file, or whoever the environment proves this to be."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from engine_pipeline.trust.ed25519 import SigningKey, VerifyingKey, read_signing_key
from engine_pipeline.trust.key_files import read_trust_config
from engine_pipeline.trust.keyless_signing import KeylessIdentity, KeylessSigner
from engine_pipeline.trust.policy import Role, TrustedIdentity, TrustedKey
from engine_pipeline.trust.standing import KnownIdentity, KnownKey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from engine_pipeline.trust.standing import KnownSigner

KEYLESS: Final = "keyless"
_THIS: Final = "this-signer"
Signer = SigningKey | KeylessSigner
Public = VerifyingKey | KeylessIdentity


def signer_named(how: str, environment: Mapping[str, str], clock: Callable[[], datetime]) -> Signer:
    """Who signs, checked as far as can be before there is something to sign.

    Args:
        how: path of a private key; or `keyless`, with `:FILE` for a sigstore instance of one's own.
        environment: of this process.
        clock: aware UTC time.

    Raises:
        NotFound, InvalidInput, Unavailable, Incompatible: nobody, as the reference says.
    """
    kind, _, config = how.partition(":")
    if kind != KEYLESS:
        return read_signing_key(Path(how))
    signer = KeylessSigner(read_trust_config(Path(config) if config else None), environment, clock)
    _ = signer.public  # a build of hours does not begin if it cannot be signed
    return signer


def known_as(public: Public, role: Role) -> KnownSigner:
    """What a signer's own signatures are judged by, as if channels.yaml named it."""
    if isinstance(public, KeylessIdentity):
        return known_identity(public, role)
    entry = TrustedKey(name=_THIS, may_sign=(role,), public_key=public.pem)
    return KnownKey(entry=entry, public=public)


def known_identity(public: KeylessIdentity, role: Role) -> KnownIdentity:
    """`known_as` of a keyless signer."""
    entry = TrustedIdentity(
        name=_THIS, may_sign=(role,), identity=public.identity, issuer=public.issuer
    )
    return KnownIdentity(entry=entry, verifier=public.instance)


def facts_of(public: Public) -> dict[str, str]:
    """Who it is, for documents: a key id, or an identity and its issuer."""
    if isinstance(public, VerifyingKey):
        return {"key_id": public.key_id}
    return {"identity": public.identity, "issuer": public.issuer}
