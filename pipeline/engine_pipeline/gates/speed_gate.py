"""The part of a gate that makes load: `performance:`, then each of the `lanes:`.

Each is measured on the server that the golden prompts were asked of; what the client itself adds
is measured afterwards, on a server that answers at once.
"""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from engine_pipeline.gates.ending import CouldNotServe
from engine_pipeline.gates.judge import judge_performance
from engine_pipeline.gates.lane_judge import judge_lane, too_disturbed
from engine_pipeline.gates.lane_run import run_lane
from engine_pipeline.gates.load import Load
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.overhead import client_overhead
from engine_pipeline.gates.performance import measure
from engine_pipeline.gates.report import Finding
from engine_pipeline.nvml.watch import GpuWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from engine_pipeline.gates.client import ChatClient, Endpoint
    from engine_pipeline.gates.lane_result import LaneResult
    from engine_pipeline.gates.policy import GatePolicy
    from engine_pipeline.gates.report import PerformanceResult
    from engine_pipeline.progress import Progress
    from engine_pipeline.workload.model import Workload

_MOST_IN_FLIGHT = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """What was measured of speed; `why` says why nothing was."""

    performance: PerformanceResult | None = None
    lanes: tuple[LaneResult, ...] = ()
    why: str | None = None

    def findings(self, policy: GatePolicy) -> tuple[Finding, ...]:
        """Every bar's verdict, in the order of the policy."""
        if self.why is not None:
            return (Finding(name="performance", outcome=Outcome.SKIPPED, reason=self.why),)
        found: list[Finding] = []
        made = self.performance
        if policy.performance is not None and made is not None:
            why = too_disturbed(made.disturbed, made.requests)
            if why is None:
                found += judge_performance(made, policy.performance)
            else:
                open_ = Outcome.INCONCLUSIVE
                found.append(Finding(name="performance", outcome=open_, reason=why))
        lanes = policy.lanes or {}
        for lane in self.lanes:
            found += judge_lane(lane, lanes[lane.name])
        return tuple(found)


async def measure_speed(
    client: ChatClient,
    policy: GatePolicy,
    workloads: Mapping[str, Workload],
    *,
    progress: Progress,
    gone: Callable[[], str | None],
) -> Speed:
    """Make every load that the policy asks for, one after the other.

    Args:
        client: an open client.
        policy: the gate's.
        workloads: of the lanes whose workload is in a file, by lane.
        progress: told of each load.
        gone: says why there is no server any more.
    """
    if policy.performance is None and not policy.lanes:
        return Speed(why="the policy asks for none")
    if (how := gone()) is not None:
        return Speed(why=f"not measured: {how}")
    with GpuWatch() if is_near(client.endpoint) else nullcontext() as gpus:
        return await _measure(client, policy, workloads, progress, gone, gpus)


async def _measure(
    client: ChatClient,
    policy: GatePolicy,
    workloads: Mapping[str, Workload],
    progress: Progress,
    gone: Callable[[], str | None],
    gpus: GpuWatch | None,
) -> Speed:
    performance = None
    if policy.performance is not None:
        progress.phase("speed", f"{policy.performance.requests} requests")
        performance = await measure(
            client, policy.performance, progress=progress, gone=gone, gpus=gpus
        )
        if (how := gone()) is not None:
            return Speed(performance=performance, why=f"not judged: {how}")
    lanes: list[LaneResult] = []
    for name, bars in (policy.lanes or {}).items():
        workload = bars.workload or workloads[name]
        lanes.append(
            await run_lane(client, name, workload, bars, progress=progress, gone=gone, gpus=gpus)
        )
        if (how := gone()) is not None:
            return Speed(performance=performance, lanes=tuple(lanes), why=f"not judged: {how}")
    return Speed(performance=performance, lanes=tuple(lanes))


def is_near(endpoint: Endpoint) -> bool:
    """Whether an endpoint is on this machine, so that its boards are those that can be watched."""
    host = urlsplit(endpoint.base_url).hostname or ""
    return host in {"localhost", "::1"} or host.startswith("127.")


def with_overhead(speed: Speed, progress: Progress, directory: Path) -> Speed:
    """The same, and what the client itself adds with as many in flight as there ever were.

    Where that cannot be measured the report does not say it.

    Args:
        speed: what was measured; nothing is done where nothing was.
        progress: told of it.
        directory: for the log of the self-test's server.
    """
    most = [step.most_in_flight for lane in speed.lanes for step in lane.steps]
    if speed.performance is not None:
        most.append(speed.performance.concurrency)
    if not most or speed.why is not None:
        return speed
    progress.phase("speed", "the client's own overhead")
    in_flight = min(max(most), _MOST_IN_FLIGHT)
    load = Load(requests=in_flight, concurrency=in_flight, output_tokens=2)
    try:
        added = client_overhead(load, progress=progress, directory=directory)
    except CouldNotServe as error:
        progress.note(error.message)
        return speed
    performance = speed.performance
    if performance is not None:
        performance = performance.model_copy(update={"client": added})
    lanes = tuple(lane.model_copy(update={"client": added}) for lane in speed.lanes)
    return replace(speed, performance=performance, lanes=lanes)
