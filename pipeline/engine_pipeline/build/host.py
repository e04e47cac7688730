"""What the machine that builds adds to an engine's identity, and what the record says of it. Pure.

A plan is measured: TensorRT times kernels on the board and keeps the fastest, and the driver both
compiles and runs them. So the driver is an input of whatever a GPU step leaves, and part of the
step's key and of the build key. CUDA and TensorRT are in the image, whose digest the keys cover.
An engine does not load any worse under another driver, as long as that is new enough: which drivers
may load it is `compat.fit`'s to say, not the key's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.compat.fit import TENSORRT, TENSORRT_LLM
from engine_pipeline.compat.releases import find_release
from engine_pipeline.spec.hardware import GpuSku, find_sku, matches_host
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.record import Platform

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_pipeline.backends.port import EngineFacts
    from engine_pipeline.build.machine import Machine
    from engine_pipeline.build.plan import Step
    from engine_pipeline.spec.model import TargetSpec

DRIVER = "driver"


def host_inputs(
    target: TargetSpec, steps: tuple[Step, ...], machine: Machine | None
) -> dict[str, str]:
    """What `machine` adds to the keys of these steps; empty where none of them uses a GPU.

    Also empty if the machine is not of the target's SKU: it cannot build this, and its driver says
    nothing of the one that will.
    """
    inventory = machine.inventory if machine is not None else None
    if machine is None or inventory is None or inventory.driver is None:
        return {}
    if not any(step.gpus for step in steps):
        return {}
    ranks = target.parallelism.world_size
    fits = matches_host(find_sku(target.sku), machine.host, ranks).fits
    return {DRIVER: inventory.driver} if fits else {}


def bound_to(host: Mapping[str, str], steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps with the host in the key of each that uses a GPU, or reads from one that does.

    A step that reads another's output although its key does not cover that (a plan without weights)
    keeps that property: its own key is what the host is added to.
    """
    if not host:
        return steps
    bound: dict[str, Step] = {}
    touched: set[str] = set()
    for step in steps:
        if step.gpus or touched & set(step.inputs):
            touched.add(step.name)
            key = Digest.of(canonical_json({"key": str(step.key), "host": dict(host)}))
            bound[step.name] = step.model_copy(update={"key": key})
        else:
            bound[step.name] = step
    return tuple(bound.values())


def host_of(platform: Platform) -> dict[str, str]:
    """What the keys of a recorded engine say of the machine that built it."""
    return {} if platform.driver is None else {DRIVER: platform.driver}


def platform_of(
    target: TargetSpec, facts: EngineFacts, host: Mapping[str, str], runtime: Mapping[str, str]
) -> Platform:
    """What the engine is bound to, for its record.

    Args:
        target: of the spec.
        facts: what the engine's files say: the versions that compiled it, read from them.
        host: as in its key.
        runtime: what loads the engine, where that is installed on this machine.
    """
    sku = find_sku(target.sku)
    versions = dict(runtime) | facts.runtime
    release = versions.get(TENSORRT_LLM)
    known = find_release(release) if release is not None else None
    return Platform(
        sku=target.sku,
        sm=sku.sm if isinstance(sku, GpuSku) else None,
        driver=host.get(DRIVER),
        cuda=known.cuda if known is not None else None,
        tensorrt=versions.get(TENSORRT),
        parallelism=target.parallelism,
        runtime=versions,
    )
