"""One way in for bytes that somebody else wrote."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Parser:
    """One way in.

    Attributes:
        examples: good inputs.
        read: reads bytes; a directory to write to is at hand.
    """

    examples: tuple[bytes, ...]
    read: Callable[[bytes, Path], object]
