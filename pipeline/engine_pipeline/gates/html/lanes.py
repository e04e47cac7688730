"""The lanes of a report as HTML. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.html.plots import lane_distributions
from engine_pipeline.gates.html.text import shown
from engine_pipeline.gates.lane_words import HEAD, lane_facts, step_facts, step_rows, step_title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.lane_result import LaneResult, LaneStep
    from engine_pipeline.gates.report import Report


def lanes(report: Report, live: Report | None) -> str:
    """One part for each lane; nothing if there are none."""
    return "".join(_lane(lane, report, live) for lane in report.lanes)


def _lane(lane: LaneResult, report: Report, live: Report | None) -> str:
    steps = (_step(step) + lane_distributions(lane, step, report, live) for step in lane.steps)
    return f"<h3>Lane {shown(lane.name)}</h3>{facts_list(lane_facts(lane))}{''.join(steps)}"


def _step(step: LaneStep) -> str:
    head = "".join(f'<th scope="col">{shown(name)}</th>' for name in HEAD)
    body = "".join(_row(row) for row in step_rows(step))
    return (
        f"<h4>{shown(step_title(step))}</h4>"
        f'<div class="scroll" tabindex="0"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>{facts_list(step_facts(step))}"
    )


def _row(cells: tuple[str, ...]) -> str:
    first, *rest = cells
    values = "".join(f"<td>{shown(cell)}</td>" for cell in rest)
    return f'<tr><th scope="row">{shown(first)}</th>{values}</tr>'


def facts_list(facts: Sequence[str]) -> str:
    """A list of sentences; nothing if there are none."""
    items = "".join(f"<li>{shown(fact)}</li>" for fact in facts)
    return f"<ul>{items}</ul>" if items else ""
