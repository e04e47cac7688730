"""How a latency is distributed, as inline SVG: the share of requests that were at most so slow.

A failed request is slower than any, so with failures the line ends below the top. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.gates import stats
from engine_pipeline.gates.differences import bar_value, number
from engine_pipeline.gates.html.text import attribute, shown
from engine_pipeline.gates.words import title

if TYPE_CHECKING:
    from engine_pipeline.gates.report import PerformanceResult, Report

_WIDTH, _HEIGHT = 380, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 40, 12, 10, 26
_TICKS = 5
_MOST_POINTS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class _Series:
    """The values of one engine, sorted; `requests` counts failures too."""

    name: str
    values: list[float]
    requests: int

    def summary(self) -> str:
        failed = self.requests - len(self.values)
        everything = [*self.values, *[math.inf] * failed]
        middle, tail = (stats.percentile(everything, q) for q in (0.5, 0.95))
        lost = f", {failed} failed" if failed else ""
        return (
            f"{self.name}: p50 {_said(middle)}, p95 {_said(tail)} ({self.requests} requests{lost})"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Axis:
    """The milliseconds from left to right."""

    low: float
    step: float
    steps: int

    def x(self, value: float) -> float:
        """Where a value is drawn."""
        return _LEFT + (value - self.low) / (self.step * self.steps) * (_WIDTH - _LEFT - _RIGHT)

    def holds(self, value: float) -> bool:
        """Whether a value is within the picture."""
        return self.low <= value <= self.low + self.step * self.steps


def distributions(report: Report, live: Report | None) -> str:
    """A figure each for TTFT and TPOT, as far as they were measured."""
    figures = [_figure(name, report, live) for name in ("ttft", "tpot")]
    return f'<div class="plots">{"".join(figures)}</div>' if any(figures) else ""


def _figure(name: str, report: Report, live: Report | None) -> str:
    series = [
        made
        for who, result in (
            ("live", live.performance if live else None),
            ("candidate", report.performance),
        )
        if result is not None and (made := _series(who, name, result)).values
    ]
    if not series or series[-1].name != "candidate":
        return ""
    axis = _axis(series)
    bar = bar_value(report, f"{name}_p95_ms")
    said = [one.summary() for one in series[::-1]]
    keys = "".join(
        f'<li><i class="key {one.name}"></i>{shown(text)}</li>'
        for one, text in zip(series[::-1], said, strict=True)
    )
    if bar is not None:
        where = "" if axis.holds(bar) else ", outside this picture"
        keys += f'<li><i class="key limit"></i>bar on p95: {number(bar, "ms")}{where}</li>'
    heading = title(f"{name}_p95_ms").removesuffix(", p95")
    label = attribute(f"{heading}: share of requests at most so slow. {'; '.join(said)}")
    drawn = [_grid(axis), *(_line(one, axis) for one in series)]
    if bar is not None and axis.holds(bar):
        drawn.append(_limit(bar, axis))
    return (
        f"<figure><figcaption>{heading}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}">'
        f'{"".join(drawn)}</svg><ul class="keys">{keys}</ul></figure>'
    )


def _series(who: str, name: str, result: PerformanceResult) -> _Series:
    values = [
        value
        for sample in result.samples
        if sample.error is None
        and (value := sample.ttft_ms if name == "ttft" else sample.tpot_ms) is not None
    ]
    return _Series(name=who, values=sorted(values), requests=len(result.samples))


def _axis(series: list[_Series]) -> _Axis:
    """Ends on round numbers; from 0, unless that would leave more than half empty."""
    least = min(one.values[0] for one in series)
    most = max(1e-3, *(one.values[-1] for one in series))
    start = 0.0 if least < most / 2 else least
    step = _step(max(most - start, most / 100))
    low = math.floor(start / step) * step
    return _Axis(low=low, step=step, steps=max(math.ceil((most - low) / step), 1))


def _step(span: float) -> float:
    rough = span / _TICKS
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)


def _y(share: float) -> float:
    return _TOP + (1 - share) * (_HEIGHT - _TOP - _BOTTOM)


def _grid(axis: _Axis) -> str:
    parts = []
    for share in (0.0, 0.5, 0.95):
        y = _y(share)
        parts.append(f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>')
        parts.append(f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" class="end">{share:.0%}</text>')
    for tick in range(axis.steps + 1):
        value = axis.low + tick * axis.step
        is_last = tick == axis.steps
        unit, side = (" ms", "end") if is_last else ("", "middle")
        x = axis.x(value) + (_RIGHT if is_last else 0)
        parts.append(f'<text x="{x:.1f}" y="{_HEIGHT - 8}" class="{side}">{value:g}{unit}</text>')
    return "".join(parts)


def _line(one: _Series, axis: _Axis) -> str:
    kept = one.values
    ranks = range(1, len(kept) + 1)
    if len(kept) > _MOST_POINTS:
        ranks_wanted = {round(n * len(kept) / _MOST_POINTS) for n in range(1, _MOST_POINTS + 1)}
        points = [(kept[rank - 1], rank) for rank in sorted(ranks_wanted)]
    else:
        points = list(zip(kept, ranks, strict=True))
    path = f"M{axis.x(kept[0]):.1f} {_y(0):.1f}"
    for value, rank in points:
        path += f"H{axis.x(value):.1f}V{_y(rank / one.requests):.1f}"
    return f'<path class="line {one.name}" d="{path}"/>'


def _limit(bar: float, axis: _Axis) -> str:
    x = axis.x(bar)
    return f'<path class="line limit" d="M{x:.1f} {_y(1):.1f}V{_y(0):.1f}"/>'


def _said(value: float) -> str:
    return number(value, "ms") if math.isfinite(value) else "beyond measure"
