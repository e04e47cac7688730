"""Refuses builds that could not be loaded on the board they are for. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.capacity.estimate import Sizing, estimate, sizing_of_spec
from engine_pipeline.spec.hardware import GpuSku, find_sku
from engine_registry.errors import Incompatible

if TYPE_CHECKING:
    from engine_pipeline.backends.port import EngineFacts
    from engine_pipeline.capacity.estimate import Capacity
    from engine_pipeline.spec.lock import BuildLock
    from engine_pipeline.spec.model import BuildSpec
    from engine_pipeline.spec.shape import ModelShape

_GIB = 1 << 30


def memory_bytes_of(sku: str) -> int | None:
    """Memory of one board of this SKU; None for CPUs, and where no figure is known."""
    found = find_sku(sku)
    if isinstance(found, GpuSku) and found.memory_mib is not None:
        return found.memory_mib << 20
    return None


def capacity_on(sizing: Sizing, sku: str) -> Capacity | None:
    """The estimate for a SKU; None where its memory is not known."""
    memory = memory_bytes_of(sku)
    return None if memory is None else estimate(sizing, memory)


def sizing_of_facts(facts: EngineFacts) -> Sizing | None:
    """What an inspected engine needs room for; None where its files do not tell it all."""
    stated = facts.details.get("sizing")
    return None if stated is None else Sizing.model_validate(stated)


def bytes_to_load(lock: BuildLock) -> int | None:
    """Memory that one rank needs on its target's board; None where it cannot be said."""
    if lock.shape is None:
        return None
    found = capacity_on(sizing_of_spec(lock.spec, lock.shape), lock.spec.target.sku)
    return None if found is None else found.needed_bytes


def refuse_unloadable(spec: BuildSpec, shape: ModelShape | None) -> None:
    """Refuse a spec whose engine cannot be loaded on its target.

    Says nothing where the model's shape or the board's memory is not known.

    Raises:
        Incompatible: `does-not-fit-memory`, with what is needed, of what, and what there is.
    """
    if shape is None:
        return
    sizing = sizing_of_spec(spec, shape)
    found = capacity_on(sizing, spec.target.sku)
    if found is None or found.loads:
        return
    ranks = sizing.tensor * sizing.pipeline
    raise Incompatible(
        f"{spec.name} does not fit {spec.target.sku}: each of {ranks} rank(s) needs "
        f"{_gib(found.needed_bytes)} ({_gib(found.weights_bytes)} weights, "
        f"{_gib(found.activation_bytes)} activations for {spec.limits.max_batch_tokens} tokens, "
        f"{_gib(found.reserve_bytes)} reserve, {_gib(found.cache_bytes_per_sequence)} KV cache of "
        f"one sequence of {spec.limits.max_sequence_tokens} tokens), a board has "
        f"{_gib(found.memory_bytes)}",
        hint=_way_out(found),
        reference="does-not-fit-memory",
    )


def _way_out(found: Capacity) -> str:
    if found.weights_bytes > found.memory_bytes * 0.9:
        return (
            "raise target.parallelism.tensor, or choose smaller precision.weights or a larger board"
        )
    return "lower limits.max_batch_tokens or max_sequence_tokens, or raise tensor parallelism"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / _GIB:.1f} GiB"
