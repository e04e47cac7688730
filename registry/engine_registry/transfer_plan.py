"""What becomes of a release, and of records, in a registry that has others already. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from engine_registry.errors import Conflict
from engine_registry.transfer_cargo import refs_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from engine_registry.record import Release
    from engine_registry.transfer_cargo import Cargo


class ReleaseStep(StrEnum):
    """What is to be done about the release of a cargo."""

    NONE = "none"  # the cargo is an engine only
    CREATE = "created"  # as it is, number and all
    KEEP = "already-there"  # the same content is a release there
    RENUMBER = "renumbered"  # the same content, under the next number


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseDecision:
    """What is to be done, and the number that the release has or will have there.

    Attributes:
        number: None if the step gives none, or one that is known only afterwards.
    """

    step: ReleaseStep
    number: int | None = None


def decide_release(
    wanted: Release | None,
    held: Sequence[Release],
    retired: Collection[int],
    *,
    renumber: bool,
) -> ReleaseDecision:
    """What to do about a release in a registry that holds these releases of its product.

    Args:
        wanted: the release of the cargo.
        held: those that are there.
        retired: numbers of removed ones, which never come back.
        renumber: take the next number if its own is taken.

    Raises:
        Conflict: `release-number-taken`; names both sides.
    """
    if wanted is None:
        return ReleaseDecision(step=ReleaseStep.NONE)
    same = [release.number for release in held if release.content == wanted.content]
    if same:
        number = wanted.number if wanted.number in same else same[0]
        return ReleaseDecision(step=ReleaseStep.KEEP, number=number)
    theirs = next((release for release in held if release.number == wanted.number), None)
    if theirs is None and wanted.number not in retired:
        return ReleaseDecision(step=ReleaseStep.CREATE, number=wanted.number)
    if renumber:
        return ReleaseDecision(step=ReleaseStep.RENUMBER)
    taken_by = (
        f"engine {theirs.content.engine.short} of {theirs.created_at:%Y-%m-%d}"
        if theirs
        else "a release that was removed"
    )
    raise Conflict(
        f"release {wanted.name}: its number is taken there by {taken_by}, this one is engine "
        f"{wanted.content.engine.short} of {wanted.created_at:%Y-%m-%d}",
        hint="run the same command with --renumber to give it the next number there",
        reference="release-number-taken",
    )


def refuse_other_record(cargo: Cargo, there: Mapping[str, bytes]) -> list[str]:
    """The names of records that differ from those there, which stay.

    Args:
        cargo: what is to be brought.
        there: documents of the other registry under names of the cargo's records.

    Raises:
        Conflict: the release was cut from one of them, so it cannot be whole there.
    """
    kept = []
    for document, record, digest in cargo.records:
        data = there.get(document.name)
        if data is None or data == document.data:
            continue
        if cargo.release is not None and cargo.release[1].content.record == digest:
            raise Conflict(
                f"release {refs_of(cargo.release[1])}: was cut from the build of "
                f"{record.built_at:%Y-%m-%d %H:%M} by {record.built_by.name}; the other registry "
                f"has recorded another build of engine {cargo.engine.short} from the same key",
                hint=f"cut one there: `enginectl release {cargo.engine.short} --registry URL`",
                reference="record-differs",
            )
        kept.append(document.name)
    return kept
