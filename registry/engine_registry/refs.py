"""Names of things: models, targets, channels, releases. Parsed once, then types.

    MODEL/TARGET             what a release belongs to     smollm2-135m-instruct/cpu-x86-64-v3
    MODEL/TARGET:N           a release                     smollm2-135m-instruct/cpu-x86-64-v3:7
    MODEL/TARGET/CHANNEL     a channel                     smollm2-135m-instruct/cpu-x86-64-v3/prod

Each part is a lower-case slug, so a name is always safe as a path and never an option.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Self

from pydantic import StringConstraints

from engine_registry.errors import InvalidInput

SLUG_PATTERN = r"[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?"
Slug = Annotated[str, StringConstraints(pattern=f"^{SLUG_PATTERN}$", max_length=64)]

_PRODUCT = re.compile(f"({SLUG_PATTERN})/({SLUG_PATTERN})")
_CHANNEL = re.compile(f"({SLUG_PATTERN})/({SLUG_PATTERN})/({SLUG_PATTERN})")
_RELEASE = re.compile(f"({SLUG_PATTERN})/({SLUG_PATTERN}):([1-9][0-9]{{0,8}})")


def _refuse(kind: str, text: str, form: str) -> InvalidInput:
    look = "status" if kind == "channel" else "list"
    return InvalidInput(
        f"not a {kind}: {text[:120]!r} (want {form}, lower-case slugs)",
        hint=f"run `enginectl {look}` to list the {kind}s of this registry",
        reference=f"invalid-{kind}-name",
    )


@dataclass(frozen=True, slots=True, order=True)
class ProductRef:
    """`MODEL/TARGET`: what releases are numbered within."""

    model: str
    target: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `MODEL/TARGET`; raises InvalidInput."""
        match = _PRODUCT.fullmatch(text)
        if match is None:
            raise _refuse("product", text, "MODEL/TARGET")
        return cls(match.group(1), match.group(2))

    def __str__(self) -> str:
        return f"{self.model}/{self.target}"


@dataclass(frozen=True, slots=True, order=True)
class ReleaseRef:
    """`MODEL/TARGET:N`: one numbered, immutable release."""

    product: ProductRef
    number: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `MODEL/TARGET:N`; raises InvalidInput."""
        match = _RELEASE.fullmatch(text)
        if match is None:
            raise _refuse("release", text, "MODEL/TARGET:NUMBER")
        return cls(ProductRef(match.group(1), match.group(2)), int(match.group(3)))

    def __str__(self) -> str:
        return f"{self.product}:{self.number}"


@dataclass(frozen=True, slots=True, order=True)
class ChannelRef:
    """`MODEL/TARGET/CHANNEL`: a pointer that moves by events."""

    product: ProductRef
    channel: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `MODEL/TARGET/CHANNEL`; raises InvalidInput."""
        match = _CHANNEL.fullmatch(text)
        if match is None:
            raise _refuse("channel", text, "MODEL/TARGET/CHANNEL")
        return cls(ProductRef(match.group(1), match.group(2)), match.group(3))

    def __str__(self) -> str:
        return f"{self.product}/{self.channel}"
