"""How long prompts or answers are: a distribution of token counts, as people write it. Pure.

Each kind gives the length at a quantile, so that a run draws them evenly spread over the
distribution (`evenly`) and a short run stands for it nearly as well as a long one.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from itertools import accumulate, pairwise
from statistics import NormalDist
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_TOKENS = 131_072
MAX_BINS = 200
# So many draws are spread evenly; then the next so many, in another order.
_STRATA = 64

Tokens = Annotated[int, Field(ge=1, le=MAX_TOKENS)]


class Fixed(Value):
    """Always as long."""

    kind: Literal["fixed"]
    tokens: Tokens

    def at(self, quantile: float) -> int:  # noqa: ARG002
        """The length."""
        return self.tokens


class Uniform(Value):
    """Every length from `low` to `high` as often."""

    kind: Literal["uniform"]
    low: Tokens
    high: Tokens

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            msg = f"low {self.low} is more than high {self.high}"
            raise ValueError(msg)
        return self

    def at(self, quantile: float) -> int:
        """The length below which `quantile` of all lengths lie."""
        return min(self.low + int(quantile * (self.high - self.low + 1)), self.high)


class Lognormal(Value):
    """Many short ones and a long tail, as prompts of people are.

    Attributes:
        median: half of the lengths are below.
        sigma: deviation of the logarithm; at 1, one in six is longer than 2.7 times the median.
        low: shorter ones are as long as this.
        high: longer ones are as long as this.
    """

    kind: Literal["lognormal"]
    median: Tokens
    sigma: Annotated[float, Field(gt=0.0, le=4.0)]
    low: Tokens = 1
    high: Tokens = MAX_TOKENS

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low <= self.median <= self.high:
            msg = f"median {self.median} is not between low {self.low} and high {self.high}"
            raise ValueError(msg)
        return self

    def at(self, quantile: float) -> int:
        """The length below which `quantile` of all lengths lie."""
        drawn = NormalDist(math.log(self.median), self.sigma).inv_cdf(quantile)
        return max(self.low, min(round(math.exp(min(drawn, 20.0))), self.high))


class Histogram(Value):
    """As counted somewhere: `counts[i]` lengths from `edges[i]` on and below `edges[i + 1]`."""

    kind: Literal["histogram"]
    edges: Annotated[tuple[Tokens, ...], Field(min_length=2, max_length=MAX_BINS + 1)]
    counts: Annotated[tuple[Annotated[int, Field(ge=0)], ...], Field(min_length=1)]

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if len(self.counts) != len(self.edges) - 1:
            msg = f"{len(self.edges)} edges enclose {len(self.edges) - 1} counts, there are "
            raise ValueError(msg + str(len(self.counts)))
        if any(one >= other for one, other in pairwise(self.edges)):
            msg = "edges are not in ascending order"
            raise ValueError(msg)
        if not any(self.counts):
            msg = "counts are all 0"
            raise ValueError(msg)
        return self

    def at(self, quantile: float) -> int:
        """The length below which `quantile` of all lengths lie; even within a bin."""
        up_to = list(accumulate(self.counts))
        want = min(quantile, 1 - 1e-9) * up_to[-1]
        index = bisect_right(up_to, want)
        low, high = self.edges[index], self.edges[index + 1]
        inside = (want - (up_to[index] - self.counts[index])) / self.counts[index]
        return min(low + int(inside * (high - low)), high - 1)


Length = Annotated[Fixed | Uniform | Lognormal | Histogram, Field(discriminator="kind")]


def mean_tokens(length: Length) -> float:
    """The mean length, from a thousand quantiles."""
    return math.fsum(length.at((k + 0.5) / 1000) for k in range(1000)) / 1000


def describe(length: Length) -> str:
    """The distribution in a few words: its median and its tail."""
    if isinstance(length, Fixed):
        return f"{length.tokens} tokens"
    p50, p95 = length.at(0.5), length.at(0.95)
    return f"{length.kind}, p50 {p50}, p95 {p95}, mean {mean_tokens(length):.0f} tokens"


def evenly(seed: str) -> Iterator[float]:
    """Quantiles without end, in random order, every _STRATA of them spread evenly."""
    # A text seed goes through SHA-512: stable across Python versions.
    source = random.Random(seed)
    while True:
        strata = [(k + source.random()) / _STRATA for k in range(_STRATA)]
        source.shuffle(strata)
        yield from (min(max(one, 1e-9), 1 - 1e-9) for one in strata)
