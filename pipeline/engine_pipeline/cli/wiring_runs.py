"""The part of the composition root that decides where steps and servers run.

Steps without an image run on this machine; steps with one run in it through Docker, or with the
tools on PATH (`--runner local`, inside the toolkit's container). GPUs are leased for both.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from engine_pipeline.build.gpu_lease import GpuLeases
    from engine_pipeline.progress import Progress
    from engine_pipeline.runners.port import Runner
    from engine_pipeline.spec.lock import BuildLock


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLimits:
    """What one step may take; None leaves it to the runner.

    Attributes:
        stall_timeout_s: longest silence.
        timeout_s: longest run.
        memory_bytes: most memory of its container.
    """

    stall_timeout_s: float | None = None
    timeout_s: float | None = None
    memory_bytes: int | None = None


def runner_for(lock: BuildLock, kind: str, limits: StepLimits) -> Runner:
    """The runner for a build of `lock`; `kind` is `docker` or `local`."""
    from engine_pipeline.build.preflight import gpu_demand
    from engine_pipeline.runners import local

    here: Runner = local.LocalRunner(
        stall_timeout_s=limits.stall_timeout_s or local.STALL_TIMEOUT_S,
        timeout_s=limits.timeout_s or local.TIMEOUT_S,
    )
    demand = gpu_demand(lock)
    if lock.image is None and demand is None:
        return here
    from engine_pipeline.runners.by_image import ByImage, ToolsOnPath

    runner: Runner
    if kind == "local":
        runner = ByImage(here, ToolsOnPath(here))
    else:
        from engine_pipeline.runners.docker.runner import DockerRunner

        runner = ByImage(here, DockerRunner(here, memory_bytes=limits.memory_bytes))
    if demand is None:
        return runner
    from engine_pipeline.build.gpu_lease import LeasingRunner

    return LeasingRunner(runner, leases=_leases(), demand=demand, holder=lock.spec.name)


def place_for(
    lock: BuildLock, *, workdir: Path, progress: Progress
) -> Callable[[Any], AbstractContextManager[Any]]:
    """Where a gate's server runs: in the lock's image if it names one, else on this machine."""
    if lock.image is None:
        return nullcontext
    from engine_pipeline.build.preflight import gpu_demand
    from engine_pipeline.runners.docker.serve import ContainerServing

    @contextmanager
    def lease(count: int) -> Iterator[tuple[str, ...]]:
        demand = gpu_demand(lock)
        if demand is None or not count:
            yield ()
            return
        with _leases().lease(demand, f"gate of {lock.spec.name}", progress) as boards:
            yield tuple(board.uuid for board in boards)

    image = f"{lock.image.reference.partition('@')[0]}@{lock.image.digest}"
    return ContainerServing(image=image, workdir=workdir, progress=progress, lease=lease)


def _leases() -> GpuLeases:
    from engine_pipeline.build.gpu_lease import GpuLeases, lock_directory
    from engine_pipeline.nvml.reader import NvmlReader
    from engine_pipeline.runners.docker.orphans import clean_orphans

    return GpuLeases(
        NvmlReader(), directory=lock_directory(), environment=os.environ, sweep=clean_orphans
    )
