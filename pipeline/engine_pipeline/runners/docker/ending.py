"""How a container ended, and what that says. Pure."""

from __future__ import annotations

import signal
from dataclasses import dataclass

from engine_registry.errors import EngineCIError, Unavailable

_KILLED = 128 + signal.SIGKILL


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerEnd:
    """What the daemon says of a container that has ended.

    Attributes:
        status: the command's exit code, 128 + N for signal N.
        oom_killed: the kernel killed a process in it for memory, its first one or another.
        stopped_by_daemon: somebody stopped it through the daemon, or the daemon is going down.
        peak_bytes: most memory seen; None if it was never looked at.
        limit_bytes: what it was allowed.
    """

    status: int
    oom_killed: bool
    stopped_by_daemon: bool
    peak_bytes: int | None
    limit_bytes: int | None


def explain_end(what: str, expected_bytes: int, end: ContainerEnd) -> EngineCIError | None:
    """The error of an ending that the command itself had no say in; None if it had.

    Args:
        what: the thing that ran.
        expected_bytes: memory that was thought to be enough; 0 if nobody said.
        end: how it ended.
    """
    if end.status == 0:
        # A killed helper process that the command went on without is the outputs' to show.
        return None
    if end.stopped_by_daemon and not end.oom_killed:
        return Unavailable(
            f"{what}: its container was stopped from outside: by `docker stop`, `docker rm` or a "
            "daemon that shuts down",
            hint="see that Docker stays up, then run the same command again: finished steps are "
            "kept",
            reference="container-stopped",
        )
    if end.oom_killed or end.status == _KILLED:
        how = "ran out of memory" if end.oom_killed else "was killed, as when memory runs out"
        sides = [
            f"peak {_gib(end.peak_bytes)}" if end.peak_bytes else "peak unknown",
            f"limit {_gib(end.limit_bytes)}" if end.limit_bytes else "no limit",
            *([f"expected {_gib(expected_bytes)}"] if expected_bytes else []),
        ]
        return Unavailable(
            f"{what} {how} (exit code {end.status}): {', '.join(sides)}",
            hint="free memory or use a larger machine, then run the same command again",
            reference="out-of-host-memory",
        )
    return None


def resident_bytes(memory_stats: dict[str, object]) -> int | None:
    """Memory that cannot be dropped, from one `stats` answer: caches do not count.

    Control groups v1 call it `total_rss`, v2 `anon`; an ended container has neither.
    """
    details = memory_stats.get("stats")
    if not isinstance(details, dict):
        return None
    for name in ("total_rss", "rss", "anon"):
        value = details.get(name)
        if isinstance(value, int):
            return value
    return None


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / (1 << 30):.2f} GiB"
