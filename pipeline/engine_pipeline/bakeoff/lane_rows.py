"""What a bake-off's document says of each lane of a contestant, and how it is made. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.bakeoff.goals import LaneGoal, lane_limits
from engine_pipeline.bakeoff.number import Number
from engine_pipeline.gates.lane_judge import judge_lane
from engine_pipeline.gates.outcome import Outcome, combine
from engine_pipeline.gates.report import Count
from engine_pipeline.workload import arrival
from engine_registry.digest import Digest
from engine_registry.documents import Value
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from engine_pipeline.bakeoff.goals import Goal
    from engine_pipeline.gates.lane_bars import LaneBars
    from engine_pipeline.gates.lane_result import LaneResult, LaneStep

# Shown of every lane; what else is shown has a bar or is a priority.
SHOWN = ("ttft_p95_ms", "tpot_p95_ms", "good_share", "good_per_s", "output_tokens_per_s")


class LaneRow(Value):
    """One step of a lane.

    Attributes:
        outcome: whether the lane's bars are met, at every step.
        workload: its name; `digest` is its.
        load: what it is, in words.
        in_flight: how many were kept in flight; None where requests came at their times.
        offered_per_s: requests that came per second, where they came at their times.
        late_share: of requests that the client began with late; None where they had no times.
        numbers: by metric.
    """

    lane: Slug
    outcome: Outcome
    workload: Slug
    digest: Digest
    load: str
    in_flight: int | None
    requests: Count
    offered_per_s: float | None
    failed: dict[str, int]
    late_share: float | None
    numbers: dict[str, Number]

    @property
    def at(self) -> str:
        """Which step it is: `4`, or `2.1/s`."""
        if self.in_flight is not None:
            return str(self.in_flight)
        return "-" if self.offered_per_s is None else f"{self.offered_per_s:.3g}/s"


def metrics_that_count(
    lanes: Mapping[str, LaneBars], goals: Iterable[Goal]
) -> Iterator[tuple[str, str, float | None]]:
    """Lane, metric and bar of everything in lanes that decides something, each once."""
    barred = {(lane, metric): bar for lane, metric, bar in lane_limits(lanes)}
    wanted = [(goal.lane, goal.metric) for goal in goals if isinstance(goal, LaneGoal)]
    for lane, metric in dict.fromkeys([*wanted, *barred]):
        yield lane, metric, barred.get((lane, metric))


def lane_rows(
    results: Sequence[LaneResult], lanes: Mapping[str, LaneBars], goals: Sequence[Goal]
) -> tuple[LaneRow, ...]:
    """A row for each step of each lane."""
    shown: dict[str, list[str]] = {name: list(SHOWN) for name in lanes}
    for lane, metric, _ in metrics_that_count(lanes, goals):
        shown[lane].append(metric)
    return tuple(
        _row(lane, step, lanes[lane.name], shown[lane.name])
        for lane in results
        for step in lane.steps
    )


def _row(lane: LaneResult, step: LaneStep, bars: LaneBars, shown: Iterable[str]) -> LaneRow:
    workload = lane.workload
    ends = f"{workload.requests} requests" if workload.requests else f"{workload.duration_s:g} s"
    return LaneRow(
        lane=lane.name,
        outcome=combine(finding.outcome for finding in judge_lane(lane, bars)),
        workload=workload.name,
        digest=lane.digest,
        load=f"{ends}, {arrival.describe(workload.arrival)}",
        in_flight=step.in_flight,
        requests=step.requests,
        offered_per_s=step.offered_per_s,
        failed=step.failed,
        late_share=step.late_share,
        numbers={
            metric: Number.of(found.estimate)
            for metric in dict.fromkeys(shown)
            if (found := step.metrics.get(metric)) is not None
        },
    )
