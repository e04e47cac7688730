"""Which engines were touched lately: what garbage collection spares and an index has to re-read.

An entry is written before the thing it tells of becomes visible, so nothing new is ever without
one; an entry of an act that then died does no harm. Entries are named by minute: what is new is
found by listing the newest minutes only. Old ones are removed with the garbage.

    touched/2026-12-02/1015/30123456-recorded-<engine hex>.json
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING

from pydantic import AwareDatetime

from engine_registry import layout
from engine_registry.digest import Digest
from engine_registry.documents import Document, seal
from engine_registry.errors import DocumentConflict, InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine_registry.store import DocumentStore

_PARTS_OF_A_NAME = 4


class Act(StrEnum):
    """What was done to an engine."""

    RECORDED = "recorded"  # built, imported or transferred
    ATTACHED = "attached"  # judged, signed
    RELEASED = "released"
    REUSED = "reused"  # a build found it by its key
    REMOVED = "removed"  # discarded by a garbage collection
    RESTORED = "restored"


class Touch(Document):
    """One entry."""

    engine: Digest
    act: Act
    at: AwareDatetime


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Touched:
    """An entry as its name tells it.

    Attributes:
        minute: when, to the minute, by the clock of who wrote it.
        name: of the stored entry.
    """

    minute: datetime
    engine: Digest
    act: Act
    name: str


class Touches:
    """The entries of one registry.

    Args:
        documents: where they lie.
        clock: gives the aware UTC time.
    """

    def __init__(self, documents: DocumentStore, clock: Callable[[], datetime]) -> None:
        self._documents = documents
        self._clock = clock

    def note(self, engine: Digest, act: Act) -> None:
        """Say that this is about to be done to an engine."""
        entry = Touch(engine=engine, act=act, at=self._clock().astimezone(UTC))
        try:
            self._documents.create(name_of(entry), seal(entry))
        except DocumentConflict:  # two at the same microsecond: one entry is enough
            return

    def since(self, minute: datetime) -> Iterator[Touched]:
        """Every entry of this minute and of later ones, oldest minute first."""
        first = minute.astimezone(UTC)
        day, clock = first.strftime("%Y-%m-%d"), first.strftime("%H%M")
        for folder in self._documents.children(layout.TOUCHED):
            if folder.removesuffix("/") < day:
                continue
            for slot in self._documents.children(f"{layout.TOUCHED}/{folder.removesuffix('/')}"):
                if folder.removesuffix("/") == day and slot.removesuffix("/") < clock:
                    continue
                place = f"{layout.TOUCHED}/{folder}{slot.removesuffix('/')}"
                for child in self._documents.children(place):
                    found = parse(f"{place}/{child}")
                    if found is not None:
                        yield found


def name_of(entry: Touch) -> str:
    """Where an entry lies."""
    at = entry.at
    return f"{layout.TOUCHED}/{at:%Y-%m-%d}/{at:%H%M}/{at:%S%f}-{entry.act}-{entry.engine.hex}.json"


def parse(name: str) -> Touched | None:
    """What the name of an entry says; None for a foreign file."""
    parts = name.split("/")
    if len(parts) != _PARTS_OF_A_NAME or parts[0] != layout.TOUCHED:
        return None
    _, _, rest = parts[3].removesuffix(".json").partition("-")
    act, _, engine = rest.partition("-")
    try:
        return Touched(
            minute=datetime.strptime(f"{parts[1]} {parts[2]}", "%Y-%m-%d %H%M").replace(tzinfo=UTC),
            engine=Digest(engine),
            act=Act(act),
            name=name,
        )
    except (ValueError, InvalidInput):
        return None
