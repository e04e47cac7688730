"""A bake-off on a terminal: the table, whom to take, what would change that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.bakeoff.say import asked_for, cells, further_cells, heads, load_words
from engine_pipeline.gates.visible import visible

if TYPE_CHECKING:
    from engine_pipeline.bakeoff.result import BakeoffResult
    from engine_pipeline.cli.render import Page


def draw(out: Page, result: BakeoffResult) -> None:
    """Everything that fits 100 columns; the rest is in the written reports."""
    out.wrapped(visible(load_words(result)), "")
    out.wrapped(visible(asked_for(result.file)), "")
    rows = []
    for row in result.in_order:
        rows += [cells(row), *further_cells(row)]
    out.line()
    out.table(heads(result.file), rows)
    out.line()
    out.wrapped(visible(result.recommendation), "")
    reasons = [f"{row.name}: {reason}" for row in result.in_order for reason in row.reasons]
    flips = [flip.words for flip in result.flips] or ["no single price, limit or priority"]
    for title, lines in (
        ("why not", reasons),
        ("what would change the choice", flips),
        ("before you believe it", list(result.caveats)),
    ):
        if lines:
            out.line()
            out.line(title)
            for line in lines:
                out.wrapped(visible(line), "  ")
