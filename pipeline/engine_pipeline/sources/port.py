"""What the pipeline asks of a place that files come from.

A new place is a file here and one line in `schemes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.progress import Progress
    from engine_pipeline.spec.lock import LockedFile, LockedSource
    from engine_registry.digest import Digest


class Purpose(StrEnum):
    """What files are taken for; decides which ones are taken by default."""

    MODEL = "model"
    CALIBRATION = "calibration"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a spec asks a source for.

    Attributes:
        uri: as in the spec.
        revision: as in the spec: branch, tag, commit, version or label.
        patterns: globs of files to take; empty takes the default for `purpose`.
        allow_code: whether code files may be taken.
    """

    uri: str
    revision: str
    patterns: tuple[str, ...] = ()
    allow_code: bool = False
    purpose: Purpose = Purpose.MODEL


class Source(Protocol):
    """One kind of place. Everything it hands out has been checked against size and digest."""

    def resolve(self, wanted: Wanted, progress: Progress) -> LockedSource:
        """Pin `wanted`: its exact revision, and every file with size and SHA-256.

        Raises:
            InvalidInput: nothing usable there, or something refused: pickle weights, code.
            NotFound: no such place, revision or file.
            Unavailable: the place does not answer; safe to try again.
            IntegrityError: it hands out bytes that it disowns.
        """
        ...

    def fetch(self, locked: LockedSource, dest_dir: Path, progress: Progress) -> None:
        """Put exactly the locked files below `dest_dir`, each whole and checked.

        Nothing under a final name is ever partial; running it again finishes.

        Raises:
            IntegrityError: what is there now is not what was locked; names file and both digests.
            NotFound: a file is gone.
            Unavailable: as for `resolve`.
        """
        ...

    def local_path(self, locked: LockedSource, file: LockedFile, progress: Progress) -> Path:
        """A checked local copy of one locked file, to read and leave alone; raises as `fetch`."""
        ...


class ImageResolver(Protocol):
    """Knows which digest a container image reference stands for now."""

    def digest_of(self, reference: str) -> Digest:
        """The manifest digest of `reference`.

        Raises:
            NotFound: no such image or tag.
            Unavailable: the registry does not answer.
        """
        ...
