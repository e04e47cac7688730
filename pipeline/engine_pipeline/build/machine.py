"""What this machine is: processor, cores, memory, disk, GPUs, as far as this process may use them.

Owns asking the operating system, and has `nvml` ask the driver. What follows from the answers is
`preflight`'s and `spec.hardware`'s. Light to import: servers read their thread count here.
"""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from engine_pipeline.nvml.inventory import Inventory
    from engine_pipeline.spec.hardware import Host, HostGpu

_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine as seen from this process.

    Attributes:
        host: architecture, CPU flags and GPUs: what decides which SKUs it is.
        cores: usable ones: affinity and cgroup quota count.
        ram_bytes: all memory this process may use.
        ram_free_bytes: what of it is free now, caches counted as free.
        inventory: driver and boards in full; None where nobody asked.
    """

    host: Host
    cpu_model: str
    cores: int
    ram_bytes: int
    ram_free_bytes: int
    inventory: Inventory | None = None

    @property
    def isa(self) -> str:
        """Highest instruction-set level it has: `x86-64-v3`, `aarch64`."""
        from engine_pipeline.spec.hardware import CpuSku, skus_of_host

        levels = [sku.name for sku in skus_of_host(self.host) if isinstance(sku, CpuSku)]
        return levels[-1].removeprefix("cpu-") if levels else self.host.architecture

    @property
    def host_class(self) -> str:
        """What machines whose measurements may be compared have in common, for reports."""
        gpus = "".join(f", {gpu.name}" for gpu in self.host.gpus)
        gib = round(self.ram_bytes / (1 << 30))
        return f"{self.cpu_model}, {self.isa}, {self.cores} cores, {gib} GiB{gpus}"


def this_machine() -> Machine:
    """Read it now."""
    from engine_pipeline.nvml.reader import NvmlReader
    from engine_pipeline.spec.hardware import Host

    inventory = NvmlReader().read()
    info = _cpu_info()
    total, free = _memory()
    flags = info.get("flags") or info.get("Features") or ""
    return Machine(
        host=Host(
            architecture=platform.machine(),
            flags=frozenset(flags.split()),
            gpus=host_gpus(inventory),
        ),
        cpu_model=info.get("model name") or platform.machine(),
        cores=usable_cores(),
        ram_bytes=total,
        ram_free_bytes=free,
        inventory=inventory,
    )


def usable_cores() -> int:
    """Cores this process may keep busy, at least one."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    quota = cgroup_cores(_read(_CGROUP / "cpu.max"))
    return max(1, cores if quota is None else min(cores, quota))


def cgroup_cores(cpu_max: str) -> int | None:
    """Whole cores granted by a cgroup v2 `cpu.max`, rounded up; None without a limit."""
    parts = cpu_max.split()
    if len(parts) != 2 or not all(part.isdigit() for part in parts) or int(parts[1]) == 0:
        return None
    return max(1, -(-int(parts[0]) // int(parts[1])))


def free_disk_bytes(path: Path) -> int:
    """Free bytes for this user where `path` lies or would be created."""
    place = path.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def host_gpus(inventory: Inventory) -> tuple[HostGpu, ...]:
    """The part of an inventory that decides which SKUs a machine is."""
    from engine_pipeline.spec.hardware import HostGpu

    return tuple(
        HostGpu(name=board.name, memory_mib=board.memory_mib, sm=board.sm)
        for board in inventory.boards
    )


def _memory() -> tuple[int, int]:
    """All memory and free memory in bytes, within the cgroup's limit."""
    fields = {}
    for line in _read(Path("/proc/meminfo")).splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if number and number[0].isdigit():
            fields[name] = int(number[0]) * 1024
    if "MemTotal" not in fields:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return total, total
    total, free = fields["MemTotal"], fields.get("MemAvailable", fields["MemTotal"])
    limit = _read(_CGROUP / "memory.max").strip()
    if limit.isdigit() and int(limit) < total:
        total = int(limit)
        used = _read(_CGROUP / "memory.current").strip()
        free = min(free, total - int(used) if used.isdigit() else total)
    return total, max(0, free)


def _cpu_info() -> dict[str, str]:
    info: dict[str, str] = {}
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        name, colon, value = line.partition(":")
        if colon:
            info.setdefault(name.strip(), value.strip())
    return info


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
