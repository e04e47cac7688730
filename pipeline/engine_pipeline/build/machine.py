"""What this machine is: instruction set, cores, memory, disk, as far as this process may use them.

Owns reading the operating system. What follows from it is `preflight`'s and `spec.hardware`'s.
Light to import: servers read their thread count here.
"""

from __future__ import annotations

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")

# Flags as /proc/cpuinfo names them for each level of the x86-64 psABI (`abm` stands for lzcnt).
_LEVELS = (
    ("x86-64-v2", {"cx16", "lahf_lm", "popcnt", "sse4_1", "sse4_2", "ssse3"}),
    ("x86-64-v3", {"abm", "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe", "xsave"}),
    ("x86-64-v4", {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A machine as seen from this process.

    Attributes:
        isa: highest instruction-set level: `x86-64-v3`, `aarch64`, ...
        levels: every level it can run, itself included.
        cores: usable ones: affinity and cgroup quota count.
        ram_bytes: all memory this process may use.
        ram_free_bytes: what of it is free now, caches counted as free.
    """

    isa: str
    levels: tuple[str, ...]
    cpu_model: str
    cores: int
    ram_bytes: int
    ram_free_bytes: int

    @property
    def host_class(self) -> str:
        """What measurements of equal machines have in common, for reports."""
        gib = round(self.ram_bytes / (1 << 30))
        return f"{self.cpu_model}, {self.isa}, {self.cores} cores, {gib} GiB"


def this_machine() -> Machine:
    """Read it now."""
    info = _cpu_info()
    levels = isa_levels(platform.machine(), set(info.get("flags", "").split()))
    total, free = _memory()
    return Machine(
        isa=levels[-1],
        levels=levels,
        cpu_model=info.get("model name") or platform.machine(),
        cores=usable_cores(),
        ram_bytes=total,
        ram_free_bytes=free,
    )


def isa_levels(machine: str, flags: set[str]) -> tuple[str, ...]:
    """Every instruction-set level of a processor, lowest first."""
    if machine not in {"x86_64", "AMD64"}:
        return ("aarch64" if machine == "arm64" else machine or "unknown",)
    levels = ["x86-64"]
    for name, needed in _LEVELS:
        if not needed <= flags:
            break
        levels.append(name)
    return tuple(levels)


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


def _memory() -> tuple[int, int]:
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
