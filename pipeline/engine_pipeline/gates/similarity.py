"""How near two texts are: the cosine of their embeddings, and what is no embedding. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

# What is shown is what is compared; the same text embedded twice differs in the sixth decimal
# where a server batches it with another one.
DECIMALS = 4
# The largest models that are published have some ten thousand.
MAX_NUMBERS = 65_536


class NoEmbedding(ValueError):
    """A text has no embedding that could be compared, and why."""


class Similarity(Value):
    """How near an answer came to the nearest of its references.

    Attributes:
        value: cosine of the two embeddings, rounded to four decimals.
        at_least: the bar.
    """

    value: Annotated[float, Field(ge=-1.0, le=1.0)]
    at_least: float

    @property
    def reached(self) -> bool:
        """Whether the answer is near enough."""
        return self.value >= self.at_least


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine of the angle between two vectors, from -1 to 1, however long they are.

    Raises:
        NoEmbedding: they have different numbers of numbers, or one has no direction.
    """
    if len(one) != len(other):
        msg = f"{len(one)} numbers cannot be compared with {len(other)}"
        raise NoEmbedding(msg)
    products = (x * y for x, y in zip(_direction(one), _direction(other), strict=True))
    return max(-1.0, min(1.0, math.fsum(products)))


def _direction(vector: Sequence[float]) -> list[float]:
    # Divided by the largest first: squares of very large and very small numbers do not exist.
    largest = max(map(abs, vector), default=0.0)
    if largest == 0.0:
        msg = f"{len(vector)} zeros point nowhere"
        raise NoEmbedding(msg)
    scaled = [number / largest for number in vector]
    length = math.hypot(*scaled)
    return [number / length for number in scaled]


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """`cosine` as it is shown and compared; raises as it does."""
    return round(cosine(one, other), DECIMALS)


def read_embedding(answer: dict[str, Any]) -> tuple[float, ...]:
    """The vector in an answer of `/v1/embeddings` to a single text.

    Raises:
        NoEmbedding: there is none, or it cannot be compared with any other.
    """
    data = answer.get("data")
    if not isinstance(data, list) or len(data) != 1 or not isinstance(data[0], dict):
        msg = "not an answer of this API: want `data` with one entry"
        raise NoEmbedding(msg)
    numbers = data[0].get("embedding")
    if not isinstance(numbers, list) or not 0 < len(numbers) <= MAX_NUMBERS:
        what = f"{len(numbers)} numbers" if isinstance(numbers, list) else type(numbers).__name__
        msg = f"not an answer of this API: `embedding` is {what}, want a list of numbers"
        raise NoEmbedding(msg)
    for place, number in enumerate(numbers, start=1):
        if not _is_finite(number):
            # Servers write what is not finite as null, since JSON has no word for it.
            said = "null" if number is None else repr(number)[:20]
            msg = f"number {place} of {len(numbers)} is {said}, want a finite one"
            raise NoEmbedding(msg)
    vector = tuple(map(float, numbers))
    if not any(vector):
        msg = f"all of its {len(vector)} numbers are zero"
        raise NoEmbedding(msg)
    return vector


def _is_finite(number: Any) -> bool:
    if not isinstance(number, int | float) or isinstance(number, bool):
        return False
    try:
        return math.isfinite(number)
    except OverflowError:  # a whole number that no float can hold
        return False
