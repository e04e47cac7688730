"""Watches this machine while a run is measured: whose processor time it was, what the GPUs did."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.gates.device_state import DeviceUse, gpu_uses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_pipeline.gates.device_state import GpuMonitor, GpuReading

_PROC = Path("/proc")
_EVERY_S = 0.5
# Fields of /proc/PID/stat after the command's name: state is 0.
_PARENT, _USER, _SYSTEM = 1, 11, 12


class Watch:
    """A run that is being watched; `use` has what was seen once it is over."""

    def __init__(self) -> None:
        self.use = DeviceUse()


@contextmanager
def watching(monitor: GpuMonitor, *, is_ours: bool = True, proc: Path = _PROC) -> Iterator[Watch]:
    """Watch the machine while the block runs.

    Args:
        monitor: of its GPUs.
        is_ours: the server is a descendant of this process, and nobody else is at work here for
            the measurement. If not, as with a server in a container, whose processor time it was
            is not known.
        proc: where the kernel tells.
    """
    watch = Watch()
    readings: list[tuple[GpuReading, ...]] = []
    over = threading.Event()

    def read_on() -> None:
        while True:
            readings.append(monitor.read())
            if over.wait(_EVERY_S):
                return

    reader = threading.Thread(target=read_on, name="device-state", daemon=True)
    before = processor_time(proc) if is_ours else None
    reader.start()
    try:
        yield watch
    finally:
        over.set()
        after = processor_time(proc) if is_ours else None
        reader.join()
        watch.use = DeviceUse(foreign_cpu=foreign_share(before, after), gpus=gpu_uses(readings))


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorTime:
    """In ticks since the machine started, over all processors.

    Attributes:
        total: all there was, idle included.
        busy: what somebody used or the hypervisor took.
        own: what this process and its descendants used, the server among them.
    """

    total: int
    busy: int
    own: int


def processor_time(proc: Path) -> ProcessorTime | None:
    """What has been used until now; None where the kernel does not tell."""
    try:
        first = (proc / "stat").read_text().splitlines()[0].split()
        # user, nice, system, idle, iowait, irq, softirq, steal: guests count as user already.
        fields = [int(field) for field in first[1:9]]
        busy = sum(fields) - fields[3] - fields[4]
    except (OSError, ValueError, IndexError):
        return None
    ticks, children = _processes(proc)
    own, family = 0, [os.getpid()]
    while family:
        pid = family.pop()
        own += ticks.get(pid, 0)
        family += children.get(pid, ())
    return ProcessorTime(total=sum(fields), busy=busy, own=own)


def _processes(proc: Path) -> tuple[dict[int, int], dict[int, list[int]]]:
    """What each process used, and the children of each."""
    ticks: dict[int, int] = {}
    children: dict[int, list[int]] = {}
    for path in proc.glob("[0-9]*/stat"):
        # A process may end while it is being looked at.
        with suppress(OSError, ValueError, IndexError):
            # The command's name may hold blanks and brackets; the last bracket ends it.
            fields = path.read_text().rpartition(")")[2].split()
            pid = int(path.parent.name)
            ticks[pid] = int(fields[_USER]) + int(fields[_SYSTEM])
            children.setdefault(int(fields[_PARENT]), []).append(pid)
    return ticks, children


def foreign_share(before: ProcessorTime | None, after: ProcessorTime | None) -> float | None:
    """The share of the machine's time that others used in between; None if it is not known."""
    if before is None or after is None or after.total <= before.total:
        return None
    busy, own = after.busy - before.busy, after.own - before.own
    return round(max(busy - own, 0) / (after.total - before.total), 4)
