"""How much of this machine's processor time went to others while something was measured.

Read from the kernel's own accounts, before and after. A server in a container is no descendant of
this process, so there the answer is that it is not known.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
# Fields of /proc/PID/stat after the command's name: state is 0.
_PARENT, _USER, _SYSTEM = 1, 11, 12
# Fields of the first line of /proc/stat after its name: user, nice, system, idle, iowait, irq,
# softirq, steal. Guests count as user already.
_IDLE = (3, 4)
_FIELDS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessorTime:
    """In ticks since the machine started, over all processors.

    Attributes:
        total: all there was, idle included.
        busy: what somebody used or the hypervisor took.
        own: what this process and its descendants used.
    """

    total: int
    busy: int
    own: int


def processor_time(proc: Path = PROC) -> ProcessorTime | None:
    """What has been used until now; None where the kernel does not tell."""
    try:
        first = (proc / "stat").read_text().splitlines()[0].split()
        fields = [int(field) for field in first[1 : 1 + _FIELDS]]
        busy = sum(fields) - sum(fields[index] for index in _IDLE)
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
