"""What a container is to do, and the arguments that the Docker Engine gets for it. Pure.

Inside, paths are the same for every run, so that nothing of the machine enters what is built:

    /ci/lock.json    the lock file                                        read-only
    /ci/in/NAME      output of the earlier step NAME                      read-only
    /ci/engine       the engine of a server                               read-only
    /ci/out          the step's output
    /ci/scratch      working directory, home and temporary files, thrown away
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from engine_registry.documents import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

INSIDE = "/ci"
SCRATCH, LOCK, OUTPUT, ENGINE = (
    f"{INSIDE}/scratch",
    f"{INSIDE}/lock.json",
    f"{INSIDE}/out",
    f"{INSIDE}/engine",
)
_HOST_NAME = "engine-ci"
# They describe the host or its processes, and would be wrong in an image that has its own.
_OF_THE_HOST = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "HOME",
        "LD_LIBRARY_PATH",
        "LD_PRELOAD",
        "NVIDIA_VISIBLE_DEVICES",
        "PATH",
        "PYTHONHOME",
        "PYTHONPATH",
        "SHELL",
        "TMPDIR",
        "USER",
    }
)
# NVIDIA's own run command for these images asks for both: pinned host memory for transfers, and
# deep stacks in the builder.
_UNLIMITED, _STACK_BYTES = -1, 64 << 20
# Host memory that a container never gets: the daemon and this process need some to report its end.
_RESERVED_SHARE = 16


class Mount(Value):
    """A path of this machine inside the container."""

    source: str
    target: str
    writable: bool = False


class ContainerWork(Value):
    """One command in one container. Never holds a secret: of those, only the names.

    Attributes:
        image: by digest.
        argv: the command, given to the image's own entry point.
        env: names of variables taken from the keeper's environment when the container starts.
        variables: variables with their values.
        gpus: UUIDs of the devices it gets; no others.
        network: None for none at all, else `bridge`.
        port: inside port that is published as the same port on 127.0.0.1.
        stop_s: how long it may take to end by SIGTERM before it is killed; 0 kills at once.
        report: where the keeper writes what the run took.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_.-]*$")]
    what: str
    image: str
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    mounts: tuple[Mount, ...]
    env: tuple[str, ...] = ()
    variables: dict[str, str] = {}
    gpus: tuple[str, ...] = ()
    shm_bytes: Annotated[int, Field(ge=0)] = 0
    memory_bytes: Annotated[int | None, Field(ge=1)] = None
    expected_bytes: Annotated[int, Field(ge=0)] = 0
    network: bool = False
    port: Annotated[int | None, Field(ge=1, le=65535)] = None
    stop_s: Annotated[float, Field(ge=0)] = 0
    report: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """What the daemon says of itself, as far as it matters here.

    Attributes:
        memory_bytes: of the machine it runs on.
        limits_memory: whether it can.
        is_rootless: container root is the daemon's user outside.
        maps_users: container users are others outside, unless told otherwise.
    """

    memory_bytes: int
    limits_memory: bool
    is_rootless: bool
    maps_users: bool


def daemon_of(info: Mapping[str, Any]) -> Daemon:
    """From the answer to `info`."""
    options = [str(option) for option in info.get("SecurityOptions") or ()]
    return Daemon(
        memory_bytes=int(info.get("MemTotal") or 0),
        limits_memory=bool(info.get("MemoryLimit")),
        is_rootless=any(option.startswith("name=rootless") for option in options),
        maps_users=any(option.startswith("name=userns") for option in options),
    )


def memory_limit(work: ContainerWork, daemon: Daemon) -> int | None:
    """Where the kernel ends the container and not a neighbour; None if nothing can limit it."""
    if not daemon.limits_memory:
        return None
    most = daemon.memory_bytes - daemon.memory_bytes // _RESERVED_SHARE
    return work.memory_bytes or most or None


def create_arguments(
    work: ContainerWork,
    daemon: Daemon,
    environment: Mapping[str, str],
    user: tuple[int, int],
    labels: Mapping[str, str],
) -> dict[str, Any]:
    """Keyword arguments of `client.containers.create`, of plain values.

    Args:
        work: what is to run.
        daemon: where it runs.
        environment: of the keeper.
        user: numeric user and group that own what is mounted, and shall own what is written.
        labels: of the container.
    """
    fixed = {"HOME": SCRATCH, "TMPDIR": SCRATCH, "USER": "engine-ci", "PYTHONUNBUFFERED": "1"}
    passed = {
        name: environment[name]
        for name in work.env
        if name in environment and name not in _OF_THE_HOST
    }
    arguments: dict[str, Any] = {
        "image": work.image,
        "command": list(work.argv),
        "name": work.name,
        "labels": dict(labels),
        "environment": fixed | work.variables | passed,
        "working_dir": SCRATCH,
        # Files must belong to whoever runs the pipeline; a rootless daemon maps root to that user.
        "user": "0:0" if daemon.is_rootless else f"{user[0]}:{user[1]}",
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        # Output is attached to; a log driver would keep a second copy, and for ever.
        "log_config": {"Type": "none"},
        "hostname": _HOST_NAME,
        "extra_hosts": {_HOST_NAME: "127.0.0.1"},
        "network_mode": "bridge" if work.network or work.port else "none",
        "stdin_open": False,
        "tty": False,
    }
    if not work.stop_s:
        # A daemon that shuts down would else wait for a command that cannot hear it.
        arguments["stop_signal"] = "SIGKILL"
    if daemon.maps_users:
        arguments["userns_mode"] = "host"
    if work.shm_bytes:
        arguments["shm_size"] = work.shm_bytes
    if (limit := memory_limit(work, daemon)) is not None:
        # Without swap: an engine build that swaps would run for days.
        arguments |= {"mem_limit": limit, "memswap_limit": limit}
    if work.port is not None:
        arguments["ports"] = {f"{work.port}/tcp": ("127.0.0.1", work.port)}
    return arguments


def device_limits(work: ContainerWork) -> tuple[tuple[str, int], ...]:
    """Resource limits that GPU toolkits ask for; none without a GPU."""
    return (("memlock", _UNLIMITED), ("stack", _STACK_BYTES)) if work.gpus else ()
