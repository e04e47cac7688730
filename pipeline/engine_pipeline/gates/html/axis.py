"""A scale with round numbers beneath an inline SVG. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

WIDTH = 380
LEFT, RIGHT, BOTTOM = 40, 12, 26
_TICKS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """From left to right: `steps` parts of `step` each, from `low` on."""

    low: float
    step: float
    steps: int

    def x(self, value: float) -> float:
        """Where a value is drawn."""
        return LEFT + (value - self.low) / (self.step * self.steps) * (WIDTH - LEFT - RIGHT)

    def holds(self, value: float) -> bool:
        """Whether a value is within the picture."""
        return self.low <= value <= self.low + self.step * self.steps

    def ticks(self, height: int, unit: str) -> str:
        """Its numbers, the unit beside the last."""
        parts = []
        for tick in range(self.steps + 1):
            value = self.low + tick * self.step
            is_last = tick == self.steps
            said, side = (unit, "end") if is_last else ("", "middle")
            x = self.x(value) + (RIGHT if is_last else 0)
            parts.append(
                f'<text x="{x:.1f}" y="{height - 8}" class="{side}">{value:g}{said}</text>'
            )
        return "".join(parts)


def axis_over(least: float, most: float, narrowest: float) -> Axis:
    """One that ends on round numbers and holds both; at least so much of it is shown."""
    step = _step(max(most - least, narrowest))
    # Not to the last bit: 3 * 0.1 is more than 0.3.
    low = math.floor(round(least / step, 9)) * step
    return Axis(low=low, step=step, steps=max(math.ceil(round((most - low) / step, 9)), 1))


def _step(span: float) -> float:
    rough = span / _TICKS
    power: float = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
