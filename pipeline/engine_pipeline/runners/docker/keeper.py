"""Keeps one container: starts it, passes its output on, and removes it whatever happens.

    python -m engine_pipeline.runners.docker.keeper WORK [--engine DIR] [--port N]

`WORK` is a `ContainerWork` as JSON. Standard output and error are the container's; an ending that
the command had no say in is added as the protocol's error line. The exit status is the command's,
or that of the error if it never ran. SIGTERM ends the container: at once, or in order where the
work grants the time.

It has to be run under `runners.guard`, which ends it with the process that wanted the container.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine_pipeline.docker_engine.connect import asking, connect
from engine_pipeline.docker_engine.failures import forbids_limits
from engine_pipeline.docker_engine.images import have_image
from engine_pipeline.runners.docker.ending import ContainerEnd, explain_end, resident_bytes
from engine_pipeline.runners.docker.orphans import clean_orphans, remove
from engine_pipeline.runners.docker.owner import labels
from engine_pipeline.runners.docker.work import (
    ENGINE,
    ContainerWork,
    Mount,
    create_arguments,
    daemon_of,
    device_limits,
    memory_limit,
)
from engine_pipeline.runners.protocol import error_line, run_child
from engine_registry.errors import EngineCIError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from docker import DockerClient

    from engine_pipeline.progress import Progress
    from engine_pipeline.runners.docker.work import Daemon

_ENDINGS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_TOLD_STATUS = 128 + signal.SIGTERM


class _ToldToEnd(BaseException):
    """The guard wants this to be over."""


def main(arguments: list[str]) -> int:
    """Run the work of the command line; the exit status."""
    work = _parse(arguments)
    status = 0

    def act(progress: Progress) -> None:
        nonlocal status
        status = keep(work, progress)

    for number in _ENDINGS:
        signal.signal(number, _end)
    try:
        failed = run_child(act)
    except _ToldToEnd:
        return _TOLD_STATUS
    return failed or status


def keep(work: ContainerWork, progress: Progress) -> int:
    """Run the container to its end and remove it; the command's exit status.

    Raises:
        EngineCIError: it could not be started, or the daemon is gone.
    """
    client = connect()
    # What stays of others is not this step's failure.
    with suppress(EngineCIError):
        clean_orphans(client)
    have_image(client, work.image, progress)
    with asking(work.what):
        daemon = daemon_of(client.info())
    try:
        return _run(client, work, daemon, progress)
    except _ToldToEnd:
        _stop_in_order(client, work)
        raise
    finally:
        for number in _ENDINGS:
            signal.signal(number, signal.SIG_IGN)
        # A daemon that is gone took the container along, or the next keeper removes it.
        with suppress(EngineCIError):
            remove(client, work.name)


def _run(client: DockerClient, work: ContainerWork, daemon: Daemon, progress: Progress) -> int:
    progress.phase("run", f"{work.what} in {work.image}")
    output = _start(client, work, daemon, progress)
    peak = _PeakMemory(work.name)
    with asking(work.what):
        for out, err in output:
            _pass_on(sys.stdout.buffer, out)
            _pass_on(sys.stderr.buffer, err)
        status = int(client.api.wait(work.name, timeout=None)["StatusCode"])
        state = client.api.inspect_container(work.name)["State"]
        end = ContainerEnd(
            status=status,
            oom_killed=bool(state.get("OOMKilled")),
            stopped_by_daemon=bool(status) and _was_stopped(client, work.name, state),
            peak_bytes=peak.bytes,
            limit_bytes=memory_limit(work, daemon),
        )
    if work.report is not None:
        Path(work.report).write_text(json.dumps({"peak_rss_bytes": end.peak_bytes}))
    if (error := explain_end(work.what, work.expected_bytes, end)) is not None:
        sys.stderr.write(f"{error_line(error)}\n")
        sys.stderr.flush()
    return status


def _start(
    client: DockerClient, work: ContainerWork, daemon: Daemon, progress: Progress
) -> Iterable[tuple[bytes | None, bytes | None]]:
    """Start the container; pieces of its output and of its errors."""
    try:
        return _start_with(client, work, daemon, limits=device_limits(work))
    except EngineCIError as error:
        if not forbids_limits(error.message):
            raise
    progress.note(
        "the Docker daemon may not raise limits: the container keeps the daemon's own memlock "
        "and stack"
    )
    remove(client, work.name)
    return _start_with(client, work, daemon, limits=())


def _start_with(
    client: DockerClient, work: ContainerWork, daemon: Daemon, limits: tuple[tuple[str, int], ...]
) -> Iterable[tuple[bytes | None, bytes | None]]:
    from docker.types import DeviceRequest, Ulimit
    from docker.types import Mount as Bind

    user = (os.getuid(), os.getgid())
    arguments: dict[str, Any] = create_arguments(work, daemon, os.environ, user, labels())
    arguments["mounts"] = [
        Bind(target=m.target, source=m.source, type="bind", read_only=not m.writable)
        for m in work.mounts
    ]
    arguments["ulimits"] = [Ulimit(name=name, soft=value, hard=value) for name, value in limits]
    if work.gpus:
        arguments["device_requests"] = [
            DeviceRequest(driver="nvidia", device_ids=list(work.gpus), capabilities=[["gpu"]])
        ]
    with asking(work.what):
        with _undisturbed():
            client.containers.create(**arguments)
        # Before it starts: nothing it says may be missed.
        output = client.api.attach(work.name, stdout=True, stderr=True, stream=True, demux=True)
        client.api.start(work.name)
    pieces: Iterable[tuple[bytes | None, bytes | None]] = output
    return pieces


def _pass_on(stream: Any, piece: bytes | None) -> None:
    if piece:
        stream.write(piece)
        stream.flush()


def _stop_in_order(client: DockerClient, work: ContainerWork) -> None:
    """Let the command end by itself, where it was granted the time."""
    if work.stop_s:
        import docker

        with suppress(EngineCIError), asking(work.what), suppress(docker.errors.NotFound):
            client.api.stop(work.name, timeout=math.ceil(work.stop_s))


def _was_stopped(client: DockerClient, name: str, state: dict[str, Any]) -> bool:
    """Whether the daemon sent it a signal: only then is there an event."""
    since, until = (datetime.fromisoformat(state[key]) for key in ("StartedAt", "FinishedAt"))
    found = client.api.events(
        since=math.floor(since.timestamp()),
        # Never in the future, where the daemon would wait for it.
        until=math.ceil(until.timestamp()),
        filters={"container": name, "event": "kill"},
        decode=True,
    )
    return any(True for _ in found)


class _PeakMemory:
    """Watches a running container's memory, about once a second, until it ends."""

    def __init__(self, name: str) -> None:
        self.bytes: int | None = None
        threading.Thread(target=self._watch, args=(name,), daemon=True).start()

    def _watch(self, name: str) -> None:
        # A connection of its own: the client is not made for two threads.
        with suppress(EngineCIError), asking(name):
            for answer in connect().api.stats(name, stream=True, decode=True):
                found = resident_bytes(answer.get("memory_stats") or {})
                if found is None:
                    return
                self.bytes = max(self.bytes or 0, found)


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let no signal in between the daemon's making a container and our knowing of it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _ENDINGS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _ENDINGS)


def _end(*_: object) -> None:
    raise _ToldToEnd


def _parse(arguments: list[str]) -> ContainerWork:
    work = ContainerWork.model_validate_json(arguments[0])
    options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    if (engine := options.pop("--engine", None)) is not None:
        mount = Mount(source=engine, target=ENGINE)
        work = work.model_copy(update={"mounts": (*work.mounts, mount)})
    if (port := options.pop("--port", None)) is not None:
        work = work.model_copy(update={"port": int(port)})
    if options:
        sys.exit(f"keeper: unknown option {', '.join(options)}")
    return work


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
