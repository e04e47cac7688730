"""Command lines, each a process of its own, that need not import everything first.

One process imports the command line and forks for each command. What runs there is `main`, with an
environment, a directory, streams and signals of its own, and it dies as any other process does.
Only the start is short: commands that race begin together, and one that is killed is killed at its
work instead of in an import.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import NoReturn

# More than a command's words and environment.
_REQUEST_BYTES = 128 << 10
# What the command line loads when it uses it, and nothing that starts a thread.
_LIBRARIES = ("aiohttp", "jsonschema", "rich.console", "rich.table", "ruamel.yaml")


class CommandProcess:
    """A started command: as much of `subprocess.Popen` with text pipes as tests need."""

    def __init__(self, pid: int, ending: socket.socket, stdout: int, stderr: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.stdout = os.fdopen(stdout)
        self.stderr = os.fdopen(stderr)
        self._ending = ending

    def poll(self) -> int | None:
        """The exit code, a signal as a negative number; None while it runs."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code once there is one; raises TimeoutExpired."""
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired("enginectl", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What both streams say until they end, then wait; nothing if they were read to the end."""
        deadline = None if timeout is None else time.monotonic() + timeout
        said = {self.stdout: b"", self.stderr: b""}
        with selectors.DefaultSelector() as both:
            for stream in said:
                if not stream.closed:
                    both.register(stream, selectors.EVENT_READ)
            while both.get_map():
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left < 0:
                    raise subprocess.TimeoutExpired("enginectl", timeout or 0)
                for key, _ in both.select(left):
                    data = os.read(key.fd, 1 << 16)
                    said[key.fileobj] += data  # type: ignore[index]
                    if not data:
                        both.unregister(key.fileobj)
                        key.fileobj.close()  # type: ignore[union-attr]
        self.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
        return said[self.stdout].decode(), said[self.stderr].decode()

    def _look(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._ending], [], [], timeout)[0]:
            told = self._ending.recv(64)
            self._ending.close()
            assert told, "the process that forks commands is gone"
            self.returncode = int(told)
        return self.returncode


def start_command(args: Iterable[str], cwd: Path, env: Mapping[str, str]) -> CommandProcess:
    """Run `enginectl ARGS` with exactly this environment."""
    channel = _forker(env.get("PYTHONPATH", ""))
    request = json.dumps({"args": list(args), "cwd": str(cwd), "env": dict(env)}).encode()
    assert len(request) <= _REQUEST_BYTES, len(request)
    ours, theirs = socket.socketpair()
    stdout, stderr = os.pipe(), os.pipe()
    given = (theirs.fileno(), stdout[1], stderr[1])
    socket.send_fds(channel, [request], given)
    theirs.close()
    os.close(stdout[1])
    os.close(stderr[1])
    pid = int.from_bytes(ours.recv(4), "little")
    assert pid, "the process that forks commands is gone"
    return CommandProcess(pid, ours, stdout[0], stderr[0])


@cache
def _forker(python_path: str) -> socket.socket:
    """A running process that forks commands, until this one ends."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (ours, theirs):
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 2 * _REQUEST_BYTES)
    # -P: the modules beside this file are named like libraries.
    process = subprocess.Popen(
        [sys.executable, "-P", __file__, str(theirs.fileno())],
        env=os.environ | {"PYTHONPATH": python_path},
        stdin=subprocess.DEVNULL,
        pass_fds=[theirs.fileno()],
    )
    theirs.close()
    atexit.register(_stop, process, ours)
    return ours


def _stop(process: subprocess.Popen[bytes], channel: socket.socket) -> None:
    channel.close()
    process.wait()


def _fork_commands(channel: int) -> None:
    """Fork for each request until the other side is gone, and tell how each one ended."""
    _import_all()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready in select.select([channel, *running], [], [])[0]:
            if ready != channel:
                pid, ending = running.pop(ready)
                _, status = os.waitpid(pid, 0)
                os.write(ending, str(os.waitstatus_to_exitcode(status)).encode())
                os.close(ending)
                os.close(ready)
                continue
            request, given = _received(channel)
            if not request:
                return
            ending, stdout, stderr = given
            pid = os.fork()
            if not pid:
                _become(json.loads(request), stdout, stderr)
            running[os.pidfd_open(pid)] = (pid, ending)
            os.write(ending, pid.to_bytes(4, "little"))
            os.close(stdout)
            os.close(stderr)


def _received(channel: int) -> tuple[bytes, list[int]]:
    with socket.socket(fileno=os.dup(channel)) as end:
        request, given, _, _ = socket.recv_fds(end, _REQUEST_BYTES, 3)
    return request, given


def _become(request: dict, stdout: int, stderr: int) -> NoReturn:
    """Be the command: nothing of the process that forked is left but what it has imported."""
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.closerange(3, 1024)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    sys.argv = ["enginectl", *request["args"]]
    from engine_pipeline.cli import main

    main()
    raise AssertionError("main exits")


def _import_all() -> None:
    import engine_pipeline
    import engine_registry

    for package in (engine_registry, engine_pipeline):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".testing" not in module.name and not module.name.endswith("__main__"):
                importlib.import_module(module.name)
    for name in _LIBRARIES:
        importlib.import_module(name)


if __name__ == "__main__":
    _fork_commands(int(sys.argv[1]))
