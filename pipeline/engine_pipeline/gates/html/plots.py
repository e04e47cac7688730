"""How a latency is distributed, as inline SVG: the share of requests that were at most so slow.

A failed request is slower than any, so with failures the line ends below the top. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.gates.differences import bar_value, number
from engine_pipeline.gates.html.axis import BOTTOM, LEFT, RIGHT, WIDTH, Axis, axis_over
from engine_pipeline.gates.html.text import attribute, shown
from engine_pipeline.gates.latencies import (
    STORED,
    STORED_IN_TURN,
    Latencies,
    of_rounds,
    of_samples,
)
from engine_pipeline.gates.paired_result import Side
from engine_pipeline.gates.words import title

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine_pipeline.gates.lane_result import LaneResult, LaneStep
    from engine_pipeline.gates.paired_result import PairedResult
    from engine_pipeline.gates.report import Report

_HEIGHT, _TOP = 190, 10
_MOST_POINTS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class _Line:
    """One engine's; `name` is how it is called and, as a class, how it is drawn."""

    name: str
    times: Latencies

    def summary(self) -> str:
        middle, tail = self.times.percentile(0.5), self.times.percentile(0.95)
        lost = f", {self.times.failed} failed" if self.times.failed else ""
        return (
            f"{self.name}: p50 {_said(middle)}, p95 {_said(tail)} "
            f"({self.times.requests} requests{lost})"
        )


def distributions(report: Report, live: Report | None) -> str:
    """A figure for each kind of time that the gate's own load measured."""
    mine = report.performance
    if mine is None:
        return ""
    theirs = live.performance if live else None
    return plots(
        _figure(
            series,
            of_samples(mine.samples, series),
            of_samples(theirs.samples, series) if theirs else None,
            bar_value(report, f"{series}_p95_ms"),
        )
        for series in STORED
    )


def lane_distributions(
    lane: LaneResult, step: LaneStep, report: Report, live: Report | None
) -> str:
    """The same for one step of a lane, beside the same step of live's same lane."""
    bars = (report.policy.lanes or {}).get(lane.name)
    theirs = [
        its
        for other in (live.lanes if live else ())
        if (other.name, other.digest) == (lane.name, lane.digest)
        for its in other.steps
        if its.in_flight == step.in_flight
    ]
    return plots(
        _figure(
            series,
            of_samples(step.samples, series),
            of_samples(theirs[0].samples, series) if theirs else None,
            bars.ceilings.get(f"{series}_p95_ms") if bars else None,
        )
        for series in STORED
    )


def paired_distributions(result: PairedResult) -> list[str]:
    """A figure of both engines for each kind of time, over all rounds that count."""
    rounds = result.counted
    return [
        _figure(
            series,
            of_rounds(rounds, Side.CANDIDATE, series),
            of_rounds(rounds, Side.LIVE, series),
            None,
        )
        for series in STORED_IN_TURN
    ]


def plots(figures: Iterable[str]) -> str:
    """Figures side by side, as many as fit; nothing if all are empty."""
    drawn = "".join(figures)
    return f'<div class="plots">{drawn}</div>' if drawn else ""


def _figure(series: str, mine: Latencies, theirs: Latencies | None, bar: float | None) -> str:
    """Nothing if the candidate has no such time."""
    if not mine.values:
        return ""
    lines = [_Line(name="candidate", times=mine)]
    if theirs is not None and theirs.values:
        lines.append(_Line(name="live", times=theirs))
    axis = _axis(lines)
    said = [one.summary() for one in lines]
    keys = "".join(
        f'<li><i class="key {one.name}"></i>{shown(text)}</li>'
        for one, text in zip(lines, said, strict=True)
    )
    if bar is not None:
        where = "" if axis.holds(bar) else ", outside this picture"
        keys += f'<li><i class="key limit"></i>bar on p95: {number(bar, "ms")}{where}</li>'
    heading = title(f"{series}_p95_ms").removesuffix(", p95")
    label = attribute(f"{heading}: share of requests at most so slow. {'; '.join(said)}")
    drawn = [_grid(axis), *(_path(one, axis) for one in lines[::-1])]
    if bar is not None and axis.holds(bar):
        drawn.append(_limit(bar, axis))
    return (
        f"<figure><figcaption>{heading}</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
        f'{"".join(drawn)}</svg><ul class="keys">{keys}</ul></figure>'
    )


def _axis(lines: Sequence[_Line]) -> Axis:
    """From 0, unless that would leave more than half empty."""
    least = min(one.times.values[0] for one in lines)
    most = max(1e-3, *(one.times.values[-1] for one in lines))
    return axis_over(0.0 if least < most / 2 else least, most, most / 100)


def _y(share: float) -> float:
    return _TOP + (1 - share) * (_HEIGHT - _TOP - BOTTOM)


def _grid(axis: Axis) -> str:
    parts = []
    for share in (0.0, 0.5, 0.95):
        y = _y(share)
        parts.append(f'<path class="grid" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" class="end">{share:.0%}</text>')
    return "".join(parts) + axis.ticks(_HEIGHT, " ms")


def _path(one: _Line, axis: Axis) -> str:
    kept = one.times.values
    ranks = range(1, len(kept) + 1)
    if len(kept) > _MOST_POINTS:
        ranks_wanted = {round(n * len(kept) / _MOST_POINTS) for n in range(1, _MOST_POINTS + 1)}
        points = [(kept[rank - 1], rank) for rank in sorted(ranks_wanted)]
    else:
        points = list(zip(kept, ranks, strict=True))
    path = f"M{axis.x(kept[0]):.1f} {_y(0):.1f}"
    for value, rank in points:
        path += f"H{axis.x(value):.1f}V{_y(rank / one.times.requests):.1f}"
    return f'<path class="line {one.name}" d="{path}"/>'


def _limit(bar: float, axis: Axis) -> str:
    x = axis.x(bar)
    return f'<path class="line limit" d="M{x:.1f} {_y(1):.1f}V{_y(0):.1f}"/>'


def _said(value: float) -> str:
    return number(value, "ms") if math.isfinite(value) else "beyond measure"
