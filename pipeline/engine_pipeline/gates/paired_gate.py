"""The paired part of a gate: who is live, may the two be compared, and what came of it."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired_result import Baseline
from engine_pipeline.gates.paired_run import compare_engines, no_comparison
from engine_pipeline.gates.report import Finding
from engine_pipeline.gates.starter import Starter
from engine_registry.errors import Incompatible

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from engine_pipeline.backends.port import Backend, ServeCommand
    from engine_pipeline.gates.paired_result import PairedResult
    from engine_pipeline.gates.policy import GatePolicy
    from engine_pipeline.progress import Progress
    from engine_registry.record import Record
    from engine_registry.registry import Registry

PAIRED = "against live"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opponent:
    """The live engine and all that starting its server takes.

    Attributes:
        runtime_config: of its own release; see `Backend.serve`.
        runtime: versions of what loads it, as it was recorded.
        place: as `run_gate`'s.
    """

    baseline: Baseline
    backend: Backend
    runtime_config: dict[str, Any]
    runtime: dict[str, str]
    place: Callable[[ServeCommand], AbstractContextManager[ServeCommand]] = nullcontext


def check_same_device(candidate: Record, live: Record) -> None:
    """Refuse to compare engines that are not for one device.

    Raises:
        Incompatible: another SKU, compute capability or number of GPUs.
    """
    for name in ("sku", "sm", "parallelism"):
        mine, theirs = getattr(candidate.platform, name), getattr(live.platform, name)
        if mine != theirs:
            raise Incompatible(
                f"{name} differs: engine {candidate.engine.short} is for {mine}, "
                f"live engine {live.engine.short} for {theirs}; their speed cannot be compared",
                hint="compare with an engine of the same target: --against MODEL/TARGET/CHANNEL",
                reference="gate-devices-differ",
            )


def compare_with_live(
    *,
    registry: Registry,
    candidate: Starter,
    opponent: Opponent | Baseline,
    policy: GatePolicy,
    so_far: Sequence[Finding],
    progress: Progress,
    directory: Path,
) -> PairedResult | None:
    """The comparison that the policy asks for; None if it asks for none.

    Args:
        registry: where the live engine's bytes are.
        candidate: how the judged engine is started.
        opponent: the live engine, or a baseline without one.
        policy: the gate's.
        so_far: what was found before; a candidate that failed already is not measured for minutes.
        progress: told of each run.
        directory: a private one, for the live engine's files.

    Raises:
        NotFound, IntegrityError: the live engine is not whole in the registry.
    """
    bars = policy.paired
    if bars is None:
        return None
    if isinstance(opponent, Baseline):
        why = opponent.why or f"nothing is live on {opponent.named}"
        return no_comparison(opponent, f"no baseline: {why}")
    baseline = opponent.baseline
    if any(finding.outcome in {Outcome.FAILED, Outcome.ERRORED} for finding in so_far):
        return no_comparison(baseline, "not compared: the engine did not get through the rest")
    if baseline.engine is None:
        return no_comparison(baseline, f"no baseline: {baseline.named} names no engine")
    progress.phase("check", f"live engine {baseline.engine.short}")
    live_dir = directory / "live"
    registry.engines.materialise(baseline.engine, live_dir)
    live = Starter(
        backend=opponent.backend,
        engine_dir=live_dir,
        runtime_config=opponent.runtime_config,
        runtime=opponent.runtime,
        log_path=directory / "live.log",
        progress=progress,
        timeout_s=policy.load_timeout_s,
        place=opponent.place,
    )
    return compare_engines(
        candidate=candidate,
        live=live,
        baseline=baseline,
        bars=bars,
        timeout_s=policy.timeout_s,
        progress=progress,
        directory=directory,
    )


def finding_of(result: PairedResult | None) -> tuple[Finding, ...]:
    """The comparison among the findings of a gate; none if the policy asks for none."""
    if result is None:
        return ()
    return (Finding(name=PAIRED, outcome=result.outcome, reason=result.reason),)
