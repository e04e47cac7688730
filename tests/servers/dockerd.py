"""A Docker Engine of the tests' own: started as root in a temporary directory, gone afterwards.

It has its data, its socket and its bridge for itself, so that a daemon of the machine is not
touched. With `gpus` it believes in an NVIDIA container toolkit: the real daemon code path runs, and
in place of NVIDIA's hook there is one that gives no device and can be told to fail.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from engine_pipeline.runners import guard
from tests.servers.image_registry import ImageRegistry
from tests.servers.python_image import python_image

if TYPE_CHECKING:
    from docker import DockerClient

_PACKAGES = ("docker.io", "iptables")
_INSTALL_S = 180
_START_S = 30
_STOP_S = 20
_HOOK = """#!/bin/sh
if [ -s {says} ]; then cat {says} >&2; exit 1; fi
"""


class CannotStart(Exception):
    """No daemon here, and why."""


class DockerDaemon:
    """One daemon. `environment` is what a client needs to find it."""

    def __init__(self, *, gpus: bool = False) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="engine-ci-dockerd-"))
        self._log = self.root / "log"
        self._hook_says = self.root / "hook-says"
        self._bridge = f"ec-{os.getpid()}-{self.root.name[-2:]}"[:15].lower()
        self._process: subprocess.Popen[bytes] | None = None
        tools = self.root / "bin"
        tools.mkdir()
        if gpus:
            hook = tools / "nvidia-container-runtime-hook"
            hook.write_text(_HOOK.format(says=self._hook_says))
            hook.chmod(0o755)
        self._tools = tools

    @property
    def environment(self) -> dict[str, str]:
        return {"DOCKER_HOST": f"unix://{self.root}/docker.sock"}

    def client(self) -> DockerClient:
        import docker

        return docker.DockerClient(base_url=self.environment["DOCKER_HOST"])

    def gpu_hook_says(self, text: str) -> None:
        """Have every start of a container with GPUs fail with this; nothing lets it pass."""
        self._hook_says.write_text(text)

    def start(self) -> None:
        """Start it, and return when it answers; raises CannotStart."""
        paths = [str(self._tools), os.environ.get("PATH", ""), "/usr/sbin", "/sbin"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                guard.command(
                    [
                        "dockerd",
                        f"--data-root={self.root}/data",
                        f"--exec-root={self.root}/exec",
                        f"--pidfile={self.root}/pid",
                        f"--host={self.environment['DOCKER_HOST']}",
                        "--iptables=false",
                        "--ip-forward=false",
                        f"--bridge={self._make_bridge()}",
                        "--shutdown-timeout=1",
                    ],
                    grace_s=_STOP_S,
                ),
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=os.environ | {"PATH": os.pathsep.join(paths)},
                start_new_session=True,
            )
        self._wait_until_it_answers()

    def stop(self) -> None:
        """Shut it down as a service manager would; no-op if it is down."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        process.wait(_STOP_S + 10)
        if process.stdin is not None:
            process.stdin.close()

    def close(self) -> None:
        """Shut it down and remove everything of it."""
        self.stop()
        if self._has_bridge:
            subprocess.run(["ip", "link", "del", self._bridge], check=False, capture_output=True)
        shutil.rmtree(self.root, ignore_errors=True)

    @property
    def _has_bridge(self) -> bool:
        return Path("/sys/class/net", self._bridge).exists()

    @property
    def publishes_ports(self) -> bool:
        """Whether containers can have a network here."""
        return self._has_bridge

    def _make_bridge(self) -> str:
        if self._has_bridge:
            return self._bridge
        block = f"10.{200 + os.getpid() % 50}.{int(self.root.stat().st_ino) % 250}.1/24"
        for arguments in (
            ["link", "add", self._bridge, "type", "bridge"],
            ["addr", "add", block, "dev", self._bridge],
            ["link", "set", self._bridge, "up"],
        ):
            try:
                subprocess.run(["ip", *arguments], check=True, capture_output=True)
            except (OSError, subprocess.CalledProcessError):
                return "none"
        return self._bridge

    def _wait_until_it_answers(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + _START_S
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                self.client().close()
            except Exception:
                time.sleep(0.05)
            else:
                return
        self.stop()
        said = [line for line in self._log.read_text().splitlines() if "level=info" not in line]
        raise CannotStart(f"dockerd does not start: {' / '.join(said[-3:])[-500:]}")


@cache
def why_none() -> str:
    """Why no daemon can be started here; empty if one can. Installs Debian's where it may."""
    if sys.platform != "linux":
        return "the Docker Engine runs on Linux"
    if os.geteuid() != 0:
        return "starting a Docker Engine needs root"
    if shutil.which("dockerd") is None:
        _install()
    if shutil.which("dockerd") is None:
        return f"dockerd is not installed: apt-get install {' '.join(_PACKAGES)}"
    return ""


def _install() -> None:
    apt = shutil.which("apt-get")
    if apt is None:
        return
    for arguments in (
        ["update"],
        ["install", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=60", *_PACKAGES],
    ):
        try:
            subprocess.run(
                [apt, "-qq", *arguments],
                check=True,
                capture_output=True,
                timeout=_INSTALL_S,
                env=os.environ | {"DEBIAN_FRONTEND": "noninteractive"},
            )
        except (OSError, subprocess.SubprocessError):
            return


@cache
def shared_daemon() -> DockerDaemon:
    """The one that most tests of this process use, with GPUs; raises CannotStart."""
    if reason := why_none():
        raise CannotStart(reason)
    daemon = DockerDaemon(gpus=True)
    atexit.register(daemon.close)
    daemon.start()
    return daemon


@cache
def shared_registry() -> ImageRegistry:
    """The registry that most tests of this process pull from."""
    registry = ImageRegistry()
    atexit.register(registry.close)
    return registry


@cache
def python_reference() -> str:
    """An image with this machine's Python, by digest, in the shared registry."""
    return shared_registry().add("tests/python", "1", python_image())
