"""Does a signature count, for what, and why not? Pure: bytes and keys in, values out.

Each signature of an envelope, in this order; the first that applies decides:

    1 bad           the envelope or the statement in it cannot be read
    2 untrusted     no key of channels.yaml has its key id
    3 bad           the key does not verify it
    4 bad           it is attached to an engine that it is not about
    5 without-role  the key may not sign this kind of statement
    6 revoked       the key is revoked and the envelope not listed as still good
    7 good

Each bundle of a keyless signature likewise:

    1 bad           the bundle, its certificate or the statement in it cannot be read
    2 untrusted     no identity of channels.yaml is the one that its certificate names
    3 bad           signature, certificate or log entry do not verify under the entry's trust root
    4 bad           it is attached to an engine that it is not about
    5 without-role  the identity may not sign this kind of statement
    6 revoked       the identity is revoked, the certificate had not run out by then, and the bundle
                    is not listed as still good
    7 good
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from engine_pipeline.trust.bundle import read_bundle_envelope
from engine_pipeline.trust.statements import read_claim
from engine_registry.dsse import read_envelope
from engine_registry.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from engine_pipeline.trust.policy import Role, TrustedIdentity, TrustedKey
    from engine_pipeline.trust.statements import Claim
    from engine_registry.digest import Digest
    from engine_registry.dsse import Envelope, Signature


class PublicKey(Protocol):
    """Half of a key pair."""

    @property
    def key_id(self) -> str:
        """SHA-256 of the DER SubjectPublicKeyInfo, 64 hex digits."""
        ...

    def verifies(self, signature: bytes, signed: bytes) -> bool:
        """Whether the other half made `signature` over these bytes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """A key of channels.yaml, loaded."""

    entry: TrustedKey
    public: PublicKey


@dataclass(frozen=True, slots=True, kw_only=True)
class Certified:
    """Whom a certificate names, who vouched for them, and when it runs out."""

    identity: str
    issuer: str
    until: datetime


class BundleVerifier(Protocol):
    """What tells a keyless signature from a forgery, under one root of trust."""

    def certified(self, bundle: bytes) -> Certified:
        """Whom the certificate names; nothing is verified. Raises IntegrityError."""
        ...

    def verified(self, bundle: bytes, signer: Certified) -> bytes:
        """The statement, once signature, certificate and log entry verify; else IntegrityError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownIdentity:
    """An identity of channels.yaml, with what verifies its bundles."""

    entry: TrustedIdentity
    verifier: BundleVerifier


KnownSigner = KnownKey | KnownIdentity


class Standing(StrEnum):
    """What a signature is worth."""

    GOOD = "good"
    REVOKED = "revoked"
    WITHOUT_ROLE = "without-role"
    UNTRUSTED = "untrusted"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One signature as the rules see it.

    Attributes:
        envelope: manifest digest of the attached envelope or bundle.
        claim: what it vouches for; None if that cannot be read.
        signer: name of the entry, or what an unknown signer calls itself.
        says: why it has that standing.
    """

    envelope: Digest
    claim: Claim | None
    signer: str
    standing: Standing
    says: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Signatures:
    """Every signature attached to one engine, and whose would count.

    Attributes:
        signers: names of those who may sign each kind of statement and are not revoked.
    """

    seen: tuple[Seen, ...] = ()
    signers: Mapping[Role, tuple[str, ...]] = field(default_factory=dict)


NOT_LOOKED_FOR = Signatures()


def judge_envelope(
    data: bytes, attached: Digest, engine: Digest, keys: Sequence[KnownKey]
) -> tuple[Seen, ...]:
    """What each signature of an envelope is worth; empty for statements that mean nothing here.

    Args:
        data: the envelope.
        attached: manifest digest it is attached by.
        engine: what it is attached to.
        keys: of channels.yaml.
    """
    try:
        envelope = read_envelope(data)
        claim = read_claim(envelope.content)
    except IntegrityError as error:
        return (_seen(attached, None, "-", Standing.BAD, error.message),)
    judged = (_judge(item, envelope, claim, attached, engine, keys) for item in envelope.signatures)
    return tuple(seen for seen in judged if seen is not None)


def _judge(
    signature: Signature,
    envelope: Envelope,
    claim: Claim | None,
    attached: Digest,
    engine: Digest,
    keys: Sequence[KnownKey],
) -> Seen | None:
    named = [key for key in keys if signature.key_id in {"", key.public.key_id}]
    key = next(
        (k for k in named if k.public.verifies(signature.value, envelope.signing_input)), None
    )
    if key is None and (not named or not signature.key_id):
        unknown = signature.key_id[:12] or "without an id"
        says = f"signed by key {unknown}, which channels.yaml does not name"
        return _seen(attached, claim, unknown, Standing.UNTRUSTED, says) if claim else None
    if key is None:
        name = named[0].entry.name
        says = f"the signature by {name} does not match the bytes it is on"
        return _seen(attached, claim, name, Standing.BAD, says)
    if claim is None:
        return None
    standing, says = _standing(key.entry, claim, attached, engine, None)
    return _seen(attached, claim, key.entry.name, standing, says)


def judge_bundle(
    data: bytes, attached: Digest, engine: Digest, identities: Sequence[KnownIdentity]
) -> tuple[Seen, ...]:
    """What a keyless signature is worth; empty for bundles that mean nothing here.

    Args:
        data: the bundle.
        attached: manifest digest it is attached by.
        engine: what it is attached to.
        identities: of channels.yaml.
    """
    try:
        envelope = read_bundle_envelope(data)
        claim = read_claim(envelope.content) if envelope is not None else None
    except IntegrityError as error:
        return (_seen(attached, None, "-", Standing.BAD, error.message),)
    if envelope is None or claim is None:
        return ()
    if not identities:
        says = "signed without a key, and channels.yaml names no identity"
        return (_seen(attached, claim, "keyless", Standing.UNTRUSTED, says),)
    try:
        signer = identities[0].verifier.certified(data)
    except IntegrityError as error:
        return (_seen(attached, claim, "-", Standing.BAD, error.message),)
    standing, name, says = _judge_bundle(
        data, envelope, signer, claim, attached, engine, identities
    )
    return (_seen(attached, claim, name, standing, says),)


def _judge_bundle(
    data: bytes,
    envelope: Envelope,
    signer: Certified,
    claim: Claim,
    attached: Digest,
    engine: Digest,
    identities: Sequence[KnownIdentity],
) -> tuple[Standing, str, str]:
    whose = (signer.identity, signer.issuer)
    named = [known for known in identities if (known.entry.identity, known.entry.issuer) == whose]
    if not named:
        says = f"certificate for {signer.identity} by {signer.issuer}: {_lacks(signer, identities)}"
        return Standing.UNTRUSTED, signer.identity, says
    failed = ""
    for known in named:
        name = known.entry.name
        try:
            content = known.verifier.verified(data, signer)
        except IntegrityError as error:
            failed = failed or f"the keyless signature by {name} does not verify: {error.message}"
            continue
        if content != envelope.content:
            failed = failed or f"the bundle by {name} holds two statements, want one"
            continue
        standing, says = _standing(known.entry, claim, attached, engine, signer.until)
        return standing, name, says
    return Standing.BAD, named[0].entry.name, failed


def _lacks(signer: Certified, identities: Sequence[KnownIdentity]) -> str:
    """What channels.yaml would have to say for the signer to be known."""
    for known in identities:
        if known.entry.identity == signer.identity:
            return f"{known.entry.name} has issuer {known.entry.issuer}"
    return "channels.yaml names no such identity"


def _standing(
    entry: TrustedKey | TrustedIdentity,
    claim: Claim,
    attached: Digest,
    engine: Digest,
    until: datetime | None,
) -> tuple[Standing, str]:
    """How a verified signature counts; `until`, for a certificate, bounds when it was made."""
    what = "key" if until is None else "identity"
    if claim.engine != engine:
        says = f"the signature by {entry.name} is about engine {claim.engine.short}, attached to "
        return Standing.BAD, says + engine.short
    if claim.role not in entry.may_sign:
        may = ", ".join(entry.may_sign)
        return Standing.WITHOUT_ROLE, f"signed by {entry.name}, whose {what} may sign {may} only"
    revoked_at = entry.revoked_at
    was_before = revoked_at is not None and until is not None and until <= revoked_at
    if revoked_at is not None and not was_before and attached not in entry.still_good:
        says = f"signed by {entry.name}, whose {what} is revoked since {revoked_at:%Y-%m-%d}"
        if until is not None:
            says += f", under a certificate valid until {until:%Y-%m-%d %H:%M}Z"
        return Standing.REVOKED, says
    return Standing.GOOD, f"signed by {entry.name}"


def _seen(
    attached: Digest, claim: Claim | None, signer: str, standing: Standing, says: str
) -> Seen:
    return Seen(envelope=attached, claim=claim, signer=signer, standing=standing, says=says)
