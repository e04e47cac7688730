"""A number between bounds, as a bake-off's document stores it. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

from engine_registry.documents import Value

if TYPE_CHECKING:
    from engine_pipeline.bakeoff.facts import Interval
    from engine_pipeline.gates.stats import Estimate


class Number(Value):
    """A value between bounds; None where there is none, or it is beyond measure."""

    low: float | None
    value: float | None
    high: float | None

    @classmethod
    def of(cls, number: Interval | Estimate) -> Self:
        """To be stored."""
        return cls(low=finite(number.low), value=finite(number.value), high=finite(number.high))


def finite(value: float) -> float | None:
    """The value to nine digits; None if it is beyond measure."""
    return float(f"{value:.9g}") if math.isfinite(value) else None
