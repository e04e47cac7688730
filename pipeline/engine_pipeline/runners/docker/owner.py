"""Whose container this is, as labels, and whether that process is still there.

A process is named by machine, boot, PID namespace, PID and start time: a PID alone is soon another
process, and the daemon may serve other machines and other containers whose PIDs mean nothing here.
"""

from __future__ import annotations

import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

PREFIX = "engine-ci."
# On every container of ours; finds them all with one question.
OURS = f"{PREFIX}keeper"
_PID, _STARTED = OURS, f"{PREFIX}keeper-started"
_HOST, _BOOT, _SPACE = f"{PREFIX}host", f"{PREFIX}boot", f"{PREFIX}pid-namespace"
_PROC = Path("/proc")
# Field 22 of /proc/PID/stat, counted from behind the command's name.
_STARTTIME = 19


class Owner(StrEnum):
    """What is known of the process that keeps a container."""

    ALIVE = "alive"
    DEAD = "dead"
    UNKNOWN = "unknown"


def labels() -> dict[str, str]:
    """Labels that name this process."""
    here = _here()
    return here | {_PID: str(os.getpid()), _STARTED: _started(os.getpid())}


def owner_of(found: Mapping[str, str]) -> Owner:
    """Whether the process that these labels name is alive, as far as it can be told from here."""
    here = _here()
    if found.get(_HOST) == here[_HOST] and found.get(_BOOT) != here[_BOOT]:
        # Nothing survives a reboot of this machine.
        return Owner.DEAD
    pid = found.get(_PID, "")
    if not pid.isdigit() or any(found.get(name) != value for name, value in here.items()):
        return Owner.UNKNOWN
    started = _started(int(pid))
    return Owner.ALIVE if started and started == found.get(_STARTED) else Owner.DEAD


def _here() -> dict[str, str]:
    try:
        space = str((_PROC / "self/ns/pid").readlink())
    except OSError:
        space = "-"
    boot = _PROC / "sys/kernel/random/boot_id"
    return {
        _HOST: os.uname().nodename,
        _BOOT: boot.read_text().strip() if boot.exists() else "-",
        _SPACE: space,
    }


def _started(pid: int) -> str:
    """When it started, in kernel ticks since boot; empty if there is no such process."""
    try:
        return (_PROC / f"{pid}/stat").read_text().rpartition(")")[2].split()[_STARTTIME]
    except (OSError, IndexError):
        return _without_proc(pid)


def _without_proc(pid: int) -> str:
    if _PROC.joinpath("self/stat").exists():
        return ""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return ""
    except PermissionError:
        pass
    return "-"
