"""The `trust:` part of `channels.yaml`: whose signature counts for what. Pure values.

A signature carries no time that anybody vouches for, so a revocation cannot tell what a key signed
before it was stolen from what it signed after. Once `revoked_at` is set, whatever its value,
nothing that the key signed counts, except the envelopes that `still_good` lists by digest because
somebody knows them to be older.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import AwareDatetime, Field, model_validator

from engine_registry.digest import Digest
from engine_registry.documents import Value
from engine_registry.refs import Slug


class Role(StrEnum):
    """What a signature vouches for."""

    BUILD = "build"  # this engine came out of this build: its provenance
    GATE = "gate"  # this report is what the gate found
    RELEASE = "release"  # these parts belong together under this number


class TrustedKey(Value):
    """One key and what it may sign.

    Attributes:
        name: what messages call whoever holds the key, e.g. `ci`.
        may_sign: build, gate, release: the kinds of statement its signature counts for.
        public_key: the key as PEM text.
        public_key_file: or the file it is in, relative to channels.yaml.
        revoked_at: when it was withdrawn; from then on nothing it signed counts.
        still_good: attached envelopes of a revoked key that count nevertheless.
    """

    name: Slug
    may_sign: Annotated[tuple[Role, ...], Field(min_length=1)]
    public_key: Annotated[str, Field(max_length=4096)] | None = None
    public_key_file: Annotated[str, Field(min_length=1, max_length=512)] | None = None
    revoked_at: AwareDatetime | None = None
    still_good: tuple[Digest, ...] = ()

    @model_validator(mode="after")
    def _has_one_key(self) -> Self:
        if (self.public_key is None) == (self.public_key_file is None):
            msg = f"key {self.name}: give either public_key or public_key_file"
            raise ValueError(msg)
        if self.still_good and self.revoked_at is None:
            msg = f"key {self.name}: still_good is for a key with revoked_at"
            raise ValueError(msg)
        return self
