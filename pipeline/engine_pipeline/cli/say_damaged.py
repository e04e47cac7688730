"""What could not be drawn because it is damaged, below what could."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from engine_pipeline.cli.render import Page


def draw_damaged(out: Page, damaged: Iterable[tuple[str, str]]) -> None:
    """A verdict for each message, and each next step once."""
    hints = {}
    for message, hint in damaged:
        out.verdict("errored", message)
        hints[hint] = True
    for hint in hints:
        out.line(f"  next: {hint}")
