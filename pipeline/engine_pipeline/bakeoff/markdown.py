"""A bake-off as Markdown: whom to take on top, then numbers, then what would change it. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine_pipeline.bakeoff.say import (
    asked_for,
    bounded,
    cells,
    failed_words,
    further_cells,
    heads,
    identity_words,
    lane_cells,
    lane_heads,
    lane_note,
    load_words,
    overhead_words,
    price_words,
)
from engine_pipeline.gates.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine_pipeline.bakeoff.result import BakeoffResult
    from engine_pipeline.bakeoff.rows import ContestantRow

# What Markdown or the HTML in it would make something of; names and servers' words are only text.
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~])")

_TIMES = "Times in ms, at the step with most tokens/s among those of the load that meet the limits."


def to_markdown(result: BakeoffResult) -> str:
    """The bake-off as Markdown."""
    rows = result.in_order
    table = [line for row in rows for line in (cells(row), *further_cells(row))]
    parts = [
        f"# Bake-off {plain(result.file.name)}",
        f"**{plain(result.recommendation)}**",
        plain(asked_for(result.file)),
        plain(load_words(result)),
        _table(heads(result.file), table),
        f"{_TIMES} {lane_note(result)}".rstrip(),
        _bullets("Why not", _why_not(rows)),
        _bullets("What would change the choice", [flip.words for flip in result.flips])
        or "## What would change the choice\n\nNo single price, limit or priority.",
        _bullets("Before you believe it", result.caveats),
        _steps(result),
        _lanes(result),
        _bullets("Who is who", [_who(row, result.file.currency) for row in rows]),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def plain(text: str) -> str:
    """`text` on one line, as text and nothing else."""
    return _SPECIAL.sub(r"\\\1", " ".join(visible(text).split()))


def _why_not(rows: Iterable[ContestantRow]) -> list[str]:
    return [f"{row.name}: {reason}" for row in rows for reason in row.reasons]


def _bullets(title: str, lines: Sequence[str]) -> str:
    if not lines:
        return ""
    return "\n".join([f"## {title}", "", *(f"- {plain(line)}" for line in lines)])


def _steps(result: BakeoffResult) -> str:
    lines = [
        (
            row.name,
            str(step.concurrency),
            bounded(step.ttft_p95_ms),
            bounded(step.tpot_p95_ms),
            bounded(step.tokens_per_s),
            bounded(step.cost),
            failed_words(step.failed),
        )
        for row in result.in_order
        for step in row.steps
    ]
    if not lines:
        return ""
    names = ("contestant", "in flight", "TTFT p95", "TPOT p95", "tokens/s")
    cost = f"{result.file.currency}/Mtok"
    table = _table((*names, cost, "failed"), lines)
    return f"## Every step of the load\n\n{table}\n\n{plain(overhead_words(result))}"


def _lanes(result: BakeoffResult) -> str:
    lines = lane_cells(result)
    return f"## Every lane\n\n{_table(lane_heads(result), lines)}" if lines else ""


def _who(row: ContestantRow, currency: str) -> str:
    judged = "".join(f"; {name}: {text}" for name, text in row.advisers)
    return f"{row.name}: {identity_words(row)}; price {price_words(row, currency)}{judged}"


def _table(names: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    def line(texts: Iterable[str]) -> str:
        return f"| {' | '.join(plain(text) for text in texts)} |"

    return "\n".join([line(names), "|" + "---|" * len(names), *map(line, lines)])
