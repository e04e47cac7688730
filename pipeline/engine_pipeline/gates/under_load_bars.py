"""What a gate asks of golden prompts while other requests are in flight. Pure.

A server that batches adds numbers in another order than one that answers a single request, so
near-ties tip and texts differ; what must not suffer is whether the answers are right.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from engine_registry.documents import Value
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from collections.abc import Iterable

Share = Annotated[float, Field(gt=0.0, le=1.0)]


class UnderLoadBars(Value):
    """A second pass over a suite; cases that must pass have to pass in it, too.

    Attributes:
        concurrency: how many requests are in flight all the time.
        tags: only cases with one of these are judged; none: all are. The others only make load.
        min_score: as `quality.min_score`, which it is if it is not given.
        min_agreement: least share of cases whose answers are the very ones of the first pass; not
            given: told, and decides nothing.
    """

    concurrency: Annotated[int, Field(ge=2, le=256)]
    tags: tuple[Slug, ...] = ()
    min_score: Share | None = None
    min_agreement: Share | None = None

    def judges(self, tags: Iterable[str]) -> bool:
        """Whether a case with these tags is judged."""
        return not self.tags or not set(self.tags).isdisjoint(tags)
