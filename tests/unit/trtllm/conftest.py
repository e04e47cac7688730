"""Runs plans against the stand-in: a test double of the toolkit, never the toolkit itself."""

from __future__ import annotations

import functools
import http.client
import importlib
import io
import json
import os
import socket
import subprocess
import sys
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine_pipeline.build.outputs import check_outputs
from engine_pipeline.build.plan import Step, fill
from tests.standin.install import Installed, install


class StepFailed(Exception):
    """A step's process ended badly."""

    def __init__(self, step: str, status: int, text: str) -> None:
        super().__init__(f"{step}: {status}: {text}")
        self.step, self.status, self.text = step, status, text
        self.lines = text.splitlines()


@dataclass
class Bench:
    """One directory in which steps run, as a runner would run them."""

    root: Path
    installed: Installed
    lock_path: Path

    def run(self, steps: tuple[Step, ...], **given: Path) -> Path:
        """Run all steps but those whose output is given; the last one's output."""
        outputs: dict[str, Path] = dict(given)
        for step in steps:
            if step.name not in outputs:
                outputs[step.name] = self.step(step, outputs)
        return outputs[steps[-1].name]

    def step(self, step: Step, inputs: dict[str, Path]) -> Path:
        output = self.root / "outputs" / step.name
        output.mkdir(parents=True, exist_ok=True)
        scratch = self.root / "scratch"
        scratch.mkdir(exist_ok=True)
        values = {"python": sys.executable, "lock": str(self.lock_path), "output": str(output)}
        values |= {f"input:{name}": str(inputs[name]) for name in step.inputs}
        status, text = (
            self._own(step, values)
            if step.argv[1:2] == ("-m",)
            else self._toolkit(step, values, scratch)
        )
        if status:
            raise StepFailed(step.name, status, text)
        check_outputs(step, output)
        return output

    def _own(self, step: Step, values: dict[str, str]) -> tuple[int, str]:
        """A step of ours, in this process: its entry point, without another interpreter's start."""
        text = io.StringIO()
        with redirect_stdout(text), redirect_stderr(text):
            status = importlib.import_module(step.argv[2]).main(fill(step.argv[3:], values))
        return status, text.getvalue()

    def _toolkit(self, step: Step, values: dict[str, str], scratch: Path) -> tuple[int, str]:
        """A step of the toolkit: the stand-in on the PATH, as a process."""
        done = subprocess.run(
            fill(step.argv, values),
            cwd=scratch,
            env={"PATH": f"{self.installed.bin_dir}:{os.environ['PATH']}", **step.variables},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


def make_bench(root: Path, version: str = "1.2.1", **settings: object) -> Bench:
    """The stand-in of one release below `root`; `installed.set` changes how it behaves."""
    return Bench(
        root=root,
        installed=install(root / "standin", version, **settings),
        lock_path=root / "toy.lock.json",
    )


@pytest.fixture
def bench(tmp_path):
    """Makes a bench of this test's own."""
    return functools.partial(make_bench, tmp_path)


class DidNotLoad(Exception):
    """The server ended before it was ready; its text."""


@dataclass
class Server:
    """A server that is ready."""

    port: int
    model: str
    log_path: Path

    def log(self):
        return self.log_path.read_text().splitlines()

    def get(self, path):
        return self._ask("GET", path, None)

    def chat(self, **fields):
        body = {"model": self.model, "messages": [{"role": "user", "content": "a b c"}]}
        return self._ask("POST", "/v1/chat/completions", json.dumps(body | fields))

    def _ask(self, method, path, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        connection.request(method, path, body)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


@pytest.fixture
def started(tmp_path):
    """Starts the command's server with the stand-in on the PATH."""

    @contextmanager
    def start(serve, directory, built):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        argv = [
            word.replace("{engine}", str(directory))
            .replace("{port}", str(port))
            .replace("{host}", "127.0.0.1")
            for word in serve.argv
        ]
        path = {"PATH": f"{built.installed.bin_dir}:{os.environ['PATH']}"}
        server = Server(port, serve.model_name, tmp_path / "server.log")
        with server.log_path.open("w") as log:
            # The program by its full path: a child's own PATH does not decide where it is found.
            program = str(built.installed.bin_dir / argv[0])
            process = subprocess.Popen(
                [program, *argv[1:]], stdout=log, stderr=log, env=path | serve.env
            )
        try:
            wait_until_ready(process, server, serve.health_path)
            yield server
        finally:
            process.kill()
            process.wait()

    return start


def wait_until_ready(process, server, health_path):
    for _ in range(600):
        try:
            process.wait(0.05)
        except subprocess.TimeoutExpired:
            with suppress(OSError):
                if server.get(health_path)[0] == 200:
                    return
        else:
            raise DidNotLoad(server.log_path.read_text())
    raise AssertionError("not ready after 30 s")
