"""What may happen to a channel: the closed choice of changes that an event can carry. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field

from engine_registry.digest import Digest
from engine_registry.documents import Value
from engine_registry.record import Text


class Live(Value):
    """A release as a channel names it."""

    number: Annotated[int, Field(ge=1)]
    release: Digest
    engine: Digest


class Promoted(Value):
    """A release became live because the channel's policy said yes; `set`: together with others."""

    kind: Literal["promoted"] = "promoted"
    to: Live
    policy: Digest
    evidence: tuple[Digest, ...] = ()
    reason: Text | None = None
    overrides: tuple[Text, ...] = ()
    set: Text | None = None


class Prepared(Value):
    """A release is to become live with all others of its set, or not at all.

    Nothing else happens on the channel until the set's fate is known and recorded.
    """

    kind: Literal["prepared"] = "prepared"
    set: Text
    to: Live
    policy: Digest
    evidence: tuple[Digest, ...] = ()
    reason: Text | None = None
    overrides: tuple[Text, ...] = ()


class Withdrawn(Value):
    """A set that was prepared does not happen."""

    kind: Literal["withdrawn"] = "withdrawn"
    set: Text
    reason: Text


class RolledBack(Value):
    """An earlier release became live again; those since then are marked bad, a hold is set."""

    kind: Literal["rolled-back"] = "rolled-back"
    to: Live
    reason: Text
    overrides: tuple[Text, ...] = ()


class Approved(Value):
    """A person said yes to this release on this channel."""

    kind: Literal["approved"] = "approved"
    number: int
    release: Digest
    reason: Text | None = None


class Frozen(Value):
    """No promotion until lifted or expired; rollback stays allowed."""

    kind: Literal["frozen"] = "frozen"
    reason: Text
    until: AwareDatetime | None = None


class Thawed(Value):
    """A freeze was lifted."""

    kind: Literal["thawed"] = "thawed"
    reason: Text


class Held(Value):
    """Promotion must not undo what is live."""

    kind: Literal["held"] = "held"
    reason: Text


class HoldLifted(Value):
    """A hold was lifted."""

    kind: Literal["hold-lifted"] = "hold-lifted"
    reason: Text


Change = Annotated[
    Promoted | RolledBack | Approved | Frozen | Thawed | Held | HoldLifted | Prepared | Withdrawn,
    Field(discriminator="kind"),
]
