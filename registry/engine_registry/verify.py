"""Recompute a whole registry and name everything that does not match.

Every stored file is looked at, reachable or not: blobs are hashed, envelopes checked, names compared
with contents, references followed, event logs replayed. Nothing is repaired; a mismatch is a value.
A pointer that is behind its log is no mismatch (the next move catches it up) but noted.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import StrEnum
from threading import Lock
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.digest import Digest
from engine_registry.errors import EngineCIError, IntegrityError, NotFound
from engine_registry.store import Depth
from engine_registry.verify_documents import DocumentChecks, Found

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_registry.registry import Registry
    from engine_registry.store import BlobStore, StoredFile

_BLOBS = "blobs/sha256/"


class MismatchKind(StrEnum):
    """What is wrong with a stored file."""

    DAMAGED = "damaged"  # bytes do not match their digest, or are no document of their kind
    MISSING = "missing"  # something stored names it and it is not there
    MISPLACED = "misplaced"  # whole, but under a name that says something else
    INCONSISTENT = "inconsistent"  # whole, but contradicts what it refers to
    FOREIGN = "foreign"  # not a file of a registry
    UNREADABLE = "unreadable"  # could not be judged
    BEHIND = "behind"  # a pointer short of its log; harmless


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Mismatch:
    """One stored name that is not what it should be, with both sides."""

    name: str
    kind: MismatchKind
    expected: str
    found: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """What a verification saw.

    Attributes:
        mismatches: by name; empty if the registry is whole.
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
