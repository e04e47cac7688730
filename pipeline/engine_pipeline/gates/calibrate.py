"""Measures one engine against itself: the gate's load again and again, each time a fresh server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from engine_pipeline.gates.calibration import (
    BARS,
    LEAST_RUNS,
    ErrorRates,
    GateCalibration,
    evidence,
    load_of,
)
from engine_pipeline.gates.client import ChatClient
from engine_pipeline.gates.foreign import foreign_share, processor_time
from engine_pipeline.gates.performance import measure
from engine_registry.errors import CouldNotJudge

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from engine_pipeline.gates.paired_run import Starts
    from engine_pipeline.gates.policy import PerformanceBars
    from engine_pipeline.gates.report import PerformanceResult
    from engine_pipeline.progress import Progress
    from engine_registry.digest import Digest


def calibrate(
    *,
    engine: Digest,
    starter: Starts,
    bars: PerformanceBars,
    rates: ErrorRates,
    runs: int,
    max_foreign_cpu: float,
    timeout_s: float,
    progress: Progress,
    clock: Callable[[], datetime],
) -> GateCalibration:
    """Make `runs` runs and say where the bars stand.

    Args:
        engine: what is measured.
        starter: how it is started.
        bars: the load, and the bars as they stand.
        rates: what proposed bars are chosen for.
        runs: how many to make; disturbed ones are dropped and not made again.
        max_foreign_cpu: a run is disturbed if others used more of the processor time.
        timeout_s: longest wait for one answer.
        progress: told of each run.
        clock: aware UTC time.

    Raises:
        DidNotLoad, CouldNotServe: there is no server to measure.
        CouldNotJudge: too few runs count, or requests failed.
    """
    values: dict[str, list[float]] = {metric: [] for metric, _ in BARS.values()}
    dropped = 0
    for number in range(1, runs + 1):
        progress.phase("calibrate", f"run {number} of {runs}")
        result, foreign = _run(starter, bars, timeout_s, progress)
        if result.failed:
            kinds = ", ".join(f"{count} {kind}" for kind, count in result.failed.items())
            raise CouldNotJudge(
                f"run {number} of engine {engine.short}: requests failed: {kinds}",
                hint="calibrate with an engine that bears the load: `enginectl gate` says why not",
                reference="calibration-requests-failed",
            )
        if foreign is not None and foreign > max_foreign_cpu:
            progress.note(f"run {number} does not count: others used {foreign:.0%} of the time")
            dropped += 1
            continue
        for metric, kept in values.items():
            one = result.metrics.get(metric)
            if one is not None and one.value is not None:
                kept.append(one.value)
    if runs - dropped < LEAST_RUNS:
        raise CouldNotJudge(
            f"{runs - dropped} of {runs} runs count, {LEAST_RUNS} are needed: others used more "
            f"than {max_foreign_cpu:.0%} of the processor time during the rest",
            hint="calibrate again when the machine is quiet, or with more --runs",
            reference="calibration-too-few-runs",
        )
    return GateCalibration(
        engine=engine,
        at=clock(),
        load=load_of(bars),
        rates=rates,
        dropped=dropped,
        bars=evidence(values, bars, rates),
    )


def _run(
    starter: Starts, bars: PerformanceBars, timeout_s: float, progress: Progress
) -> tuple[PerformanceResult, float | None]:
    with starter.serve() as server:

        def gone() -> str | None:
            ended = server.ended()
            return None if ended is None else f"the server {ended.words}"

        async def load() -> PerformanceResult:
            async with ChatClient(server.endpoint, timeout_s=timeout_s) as client:
                return await measure(client, bars, progress=progress, gone=gone)

        before = processor_time() if starter.is_ours else None
        result = asyncio.run(load())
        after = processor_time() if starter.is_ours else None
    return result, foreign_share(before, after)
