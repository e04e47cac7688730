"""What must hold before anything expensive starts. Pure over a machine's values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.compat.releases import find_release
from engine_pipeline.nvml.rules import Demand, fitting
from engine_pipeline.spec.hardware import GpuSku, find_sku, matches_host
from engine_pipeline.spec.model import EngineKind
from engine_registry.errors import Incompatible, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from engine_pipeline.build.machine import Machine
    from engine_pipeline.build.plan import Step
    from engine_pipeline.spec.lock import BuildLock

# Estimates of output sizes are upper bounds for the formats known; a quarter more covers scratch
# files and what the file system itself needs.
DISK_MULTIPLE = 1.25
_TRTLLM = frozenset({EngineKind.TRTLLM_ENGINE, EngineKind.TRTLLM_CHECKPOINT})


def check_target(lock: BuildLock, machine: Machine) -> None:
    """Refuse to build for another SKU than this machine is.

    Raises:
        Incompatible: `target-not-this-machine`, with both sides.
    """
    target = lock.spec.target
    fit = matches_host(find_sku(target.sku), machine.host, target.parallelism.world_size)
    if not fit.fits:
        raise Incompatible(
            f"{lock.spec.name}: {fit.reason}",
            hint="run it on a machine of that SKU; `enginectl doctor` lists what this one can do",
            reference="target-not-this-machine",
        )


def gpu_demand(lock: BuildLock) -> Demand | None:
    """The boards that a lock's target asks for; None for a CPU."""
    target, backend = lock.spec.target, lock.spec.backend
    sku = find_sku(target.sku)
    if not isinstance(sku, GpuSku):
        return None
    release = find_release(backend.version) if backend.kind in _TRTLLM else None
    return Demand(
        sku=sku,
        ranks=target.parallelism.world_size,
        driver=release.driver if release is not None else None,
    )


def check_gpus(lock: BuildLock, machine: Machine) -> None:
    """Refuse a machine whose boards or driver are not what the lock asks for, by rule.

    Whether they are free is looked at when a step leases them.

    Raises:
        Incompatible: see `nvml.rules.fitting`.
    """
    demand = gpu_demand(lock)
    if demand is not None and machine.inventory is not None:
        fitting(machine.inventory, demand)


def check_tools(lock: BuildLock, installed: Mapping[str, str]) -> None:
    """Refuse to build with other tools than the lock names.

    Raises:
        Incompatible: `tool-version-differs`, with both sides of each.
    """
    differing = [
        f"{name}: lock {lock.tools.get(name, 'none')}, installed {installed.get(name, 'none')}"
        for name in sorted({*lock.tools, *installed})
        if lock.tools.get(name) != installed.get(name)
    ]
    if differing:
        raise Incompatible(
            f"{lock.spec.name}: tools differ from the lock: {'; '.join(differing)}",
            hint="install the locked versions, or run `enginectl lock` and review what moved",
            reference="tool-version-differs",
        )


def check_room(steps: Iterable[Step], machine: Machine, free_disk_bytes: int) -> None:
    """Refuse to start what will not fit.

    Args:
        steps: those that have to run.
        machine: this one.
        free_disk_bytes: where their outputs go.

    Raises:
        Unavailable: `disk-short` or `ram-short`, with need and what is there.
    """
    steps = tuple(steps)
    disk = int(sum(step.disk_bytes for step in steps) * DISK_MULTIPLE)
    if disk > free_disk_bytes:
        raise Unavailable(
            f"{', '.join(step.name for step in steps)}: need {_gib(disk)} of disk "
            f"({DISK_MULTIPLE} times the expected outputs), {_gib(free_disk_bytes)} free",
            hint="free space, or choose another place with --cache-dir",
            reference="disk-short",
        )
    for step in steps:
        if step.ram_bytes > machine.ram_free_bytes:
            raise Unavailable(
                f"step {step.name} needs {_gib(step.ram_bytes)} of memory, "
                f"{_gib(machine.ram_free_bytes)} of {_gib(machine.ram_bytes)} free",
                hint="free memory or use a larger machine",
                reference="ram-short",
            )


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.2f} GiB"
