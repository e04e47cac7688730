"""What each round of a comparison in turn found, as inline SVG: a dot a round, 1 is live. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from engine_pipeline.gates.html.axis import BOTTOM, LEFT, RIGHT, WIDTH, Axis, axis_over
from engine_pipeline.gates.html.text import attribute, shown
from engine_pipeline.gates.words import title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.paired_result import Comparison, PairedResult

_TOP, _ROW = 8, 44
_DOT = 3.5
# Of the axis: rounds that all found the same are no reason to draw it wide.
_NARROWEST = 0.02


def ratios(result: PairedResult) -> str:
    """A figure with a row for each metric; nothing without a round that counts."""
    told = [one for one in result.comparisons if one.log_ratios]
    if not told:
        return ""
    axis = _axis(told)
    height = _TOP + _ROW * len(told) + BOTTOM
    rows = "".join(_row(one, axis, _TOP + _ROW * n) for n, one in enumerate(told))
    said = "; ".join(map(_summary, told))
    keys = (
        '<li><i class="key candidate"></i>95 % bounds; a dot for each round</li>'
        '<li><i class="key live"></i>as fast as live</li>'
        '<li><i class="key limit"></i>the smallest slowdown worth catching</li>'
    )
    label = attribute(f"Candidate over live, round by round. {said}")
    return (
        "<figure><figcaption>Candidate over live, round by round</figcaption>"
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}">'
        f"{_upright(1.0, 'live', axis, height)}{rows}{axis.ticks(height, ' ×')}</svg>"
        f'<ul class="keys">{keys}</ul></figure>'
    )


def _axis(told: Sequence[Comparison]) -> Axis:
    values = [1.0]
    for one in told:
        values += [math.exp(ratio) for ratio in one.log_ratios]
        values += [value for value in (one.low, one.high) if value is not None]
        values.append(1 + one.smallest_change)
    return axis_over(min(values), max(values), _NARROWEST)


def _summary(one: Comparison) -> str:
    bounds = "" if one.low is None or one.high is None else f" ({one.low:.3f} to {one.high:.3f})"
    return f"{title(one.metric)}: {_ratio(one)}{bounds} over {len(one.log_ratios)} rounds"


def _ratio(one: Comparison) -> str:
    return "no ratio yet" if one.ratio is None else f"{one.ratio:.3f} ×"


def _row(one: Comparison, axis: Axis, top: int) -> str:
    y = top + 30
    parts = [
        # The rest is in the table of what was judged.
        f'<text x="{LEFT + 5}" y="{top + 15}">{shown(title(one.metric))}: {_ratio(one)}</text>',
        f'<path class="grid" d="M{LEFT} {y}H{WIDTH - RIGHT}"/>',
    ]
    bar = axis.x(1 + one.smallest_change)
    parts.append(f'<path class="line limit" d="M{bar:.1f} {y - 9}V{y + 9}"/>')
    if one.low is not None and one.high is not None:
        parts.append(
            f'<path class="line candidate" d="M{axis.x(one.low):.1f} {y}H{axis.x(one.high):.1f}"/>'
        )
    for ratio in one.log_ratios:
        x = axis.x(math.exp(ratio))
        parts.append(f'<circle class="dot" cx="{x:.1f}" cy="{y}" r="{_DOT}"/>')
    return "".join(parts)


def _upright(value: float, name: str, axis: Axis, height: int) -> str:
    return f'<path class="line {name}" d="M{axis.x(value):.1f} {_TOP}V{height - BOTTOM}"/>'
