"""The table of everything that was judged, live beside candidate. On a phone each row is a card.

Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.html.text import cut, shown, verdict
from engine_pipeline.gates.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.differences import Row

_HEAD = ("Metric", "Live", "Candidate", "Difference", "Bar", "Verdict")
_REASON_CHARS = 600
_DASH = '<span class="none">–</span>'
# Left out where a row is a card.
_EMPTY = ' class="empty"'


def bars(rows: Sequence[Row], *, has_live: bool) -> str:
    """The rows with a verdict, then, folded, those that are only reported."""
    judged = [row for row in rows if row.outcome is not None]
    rest = [row for row in rows if row.outcome is None]
    parts = [_table(judged, has_live=has_live)]
    if rest:
        more = "1 more number" if len(rest) == 1 else f"{len(rest)} more numbers"
        parts.append(
            f"<details><summary>{more}, without a bar</summary>"
            f"{_table(rest, has_live=has_live)}</details>"
        )
    return "".join(parts)


def _table(rows: Sequence[Row], *, has_live: bool) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in _HEAD)
    body = "".join(_row(row, has_live=has_live) for row in rows)
    return f'<table class="bars"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _row(row: Row, *, has_live: bool) -> str:
    none = "" if has_live else '<span class="none">no baseline</span>'
    bounds = f'<small title="95 % bounds">{shown(row.bounds)}</small>' if row.bounds else ""
    word = verdict(row.outcome) if row.outcome is not None else '<span class="none">no bar</span>'
    cells = (
        ("Live", none or _or_dash(row.live)),
        ("Candidate", f"<strong>{shown(row.candidate)}</strong>{bounds}"),
        ("Difference", _or_dash(row.difference)),
        ("Bar", _or_dash(row.bar)),
        ("Verdict", word),
    )
    # Where a bar was met, the numbers beside it say all there is.
    met = row.outcome is Outcome.PASSED and row.bar is not None
    why = (
        f"<small>{shown(cut(row.reason, _REASON_CHARS))}</small>" if row.reason and not met else ""
    )
    first = f'<th scope="row">{shown(row.title)}{why}</th>'
    rest = "".join(
        f'<td data-name="{name}"{_EMPTY if text == _DASH else ""}>{text}</td>'
        for name, text in cells
    )
    return f'<tr class="{row.outcome or "open"}">{first}{rest}</tr>'


def _or_dash(text: str | None) -> str:
    return _DASH if text is None else shown(text)
