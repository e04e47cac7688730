"""The speed phase of a gate: every workload of the policy, each against what is live.

It comes after the golden prompts and never beside them, on servers of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.device_state import NoGpus
from engine_pipeline.gates.paired_run import Contender, Lab, measure_workload
from engine_pipeline.gates.selftest import self_testing
from engine_pipeline.gates.speed_judge import judge_workload
from engine_pipeline.gates.speed_runs import Baseline, BaselineState, Side
from engine_pipeline.gates.starter import Starter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from engine_pipeline.backends.port import Backend
    from engine_pipeline.gates.device_state import GpuMonitor
    from engine_pipeline.gates.report import Finding
    from engine_pipeline.gates.speed_runs import WorkloadResult
    from engine_pipeline.gates.workload_bars import WorkloadBars
    from engine_registry.digest import Digest
    from engine_registry.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveEngine:
    """What is live on a channel, and what serving it here takes."""

    engine: Digest
    backend: Backend
    runtime_config: dict[str, Any]
    runtime: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NothingLive:
    """Why there is nothing to compare with; NONE or UNUSABLE."""

    state: BaselineState
    reason: str
    engine: Digest | None = None


def nothing_asked(channel: str) -> NothingLive:
    """What is live, as told by somebody who knows no channel."""
    reason = f"no baseline: nobody was asked what is live on {channel}"
    return NothingLive(state=BaselineState.NONE, reason=reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeedLab:
    """Where the comparison's other half comes from, and who watches the device.

    Attributes:
        live: what is live on a channel of the candidate's product.
        monitor: reads the GPUs.
    """

    live: Callable[[str], LiveEngine | NothingLive] = nothing_asked
    monitor: GpuMonitor = field(default_factory=NoGpus)


def measure_speed(
    workloads: Sequence[WorkloadBars],
    candidate: Starter,
    engine: Digest,
    lab: SpeedLab,
    *,
    registry: Registry,
    directory: Path,
    answer_timeout_s: float,
) -> tuple[tuple[WorkloadResult, ...], tuple[Finding, ...]]:
    """The result of each workload, and the findings on all of them.

    Args:
        workloads: at least one.
        candidate: starts servers for the engine that is judged.
        engine: that engine.
        lab: where the rest comes from.
        registry: where the live engine's files are.
        directory: where they are laid out.
        answer_timeout_s: longest wait for one answer.

    Raises:
        CouldNotServe: the client's self-test cannot be made.
        NotFound, IntegrityError: bytes of the live engine are missing or wrong.
    """
    results: list[WorkloadResult] = []
    findings: list[Finding] = []
    with self_testing() as self_test:
        for bars in workloads:
            rival, baseline = _rival(bars, candidate, engine, lab, registry, directory)
            gpus = candidate.command().gpus
            result = measure_workload(
                bars,
                Contender(
                    side=Side.CANDIDATE,
                    serve=candidate.serve,
                    gpus=gpus,
                    is_ours=candidate.is_ours,
                ),
                rival,
                baseline,
                Lab(
                    self_test=self_test,
                    monitor=lab.monitor,
                    progress=candidate.progress,
                    timeout_s=answer_timeout_s,
                ),
            )
            results.append(result)
            findings += judge_workload(result, bars)
    return tuple(results), tuple(findings)


def _rival(
    bars: WorkloadBars,
    candidate: Starter,
    engine: Digest,
    lab: SpeedLab,
    registry: Registry,
    directory: Path,
) -> tuple[Contender | None, Baseline]:
    if bars.against_live is None:
        return None, Baseline(
            state=BaselineState.NOT_WANTED, reason="the policy compares with nothing"
        )
    live = lab.live(bars.against_live.channel)
    if isinstance(live, NothingLive):
        return None, Baseline(state=live.state, reason=live.reason, engine=live.engine)
    if live.engine == engine:
        reason = f"engine {engine.short} is what is live: nothing to compare"
        return None, Baseline(state=BaselineState.SAME, reason=reason, engine=engine)
    engine_dir = directory / f"live-{live.engine.short.removeprefix('sha256:')}"
    if not engine_dir.exists():
        registry.engines.materialise(live.engine, engine_dir)
    starter = Starter(
        backend=live.backend,
        engine_dir=engine_dir,
        runtime_config=live.runtime_config,
        runtime=live.runtime,
        log_path=directory / "live-server.log",
        progress=candidate.progress,
        timeout_s=candidate.timeout_s,
        place=candidate.place,
    )
    contender = Contender(
        side=Side.LIVE,
        serve=starter.serve,
        gpus=starter.command().gpus,
        is_ours=starter.is_ours,
    )
    reason = f"engine {live.engine.short}, live on {bars.against_live.channel}, in the same run"
    return contender, Baseline(state=BaselineState.COMPARED, reason=reason, engine=live.engine)
