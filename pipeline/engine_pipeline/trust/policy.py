"""The `trust:` part of `channels.yaml`: whose signature counts for what. Pure values.

A signature by a key carries no time that anybody vouches for, so a revocation cannot tell what the
key signed before it was stolen from what it signed after. Once `revoked_at` of a key is set,
whatever its value, nothing that the key signed counts, except the envelopes that `still_good` lists
by digest because somebody knows them to be older.

A keyless signature does carry such a time: it counts only if it was logged while its certificate
was valid, which is ten minutes. So an identity that is revoked keeps what was signed under
certificates that had run out by then, and loses everything after.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, Discriminator, Field, StringConstraints, Tag, model_validator

from engine_registry.digest import Digest
from engine_registry.documents import Value
from engine_registry.refs import Slug

GITHUB_ISSUER = "https://token.actions.githubusercontent.com"
FileName = Annotated[str, Field(min_length=1, max_length=512)]


class Role(StrEnum):
    """What a signature vouches for."""

    BUILD = "build"  # this engine came out of this build: its provenance
    GATE = "gate"  # this report is what the gate found
    RELEASE = "release"  # these parts belong together under this number


class _Trusted(Value):
    """What an entry says of whoever signs."""

    name: Slug
    may_sign: Annotated[tuple[Role, ...], Field(min_length=1)]
    revoked_at: AwareDatetime | None = None
    still_good: tuple[Digest, ...] = ()

    @model_validator(mode="after")
    def _lists_exceptions_from_something(self) -> Self:
        if self.still_good and self.revoked_at is None:
            msg = f"{self.name}: still_good is for a signer with revoked_at"
            raise ValueError(msg)
        return self


class TrustedKey(_Trusted):
    """One key and what it may sign.

    Attributes:
        name: what messages call whoever holds the key, e.g. `ci`.
        may_sign: build, gate, release: the kinds of statement its signature counts for.
        public_key: the key as PEM text.
        public_key_file: or the file it is in, relative to channels.yaml.
        revoked_at: when it was withdrawn; from then on nothing it signed counts.
        still_good: attached envelopes of a revoked key that count nevertheless.
    """

    public_key: Annotated[str, Field(max_length=4096)] | None = None
    public_key_file: FileName | None = None

    @model_validator(mode="after")
    def _has_one_key(self) -> Self:
        if (self.public_key is None) == (self.public_key_file is None):
            msg = f"key {self.name}: give either public_key or public_key_file"
            raise ValueError(msg)
        return self


class TrustedIdentity(_Trusted):
    """Somebody whom an identity provider names, and what they may sign without a key.

    Attributes:
        name: what messages call them, e.g. `ci`.
        may_sign: build, gate, release: the kinds of statement their signature counts for.
        identity: whom the certificate has to name, exactly, e.g. a workflow with its ref
            (`https://github.com/ORG/REPO/.github/workflows/FILE@refs/heads/main`) or an address.
        issuer: the identity provider that vouched for them, exactly, as an address.
        trust_config_file: the sigstore instance, relative to channels.yaml; default: the public
            one, as the library on this machine knows it.
        revoked_at: what was signed under a certificate valid later than this does not count.
        still_good: attached bundles of a revoked identity that count nevertheless.
    """

    identity: Annotated[str, StringConstraints(max_length=1024, pattern=r"^\S+$")]
    issuer: Annotated[str, StringConstraints(max_length=512, pattern=r"^https?://\S+$")]
    trust_config_file: FileName | None = None

    @model_validator(mode="after")
    def _can_be_met(self) -> Self:
        if "*" in self.identity:
            msg = f"identity of {self.name}: it is compared exactly, * stands for nothing else"
            raise ValueError(msg)
        if self.issuer == GITHUB_ISSUER and "@" not in self.identity:
            msg = f"identity of {self.name}: a workflow is named with its ref, FILE@refs/heads/main"
            raise ValueError(msg)
        return self


def _kind(entry: Any) -> str:
    keys = entry if isinstance(entry, dict) else getattr(entry, "__dict__", ())
    return "by-identity" if {"identity", "issuer", "trust_config_file"} & set(keys) else "by-key"


TrustedSigner = Annotated[
    Annotated[TrustedKey, Tag("by-key")] | Annotated[TrustedIdentity, Tag("by-identity")],
    Discriminator(_kind),
]
