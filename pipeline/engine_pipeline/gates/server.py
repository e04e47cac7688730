"""Starts an engine's server on a free loopback port, waits until it is ready, and always stops it.

The server runs under `runners.guard`, so it ends with this process even when that is killed. It
gets no variable of the environment whose name looks like a secret.
"""

from __future__ import annotations

import http.client
import os
import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.gates.client import Endpoint
from engine_pipeline.gates.ending import (
    CouldNotServe,
    before_it_was_ready,
    ending,
    last_lines,
    last_word,
)
from engine_pipeline.runners import guard

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from engine_pipeline.backends.port import ServeCommand
    from engine_pipeline.gates.ending import Ending
    from engine_pipeline.progress import Progress

_HOST = "127.0.0.1"
_POLL_S = 0.05
_HEALTH_TIMEOUT_S = 1.0
# llama.cpp's server ends within 0.2 s of SIGTERM here; a large engine frees memory for longer.
STOP_S = 10.0
# The guard kills what is left after that time, and then ends itself.
_GUARD_S = 5.0
# As much of a log as is searched from either end: loading is told at its start, an end at its end.
_SEARCHED_BYTES = 1 << 20
_SECRET = re.compile(
    r"TOKEN|SECRET|PASSW|CREDENTIAL|API_?KEY|ACCESS_KEY|PRIVATE_KEY", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A server that was ready once.

    Attributes:
        endpoint: where to ask.
        load_s: seconds from its start until it was ready.
    """

    endpoint: Endpoint
    load_s: float
    log_path: Path
    _process: subprocess.Popen[bytes]

    def ended(self) -> Ending | None:
        """How it ended; None while it runs."""
        status = self._process.poll()
        return None if status is None else ending(status)

    def log(self) -> tuple[str, ...]:
        """The last lines it wrote."""
        return last_lines(self.log_path)

    def said(self) -> tuple[str, ...]:
        """Everything it wrote, as `log_lines` gives it."""
        return log_lines(self.log_path)


def log_lines(log_path: Path) -> tuple[str, ...]:
    """A server's log, but for the middle of a very long one; empty if there is none."""
    try:
        with log_path.open("rb") as stream:
            head = stream.read(_SEARCHED_BYTES)
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(len(head), size - _SEARCHED_BYTES))
            rest = stream.read(_SEARCHED_BYTES)
    except OSError:
        return ()
    return tuple((head + rest).decode(errors="replace").splitlines())


@contextmanager
def serving(
    command: ServeCommand,
    engine_dir: Path,
    *,
    progress: Progress,
    log_path: Path,
    timeout_s: float,
    stop_s: float = STOP_S,
) -> Iterator[Server]:
    """A running, ready server for the engine; stopped when the block ends, however it ends.

    Args:
        command: how to start it.
        engine_dir: the engine's files.
        progress: told the seconds waited.
        log_path: where its output goes; what was there is overwritten.
        timeout_s: longest wait until it is ready.
        stop_s: how long it may take to end before it is killed.

    Raises:
        DidNotLoad: it exited before it was ready.
        CouldNotServe: it was killed from outside, could not be started, or is still not ready.
    """
    for is_last in (False, True):
        with (
            _reserved_port() as port,
            _started(command, engine_dir, port, log_path, stop_s) as process,
        ):
            load_s = _wait_until_ready(process, command, port, log_path, progress, timeout_s)
            if load_s is None and not is_last and _lost_its_port(port, log_path):
                # Somebody else took it between our look and the server's: once is bad luck.
                progress.note(f"port {port} was taken meanwhile; trying another one")
                continue
            if load_s is None:
                raise before_it_was_ready(process.returncode, log_path)
            endpoint = Endpoint(
                base_url=f"http://{_HOST}:{port}",
                model=command.model_name,
                extra=command.request_extra,
            )
            yield Server(endpoint=endpoint, load_s=load_s, log_path=log_path, _process=process)
            return


@contextmanager
def _reserved_port() -> Iterator[int]:
    """A free port that no other gate of this machine picks while the block runs.

    Two gates with one port would be fatal: the server that is up first would answer for the engine
    of the other. The reservation is an abstract socket name, which the kernel gives up with the
    process; where there are none, the port's freedom is all there is.
    """
    with socket.socket(socket.AF_UNIX) as claim:
        while True:
            port = _free_port()
            if sys.platform != "linux":
                break
            with suppress(OSError):
                claim.bind(f"\0engine-ci-gate-port-{port}")
                break
        yield port


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _lost_its_port(port: int, log_path: Path) -> bool:
    said = last_word(log_path)
    if said is not None:
        return said.name == "port-taken"
    with socket.socket() as probe:
        # As servers do: a port in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((_HOST, port))
        except OSError:
            return True
    return False


@contextmanager
def _started(
    command: ServeCommand, engine_dir: Path, port: int, log_path: Path, stop_s: float
) -> Iterator[subprocess.Popen[bytes]]:
    """The guard of a server that was just started; stopped when the block ends."""
    process = _start(command, engine_dir, port, log_path, stop_s)
    try:
        yield process
    finally:
        _stop(process, stop_s)


def _start(
    command: ServeCommand, engine_dir: Path, port: int, log_path: Path, stop_s: float
) -> subprocess.Popen[bytes]:
    values = {
        "{python}": sys.executable,
        "{engine}": str(engine_dir),
        "{host}": _HOST,
        "{port}": str(port),
    }
    pattern = re.compile("|".join(map(re.escape, values)))
    argv = [pattern.sub(lambda match: values[match.group()], part) for part in command.argv]
    inherited = {name: value for name, value in os.environ.items() if not _SECRET.search(name)}
    try:
        with log_path.open("wb") as log:
            return subprocess.Popen(
                guard.command(argv, grace_s=stop_s),
                # The guard ends the server when this pipe closes: with this process, at the latest.
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=log_path.parent,
                env=inherited | command.env,
                # A session of its own: Ctrl-C reaches this process alone, which stops the server.
                start_new_session=True,
            )
    except OSError as error:
        raise CouldNotServe(
            f"cannot start the server: {error.strerror or error}",
            hint="check free memory and disk with `enginectl doctor`, then run the gate again",
        ) from error


def _wait_until_ready(
    process: subprocess.Popen[bytes],
    command: ServeCommand,
    port: int,
    log_path: Path,
    progress: Progress,
    timeout_s: float,
) -> float | None:
    """Seconds until it was ready; None if it ended before."""
    started = time.monotonic()
    answer = "no answer"
    while (waited := time.monotonic() - started) < timeout_s:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_POLL_S)
            return None
        answer = _health(port, command.health_path)
        # The port may be another server's by now: ours must be alive as well.
        if answer == "200" and process.poll() is None:
            return time.monotonic() - started
        progress.update(round(waited, 1), timeout_s, "seconds")
    error = CouldNotServe(
        f"server not ready after {timeout_s:g} s: {command.health_path} says {answer}, want 200",
        hint="look at the log's last lines; raise load_timeout_s if this machine is only slow",
        reference="server-not-ready",
    )
    error.log = last_lines(log_path)
    raise error


def _health(port: int, path: str) -> str:
    connection = http.client.HTTPConnection(_HOST, port, timeout=_HEALTH_TIMEOUT_S)
    try:
        connection.request("GET", path)
        return str(connection.getresponse().status)
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()


def _stop(process: subprocess.Popen[bytes], stop_s: float) -> None:
    """End the guard, and with it the server and all it started; no-op if it has ended."""
    try:
        process.terminate()
        process.wait(stop_s + _GUARD_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        process.kill()
        process.wait()
        if process.stdin is not None:
            process.stdin.close()
