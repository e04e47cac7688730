"""The state of the machine while something was measured, and when that spoils the measurement.

The rule looks at the machine alone and never at what was measured, so that dropping a run cannot
favour one engine. Values and rule are pure; readers are `device_state_host` for processors and, for
GPUs, whatever implements `GpuMonitor`.
"""

from __future__ import annotations

from collections import Counter
from math import fsum
from typing import TYPE_CHECKING, Annotated, Protocol

from pydantic import Field

from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.workload_bars import Disturbed

RULE = (
    "a round does not count when, during either of its runs, others used more than "
    "{foreign_cpu:.0%} of the machine's processor time or a GPU was throttled in more than "
    "{throttled:.0%} of its readings; the times measured are not looked at"
)


class GpuReading(Value):
    """One GPU at one moment; None: it does not tell.

    Attributes:
        throttle_reasons: why its clocks are held down against its will: heat, power, hardware;
            idling and application clocks are no such reasons.
    """

    index: Annotated[int, Field(ge=0)]
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    throttle_reasons: tuple[str, ...] = ()
    power_w: float | None = None
    memory_used_bytes: int | None = None
    temperature_c: float | None = None


class GpuMonitor(Protocol):
    """Reads the GPUs that the engine uses; quick enough to be asked twice a second."""

    def read(self) -> tuple[GpuReading, ...]:
        """Every GPU now, in order of index; empty if there is none. Never raises."""
        ...


class NoGpus:
    """The monitor of a machine without a GPU, or without a way to ask."""

    def read(self) -> tuple[GpuReading, ...]:
        """Nothing."""
        return ()


class GpuUse(Value):
    """One GPU over the time of a run; None: it does not tell.

    Attributes:
        sm_clock_mhz: mean, and `sm_clock_low_mhz` the lowest.
        throttled: by reason, the share of the readings.
    """

    index: int
    readings: Annotated[int, Field(ge=1)]
    sm_clock_mhz: float | None
    sm_clock_low_mhz: float | None
    sm_clock_max_mhz: float | None
    throttled: dict[str, float]
    power_w: float | None
    power_most_w: float | None
    memory_most_bytes: int | None
    temperature_most_c: float | None


class DeviceUse(Value):
    """The machine over the time of a run.

    Attributes:
        foreign_cpu: share of its processor time that went to others; None: it does not tell.
    """

    foreign_cpu: float | None = None
    gpus: tuple[GpuUse, ...] = ()


def gpu_uses(readings: Sequence[tuple[GpuReading, ...]]) -> tuple[GpuUse, ...]:
    """Readings over time, summed up for each GPU."""
    by_index: dict[int, list[GpuReading]] = {}
    for moment in readings:
        for reading in moment:
            by_index.setdefault(reading.index, []).append(reading)
    return tuple(_use(index, found) for index, found in sorted(by_index.items()))


def _use(index: int, readings: list[GpuReading]) -> GpuUse:
    clocks = [r.sm_clock_mhz for r in readings if r.sm_clock_mhz is not None]
    powers = [r.power_w for r in readings if r.power_w is not None]
    reasons = Counter(reason for r in readings for reason in set(r.throttle_reasons))
    memory = [r.memory_used_bytes for r in readings if r.memory_used_bytes is not None]
    heat = [r.temperature_c for r in readings if r.temperature_c is not None]
    return GpuUse(
        index=index,
        readings=len(readings),
        sm_clock_mhz=_mean(clocks),
        sm_clock_low_mhz=min(clocks, default=None),
        sm_clock_max_mhz=readings[-1].sm_clock_max_mhz,
        throttled={name: round(n / len(readings), 4) for name, n in sorted(reasons.items())},
        power_w=_mean(powers),
        power_most_w=max(powers, default=None),
        memory_most_bytes=max(memory, default=None),
        temperature_most_c=max(heat, default=None),
    )


def _mean(values: list[float]) -> float | None:
    return round(fsum(values) / len(values), 1) if values else None


def disturbance(use: DeviceUse, limits: Disturbed) -> str | None:
    """What spoilt a run, in words; None if nothing did, as far as the machine tells."""
    if use.foreign_cpu is not None and use.foreign_cpu > limits.foreign_cpu:
        return (
            f"others used {use.foreign_cpu:.0%} of the processor time, "
            f"at most {limits.foreign_cpu:.0%} counts as quiet"
        )
    for gpu in use.gpus:
        for reason, share in gpu.throttled.items():
            if share > limits.throttled:
                return (
                    f"GPU {gpu.index} was throttled ({reason}) in {share:.0%} of the readings, "
                    f"at most {limits.throttled:.0%} counts as steady"
                )
    return None
