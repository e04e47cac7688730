"""What must be met to be taken, and what is to be made as good as possible after that. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Discriminator, Field, Tag, field_validator

from engine_pipeline.gates.lane_bars import METRICS
from engine_registry.documents import Value
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine_pipeline.gates.lane_bars import LaneBars

Bar = Annotated[float, Field(gt=0.0, le=1e9, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0.0, le=1.0)]
# Of these more is better, of every time less.
FLOORS = {
    "good_share": "min_good_share",
    "good_per_s": "min_good_per_s",
    "output_tokens_per_s": "min_output_tokens_per_s",
}


class Priority(StrEnum):
    """What can be made as good as possible once every limit is met."""

    COST = "cost"
    QUALITY = "quality"
    SPEED = "speed"


class LaneGoal(Value):
    """One number of one lane, made as good as possible; of several steps the last one's.

    Attributes:
        lane: by its name in `lanes`.
        metric: a time, as `ttft_p95_ms`, or `good_share` or `good_per_s`.
    """

    lane: Slug
    metric: str

    @field_validator("metric")
    @classmethod
    def _is_measured(cls, metric: str) -> str:
        # Tokens per second alone can be had by making people wait, so they are no goal here.
        known = (*METRICS, "good_share", "good_per_s")
        if metric not in known:
            msg = f"no metric {metric}; there are {', '.join(known)}"
            raise ValueError(msg)
        return metric

    def __str__(self) -> str:
        return f"{metric_words(self.metric)} of {self.lane}"


def _form(goal: Any) -> str:
    return "lane" if isinstance(goal, LaneGoal | dict) else "word"


# Told apart by their form, so that what is wrong with one is not said of the other.
Goal = Annotated[
    Annotated[Priority, Tag("word")] | Annotated[LaneGoal, Tag("lane")], Discriminator(_form)
]


class Limits(Value):
    """What a contestant must meet to be taken at all; the bars of `lanes` are met besides.

    Attributes:
        min_score: least mean score over all cases of all suites.
        max_ttft_p95_ms: most time to the first token, at a step of the load.
        max_tpot_p95_ms: most time per further token, at the same step.
        min_structured_share: least share of structured answers that fit their schema.
    """

    min_score: Share | None = None
    max_ttft_p95_ms: Bar | None = None
    max_tpot_p95_ms: Bar | None = None
    min_structured_share: Share | None = None


def lane_limits(lanes: Mapping[str, LaneBars]) -> Iterator[tuple[str, str, float]]:
    """Each bar of each lane: lane, metric, bar."""
    for name, bars in lanes.items():
        for metric, bar in sorted(bars.ceilings.items()):
            yield name, metric, bar
        for metric, field in FLOORS.items():
            if (floor := getattr(bars, field)) is not None:
                yield name, metric, floor


def with_bar(bars: LaneBars, metric: str, bar: float) -> LaneBars:
    """The same lane, had the metric this bar."""
    if (field := FLOORS.get(metric)) is not None:
        return bars.model_copy(update={field: bar})
    return bars.model_copy(update={"ceilings": bars.ceilings | {metric: bar}})


def metric_words(metric: str) -> str:
    """`TTFT p95`, `goodput`."""
    if metric in FLOORS:
        return {"good_share": "goodput", "good_per_s": "good requests/s"}.get(metric, "tokens/s")
    series, quantile, _ = metric.split("_")
    return f"{series.upper()} {quantile}"
