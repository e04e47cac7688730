"""When the requests of an open load come, in seconds from its start. Pure.

A closed load (`FixedConcurrency`) has no such times: there, a request comes when another one ends.
"""

from __future__ import annotations

import random
from itertools import accumulate
from typing import TYPE_CHECKING

from engine_pipeline.gates.workload import Bursts, Poisson

if TYPE_CHECKING:
    from engine_pipeline.gates.workload import FixedConcurrency


def arrivals(
    arrival: FixedConcurrency | Poisson | Bursts, requests: int, seed: int
) -> tuple[float | None, ...]:
    """The time of each request, never decreasing; None each for a closed load.

    The same seed gives the same times on every machine.
    """
    match arrival:
        case Poisson(rate_per_s=rate):
            draw = random.Random(f"arrivals {seed}")
            gaps = [0.0, *(draw.expovariate(rate) for _ in range(requests - 1))]
            return tuple(accumulate(gaps))
        case Bursts(size=size, every_s=every):
            return tuple(index // size * every for index in range(requests))
        case _:
            return (None,) * requests
