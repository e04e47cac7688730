"""Holds on releases: what is held is kept by every garbage collection until the hold is lifted.

Not to be taken for a hold on a channel, which keeps promotions off it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import AwareDatetime, Field

from engine_registry import layout
from engine_registry.documents import Document, seal, unseal
from engine_registry.errors import Conflict, IntegrityError
from engine_registry.record import Actor, Text
from engine_registry.refs import ProductRef, ReleaseRef, Slug

if TYPE_CHECKING:
    from datetime import datetime

    from engine_registry.record import Release
    from engine_registry.store import Stores

# Two people at once are rare, and each try costs two requests.
_TRIES = 8


class ReleaseHold(Document):
    """A hold, or its end.

    Attributes:
        revision: counts the changes, so that no two are equal.
        is_lifted: the hold is over; the entry stays, saying who lifted it and why.
    """

    model: Slug
    target: Slug
    number: Annotated[int, Field(ge=1)]
    revision: Annotated[int, Field(ge=1)]
    is_lifted: bool
    reason: Text
    actor: Actor
    at: AwareDatetime


class ReleaseHolds:
    """Every hold on a release of one registry."""

    def __init__(self, stores: Stores) -> None:
        self._documents = stores.documents
        self._pointers = stores.pointers

    def hold(self, release: Release, *, reason: str, actor: Actor, at: datetime) -> ReleaseHold:
        """Keep a release; a new hold replaces the old one."""
        return self._swap(release, reason, actor, at, is_lifted=False)

    def lift(self, release: Release, *, reason: str, actor: Actor, at: datetime) -> ReleaseHold:
        """End the hold on a release; a no-op where there is none."""
        return self._swap(release, reason, actor, at, is_lifted=True)

    def on(self, ref: ReleaseRef) -> ReleaseHold | None:
        """The hold on one release; None if it was never held or the hold was lifted."""
        found = self._read(ref)[1]
        return None if found is None or found.is_lifted else found

    def held(self, product: ProductRef) -> dict[int, ReleaseHold]:
        """The holds in force on releases of MODEL/TARGET, by number."""
        folder = f"{layout.HOLDS}/{product.model}/{product.target}"
        numbers = map(layout.number_of, self._documents.children(folder))
        found = {n: self.on(ReleaseRef(product, n)) for n in numbers if n is not None}
        return {number: hold for number, hold in found.items() if hold is not None}

    def _swap(
        self, release: Release, reason: str, actor: Actor, at: datetime, *, is_lifted: bool
    ) -> ReleaseHold:
        ref = ReleaseRef(ProductRef(release.model, release.target), release.number)
        for _ in range(_TRIES):
            version, before = self._read(ref)
            after = ReleaseHold(
                model=release.model,
                target=release.target,
                number=release.number,
                revision=before.revision + 1 if before else 1,
                is_lifted=is_lifted,
                reason=reason,
                actor=actor,
                at=at,
            )
            if is_lifted and (before is None or before.is_lifted):
                return before or after
            try:
                self._pointers.swap(layout.hold(ref), version, seal(after))
            except Conflict:
                continue
            return after
        raise Conflict(
            f"release {ref}: others change its hold at the same time",
            hint="run the same command again",
            reference="hold-contended",
        )

    def _read(self, ref: ReleaseRef) -> tuple[str | None, ReleaseHold | None]:
        name = layout.hold(ref)
        value = self._pointers.read(name)
        if value is None:
            return None, None
        hold, _ = unseal(value.data, ReleaseHold, name)
        if (hold.model, hold.target, hold.number) != (
            ref.product.model,
            ref.product.target,
            ref.number,
        ):
            raise IntegrityError(
                f"{name}: holds the hold on release {hold.model}/{hold.target}:{hold.number}",
                hint="run `enginectl verify` to list every damaged file",
                reference="document-misplaced",
            )
        return value.version, hold
