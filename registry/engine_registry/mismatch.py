"""What a verification can find, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class MismatchKind(StrEnum):
    """What is wrong with a stored file."""

    DAMAGED = "damaged"  # bytes do not match their digest, or are no document of their kind
    MISSING = "missing"  # something stored names it and it is not there
    MISPLACED = "misplaced"  # whole, but under a name that says something else
    INCONSISTENT = "inconsistent"  # whole, but contradicts what it refers to
    FOREIGN = "foreign"  # not a file of a registry
    UNREADABLE = "unreadable"  # could not be judged
    BEHIND = "behind"  # a pointer or a log short of what is decided; harmless
    PENDING = "pending"  # a set that nobody has decided on yet; harmless


_HARMLESS = frozenset({MismatchKind.BEHIND, MismatchKind.PENDING})


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Mismatch:
    """One stored name that is not what it should be, with both sides."""

    name: str
    kind: MismatchKind
    expected: str
    found: str


@dataclass(slots=True)
class Findings:
    """What a verification has found so far; the same thing found twice counts once."""

    mismatches: set[Mismatch] = field(default_factory=set)
    notes: set[Mismatch] = field(default_factory=set)

    def add(self, name: str, kind: MismatchKind, *, expected: object, found: object) -> None:
        """Record one mismatch; what is harmless goes to the notes."""
        where = self.notes if kind in _HARMLESS else self.mismatches
        said = str(found).removeprefix(f"{name}: ")  # errors begin with it
        where.add(Mismatch(name=name, kind=kind, expected=str(expected), found=said))


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What a verification saw.

    Attributes:
        mismatches: in order of name; empty if the registry is whole.
        notes: harmless observations.
    """

    files: int
    size_bytes: int
    mismatches: tuple[Mismatch, ...]
    notes: tuple[Mismatch, ...]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.mismatches
