"""How a long act tells what it is doing: the port that terminal, CI logs and tests implement."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Receives progress of one act; never raises, never prompts."""

    def phase(self, name: str, detail: str = "") -> None:
        """A new phase begins; the previous one is over."""
        ...

    def update(self, done: float, total: float | None, unit: str) -> None:
        """The current phase has done this much; `unit` is `bytes`, `cases`, `requests`, ..."""
        ...

    def note(self, text: str) -> None:
        """One line worth keeping, such as `convert: reused (step sha256:ab12…)`."""
        ...


class Silent:
    """Progress that goes nowhere."""

    def phase(self, name: str, detail: str = "") -> None:
        """Ignore it."""

    def update(self, done: float, total: float | None, unit: str) -> None:
        """Ignore it."""

    def note(self, text: str) -> None:
        """Ignore it."""
