"""When requests come: as many in flight all along, or at times that no answer delays. Pure.

With `concurrency` the next request waits for an answer (a closed loop), so a slow server is asked
less often. With `poisson` and `bursts` requests come when they come (an open loop), and what a
slow server makes them wait counts.
"""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from engine_registry.documents import Value

MAX_IN_FLIGHT = 1024
Step = Annotated[int, Field(ge=1, le=MAX_IN_FLIGHT)]
PerSecond = Annotated[float, Field(gt=0.0, le=1000.0)]


class Concurrency(Value):
    """So many requests in flight, all the time, one step after the other."""

    kind: Literal["concurrency"]
    steps: Annotated[tuple[Step, ...], Field(min_length=1, max_length=12)]

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if any(one >= other for one, other in pairwise(self.steps)):
            msg = f"steps {', '.join(map(str, self.steps))} are not in ascending order"
            raise ValueError(msg)
        return self


class Poisson(Value):
    """Each request comes for itself, `rate_per_s` of them on average."""

    kind: Literal["poisson"]
    rate_per_s: PerSecond

    def times(self, seed: str, many: int) -> list[float]:
        """Seconds from the start, ascending, of `many` requests."""
        return _by_chance(self.rate_per_s, 1, seed, many)


class Bursts(Value):
    """Requests come `size` at a time; bursts come for themselves, `rate_per_s` requests on average.

    Over windows much longer than a burst, the count of requests varies `size` times as much as
    with `poisson`.
    """

    kind: Literal["bursts"]
    rate_per_s: PerSecond
    size: Annotated[int, Field(ge=2, le=MAX_IN_FLIGHT)]

    def times(self, seed: str, many: int) -> list[float]:
        """Seconds from the start, ascending, of `many` requests."""
        return _by_chance(self.rate_per_s, self.size, seed, many)


Arrival = Annotated[Concurrency | Poisson | Bursts, Field(discriminator="kind")]


def _by_chance(rate_per_s: float, size: int, seed: str, many: int) -> list[float]:
    """Times of a Poisson process of which it is known how many come in all.

    Given that, they are spread evenly by chance, so every seed offers the stated rate; without, one
    seed in twenty of 60 requests would be off by a quarter.
    """
    source = random.Random(seed)
    bursts = -(-many // size)
    starts = sorted(source.uniform(0.0, many / rate_per_s) for _ in range(bursts))
    return [at for at in starts for _ in range(size)][:many]


def describe(arrival: Arrival) -> str:
    """In a few words."""
    match arrival:
        case Concurrency():
            return f"{', '.join(map(str, arrival.steps))} in flight"
        case Poisson():
            return f"{arrival.rate_per_s:g} requests/s, Poisson"
        case Bursts():
            return f"{arrival.rate_per_s:g} requests/s in bursts of {arrival.size}"
