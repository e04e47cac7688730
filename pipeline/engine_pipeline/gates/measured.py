"""A measured number with its bounds, as reports store it. Pure."""

from __future__ import annotations

import math
from typing import Annotated, Self

from pydantic import Field

from engine_pipeline.gates.stats import Estimate
from engine_registry.documents import Value

Count = Annotated[int, Field(ge=0)]


class Measured(Value):
    """A `stats.Estimate` of something that is never negative, as it is stored.

    None stands for +inf, "beyond measure": too many requests failed, or, for `high`, there are too
    few samples for an upper bound. Where there is no lower bound, `low` is 0.
    """

    unit: str
    n: Count
    needed: Count
    value: float | None
    low: float | None
    high: float | None
    largest: float | None

    @classmethod
    def of(cls, estimate: Estimate, unit: str) -> Self:
        """To be stored, rounded to three decimals: microseconds, for times in milliseconds."""
        return cls(
            unit=unit,
            n=estimate.n,
            needed=estimate.needed,
            value=_finite(estimate.value),
            low=_finite(max(estimate.low, 0.0)),
            high=_finite(estimate.high),
            largest=_finite(estimate.largest),
        )

    @property
    def estimate(self) -> Estimate:
        """To be judged."""
        return Estimate(
            n=self.n,
            needed=self.needed,
            value=_number(self.value),
            low=_number(self.low),
            high=_number(self.high),
            largest=_number(self.largest),
        )


def _finite(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.inf if value is None else value
