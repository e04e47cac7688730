"""Figures of a bake-off: for each thing that counts, a value and its interval for everybody. Pure.

Drawn as SVG by hand: no script, no font and nothing fetched.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.bakeoff.goals import metric_words
from engine_pipeline.bakeoff.lane_rows import metrics_that_count
from engine_pipeline.bakeoff.say import bounded, plain
from engine_pipeline.gates.html.text import attribute, shown

if TYPE_CHECKING:
    from engine_pipeline.bakeoff.number import Number
    from engine_pipeline.bakeoff.result import BakeoffResult
    from engine_pipeline.bakeoff.rows import ContestantRow

_WIDTH, _ROW, _TOP, _BOTTOM = 380, 26, 6, 22
_LEFT, _RIGHT = 112, 14
_NAME_CHARS = 15
# Width of a character of a tick's number, on the wide side.
_CHAR = 7.5


@dataclass(frozen=True, slots=True, kw_only=True)
class _Figure:
    """One thing that counts.

    Attributes:
        limit: the bar on it; None without.
        numbers: by contestant.
    """

    title: str
    unit: str
    limit: float | None
    numbers: dict[str, Number | None]


def figures(result: BakeoffResult) -> str:
    """A figure each for score, TTFT, TPOT, tokens per second, cost, and what counts of lanes."""
    file, rows = result.file, [row for row in result.in_order if row.at is not None]
    at = {row.name: row.at for row in rows}
    wanted = (
        _Figure(
            title="Score",
            unit="",
            limit=file.limits.min_score,
            numbers={row.name: row.score for row in rows},
        ),
        _Figure(
            title="Time to first token, p95",
            unit=" ms",
            limit=file.limits.max_ttft_p95_ms,
            numbers={name: step.ttft_p95_ms if step else None for name, step in at.items()},
        ),
        _Figure(
            title="Time per further token, p95",
            unit=" ms",
            limit=file.limits.max_tpot_p95_ms,
            numbers={name: step.tpot_p95_ms if step else None for name, step in at.items()},
        ),
        _Figure(
            title="Output tokens per second",
            unit="",
            limit=None,
            numbers={name: step.tokens_per_s if step else None for name, step in at.items()},
        ),
        _Figure(
            title="Cost of a million output tokens",
            unit=f" {file.currency}",
            limit=None,
            numbers={name: step.cost if step else None for name, step in at.items()},
        ),
        *(
            _Figure(
                title=_title(metric, lane),
                unit=" ms" if metric.endswith("_ms") else "",
                limit=bar,
                numbers={row.name: _in_lane(row, lane, metric) for row in rows},
            )
            for lane, metric, bar in metrics_that_count(file.lanes or {}, file.optimise)
        ),
    )
    return "".join(_draw(figure, rows, result.leaders) for figure in wanted)


def _title(metric: str, lane: str) -> str:
    text = f"{metric_words(metric)} of {lane}"
    return text[:1].upper() + text[1:]


def _in_lane(row: ContestantRow, lane: str, metric: str) -> Number | None:
    """At the lane's last step, as priorities have it."""
    steps = [one for one in row.lanes if one.lane == lane]
    return steps[-1].numbers.get(metric) if steps else None


def _draw(figure: _Figure, rows: list[ContestantRow], leaders: tuple[str, ...]) -> str:
    known = {
        name: number
        for name, number in figure.numbers.items()
        if number is not None and number.value is not None
    }
    if not known:
        return ""
    low, high = _range(figure, list(known.values()))
    height = _TOP + _ROW * len(rows) + _BOTTOM
    foot = height - _BOTTOM
    parts = [_axis(low, high, foot, figure.unit)]
    limit = figure.limit
    if limit is not None and low <= limit <= high:
        x = _x(limit, low, high)
        parts.append(f'<path class="line limit" d="M{x:.1f} {_TOP}V{foot}"/>')
    said = []
    for index, row in enumerate(rows):
        y = _TOP + _ROW * (index + 0.5)
        kind = "best" if row.name in leaders else ("" if row.place else "out")
        number = known.get(row.name)
        parts.append(f'<g class="{kind}">{_one(row.name, number, y, low, high)}</g>')
        said.append(f"{row.name} {bounded(number)}{figure.unit}")
    keys = "<li>dot: value, line: 95 % bounds</li>"
    if limit is not None:
        where = "" if low <= limit <= high else ", outside this picture"
        keys += f'<li><i class="key limit"></i>limit {plain(limit)}{figure.unit}{where}</li>'
    label = attribute(f"{figure.title}: {'; '.join(said)}")
    return (
        f"<figure><figcaption>{shown(figure.title)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{label}">'
        f'{"".join(parts)}</svg><ul class="keys">{keys}</ul></figure>'
    )


def _one(name: str, number: Number | None, y: float, low: float, high: float) -> str:
    cut = name if len(name) <= _NAME_CHARS else f"{name[: _NAME_CHARS - 1]}…"
    text = f'<text x="{_LEFT - 10}" y="{y + 4:.1f}" class="end who">{shown(cut)}</text>'
    if number is None or number.value is None:
        return f'{text}<text x="{_LEFT}" y="{y + 4:.1f}">not known</text>'
    left = _x(max(number.low if number.low is not None else low, low), low, high)
    right = _x(min(number.high if number.high is not None else high, high), low, high)
    value = _x(number.value, low, high)
    return (
        f'{text}<path class="range" d="M{left:.1f} {y:.1f}H{right:.1f}"/>'
        f'<circle class="dot" cx="{value:.1f}" cy="{y:.1f}" r="4.5"/>'
    )


def _range(figure: _Figure, numbers: list[Number]) -> tuple[float, float]:
    """Ends of the axis, on round numbers; the limit is in it unless that would flatten the rest."""
    ends = [
        end for n in numbers for end in (n.low, n.value, n.high) if end is not None and end >= 0
    ]
    least, most = min(ends), max(ends)
    if figure.limit is not None and figure.limit <= most * 2:
        least, most = min(least, figure.limit), max(most, figure.limit)
    start = 0.0 if least < most / 2 else least
    step = _step(max(most - start, most / 100, 1e-9))
    low, high = math.floor(start / step) * step, math.ceil(most / step) * step
    return low, high if high > low else low + step


def _step(span: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(span / 4))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= span / 4)


def _axis(low: float, high: float, foot: float, unit: str) -> str:
    step = _step(max(high - low, 1e-9))
    ticks = [low + tick * step for tick in range(round((high - low) / step) + 1)]
    end = f"{plain(round(ticks[-1], 9))}{unit}"
    # The last one has the unit, and room for it.
    room = _x(ticks[-1], low, high) + _RIGHT - _CHAR * len(end)
    parts = []
    for value in ticks:
        x = _x(value, low, high)
        last = value == ticks[-1]
        parts.append(f'<path class="grid" d="M{x:.1f} {_TOP}V{foot}"/>')
        side, at = ("end", x + _RIGHT) if last else ("middle", x)
        said = end if last else plain(round(value, 9))
        if last or x + _CHAR * len(said) / 2 < room:
            parts.append(f'<text x="{at:.1f}" y="{foot + 16}" class="{side}">{shown(said)}</text>')
    return "".join(parts)


def _x(value: float, low: float, high: float) -> float:
    return _LEFT + (value - low) / (high - low) * (_WIDTH - _LEFT - _RIGHT)
