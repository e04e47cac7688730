"""This machine, as a report names what an engine was judged on. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.report import Device
from engine_pipeline.spec.hardware import GpuSku, find_sku, matches_host
from engine_registry.errors import Incompatible

if TYPE_CHECKING:
    from engine_pipeline.build.machine import Machine
    from engine_registry.record import Platform


def device_for(platform: Platform, machine: Machine) -> Device:
    """What a report says of `machine`, which is what an engine of this platform was built for.

    The driver is named for GPU targets alone: of engines for a CPU it decides nothing.

    Raises:
        Incompatible: reference `gate-other-sku`: the machine is something else, so a verdict
            given here would say nothing of that SKU.
    """
    sku = find_sku(platform.sku)
    fit = matches_host(sku, machine.host, platform.parallelism.world_size)
    inventory = machine.inventory
    if not fit.fits:
        absent = f" ({inventory.absent})" if inventory is not None and inventory.absent else ""
        raise Incompatible(
            f"the engine was built for {sku.name}, this machine is none: {fit.reason}"
            + (absent if isinstance(sku, GpuSku) else ""),
            hint="judge it on a machine of that SKU; `enginectl doctor` says what this one is",
            reference="gate-other-sku",
        )
    on_gpu = isinstance(sku, GpuSku) and inventory is not None
    return Device(
        sku=sku.name,
        host_class=machine.host_class,
        cpu_model=machine.cpu_model,
        cores=machine.cores,
        runtime=platform.runtime,
        driver=inventory.driver if on_gpu and inventory is not None else None,
    )
