"""A bake-off as one page that asks nothing of the network and runs no script.

It looks like the page of a gate's report, whose style it takes.
"""

from __future__ import annotations

from importlib import resources
from string import Template
from typing import TYPE_CHECKING

from engine_pipeline.bakeoff.plots import figures
from engine_pipeline.bakeoff.say import (
    NONE,
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
from engine_pipeline.gates.html.text import attribute, shown
from engine_pipeline.gates.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine_pipeline.bakeoff.result import BakeoffResult
    from engine_pipeline.bakeoff.rows import ContestantRow

_LISTED_CASES = 12
# On a phone each cell is a line of its own, and these need none.
_EMPTY = ' class="empty"'
_MARKS = {Outcome.PASSED: "✓", Outcome.FAILED: "✕"}


def to_html(result: BakeoffResult) -> str:
    """The bake-off as a page."""
    headline, name = result.headline, result.file.name
    return _template("engine_pipeline.bakeoff").substitute(
        style=_style(),
        title=attribute(f"{headline}: bake-off {name}"),
        outcome=str(result.outcome),
        verdict=_headline(result.outcome, headline),
        name=shown(name),
        recommendation=shown(result.recommendation),
        asked=shown(asked_for(result.file)),
        load=shown(load_words(result)),
        table=_table(result),
        why=_why_not(result.in_order),
        plots=figures(result),
        flips=_list([flip.words for flip in result.flips], "No single price, limit or priority."),
        caveats=_list(result.caveats, "Nothing that these numbers would hide."),
        steps=_steps(result),
        lanes=_lanes(result),
        lane_note=shown(lane_note(result)),
        overhead=shown(overhead_words(result)),
        suites=_suites(result.in_order),
        who="".join(
            f"<dt>{shown(row.name)}</dt><dd>{shown(_who(row, result.file.currency))}</dd>"
            for row in result.in_order
        ),
    )


def _template(package: str) -> Template:
    return Template(resources.files(package).joinpath("page.html").read_text(encoding="utf-8"))


def _style() -> str:
    """The style sheet inside the page of a gate's report."""
    page = _template("engine_pipeline.gates.html").template
    return page.partition("<style>")[2].partition("</style>")[0].strip()


def _headline(outcome: Outcome, text: str) -> str:
    mark = f'<span class="mark" aria-hidden="true">{_MARKS.get(outcome, "?")}</span>'
    return f'<span class="verdict {outcome} big">{mark}{shown(text)}</span>'


def _table(result: BakeoffResult) -> str:
    names = [name[:1].upper() + name[1:] for name in heads(result.file)[2:]]
    head = "".join(f'<th scope="col">{shown(name)}</th>' for name in ("Contestant", *names))
    rows = []
    for row in result.in_order:
        place, name, *rest = cells(row)
        first = f'<span class="place">{shown(place)}</span> {shown(name)}'
        rows.append(_row("winner" if row.name in result.leaders else "", first, names, rest))
        for _, name, *rest in further_cells(row):
            rows.append(_row("further", shown(name), names, rest))
    return _whole(head, rows)


def _row(kind: str, first: str, names: Sequence[str], texts: Iterable[str]) -> str:
    rest = "".join(
        f'<td data-name="{attribute(name)}"{"" if text.strip(NONE) else _EMPTY}>{shown(text)}</td>'
        for name, text in zip(names, texts, strict=True)
    )
    return f'<tr class="{kind}"><th scope="row">{first}</th>{rest}</tr>'


def _whole(head: str, rows: Iterable[str]) -> str:
    body = "".join(rows)
    return f'<table class="bars"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _steps(result: BakeoffResult) -> str:
    names = (
        "In flight",
        "TTFT p95, ms",
        "TPOT p95, ms",
        "Tokens/s",
        f"{result.file.currency} per million",
        "Failed",
    )
    rows = [
        _row(
            "",
            shown(row.name),
            names,
            (
                str(step.concurrency),
                bounded(step.ttft_p95_ms),
                bounded(step.tpot_p95_ms),
                bounded(step.tokens_per_s),
                bounded(step.cost),
                failed_words(step.failed),
            ),
        )
        for row in result.in_order
        for step in row.steps
    ]
    head = "".join(f'<th scope="col">{shown(name)}</th>' for name in ("Contestant", *names))
    return _whole(head, rows) if rows else '<p class="none">Nobody was measured.</p>'


def _lanes(result: BakeoffResult) -> str:
    """A section of its own, where there are lanes."""
    lines = lane_cells(result)
    if not lines:
        return ""
    names = [name[:1].upper() + name[1:] for name in lane_heads(result)]
    head = "".join(f'<th scope="col">{shown(name)}</th>' for name in names)
    rows = (_row("", shown(who), names[1:], rest) for who, *rest in lines)
    return f"<h2>Every lane</h2>{_whole(head, rows)}"


def _suites(rows: Iterable[ContestantRow]) -> str:
    names = ("Suite", "Score", "Cases", "Did not pass")
    lines = [
        _row(
            "",
            shown(row.name),
            names,
            (suite.name, bounded(suite.score), str(suite.cases), _cases(suite.failed)),
        )
        for row in rows
        for suite in row.suites
    ]
    head = "".join(f'<th scope="col">{name}</th>' for name in ("Contestant", *names))
    return _whole(head, lines) if lines else '<p class="none">Nobody was asked.</p>'


def _cases(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - _LISTED_CASES} more" if len(ids) > _LISTED_CASES else ""
    return (", ".join(ids[:_LISTED_CASES]) or "none") + more


def _why_not(rows: Iterable[ContestantRow]) -> str:
    lines = [f"{row.name}: {why}" for row in rows for why in row.reasons]
    return f"<h3>Why not</h3>{_list(lines, '')}" if lines else ""


def _list(lines: Sequence[str], otherwise: str) -> str:
    if not lines:
        return f'<p class="none">{shown(otherwise)}</p>'
    return f"<ul>{''.join(f'<li>{shown(line)}</li>' for line in lines)}</ul>"


def _who(row: ContestantRow, currency: str) -> str:
    parts = [identity_words(row), f"price {price_words(row, currency)}"]
    if row.device is not None:
        parts.append(f"{row.device.cpu_model}, {row.device.cores} cores")
    if row.load_s is not None:
        parts.append(f"loaded in {row.load_s:.1f} s")
    if row.measured_at is not None:
        parts.append(f"measured {row.measured_at:%Y-%m-%d %H:%M} UTC")
    parts += [f"{name}: {text}" for name, text in row.advisers]
    return "; ".join(parts)
