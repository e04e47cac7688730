"""Does a signature count, for what, and why not? Pure: bytes and keys in, values out.

Each signature of an envelope, in this order; the first that applies decides:

    1 bad           the envelope or the statement in it cannot be read
    2 untrusted     no key of channels.yaml has its key id
    3 bad           the key does not verify it
    4 bad           it is attached to an engine that it is not about
    5 without-role  the key may not sign this kind of statement
    6 revoked       the key is revoked and the envelope not listed as still good
    7 good
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from engine_pipeline.trust.statements import read_claim
from engine_registry.dsse import read_envelope
from engine_registry.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine_pipeline.trust.policy import Role, TrustedKey
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
        envelope: manifest digest of the attached envelope.
        claim: what it vouches for; None if that cannot be read.
        signer: name of the key, or the beginning of an unknown key's id.
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
        signers: names of the keys that may sign each kind of statement and are not revoked.
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
    standing, says = _standing(key.entry, claim, attached, engine)
    return _seen(attached, claim, key.entry.name, standing, says)


def _standing(
    key: TrustedKey, claim: Claim, attached: Digest, engine: Digest
) -> tuple[Standing, str]:
    if claim.engine != engine:
        says = f"the signature by {key.name} is about engine {claim.engine.short}, attached to "
        return Standing.BAD, says + engine.short
    if claim.role not in key.may_sign:
        may = ", ".join(key.may_sign)
        return Standing.WITHOUT_ROLE, f"signed by {key.name}, whose key may sign {may} only"
    if key.revoked_at is not None and attached not in key.still_good:
        return Standing.REVOKED, (
            f"signed by {key.name}, whose key is revoked since {key.revoked_at:%Y-%m-%d}"
        )
    return Standing.GOOD, f"signed by {key.name}"


def _seen(
    attached: Digest, claim: Claim | None, signer: str, standing: Standing, says: str
) -> Seen:
    return Seen(envelope=attached, claim=claim, signer=signer, standing=standing, says=says)
