"""Servers in containers, as gates start them."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from engine_pipeline.backends.port import ServeCommand
from engine_pipeline.gates.ending import CouldNotServe, DidNotLoad
from engine_pipeline.gates.server import serving
from engine_pipeline.progress import Silent
from engine_pipeline.runners.docker.owner import OURS
from engine_pipeline.runners.docker.serve import ContainerServing
from tests.servers.dockerd import DockerDaemon, python_reference

pytestmark = pytest.mark.xdist_group("docker")

GPU = "GPU-8f6e0c1a-0000-4c6e-9c3b-2f0b8a1d7e55"
LIMIT_S = 40

# Answers with what it sees; `/end` makes it exit, `/hang` makes it deaf to SIGTERM.
SERVER = """
import http.server, json, os, signal, sys
from pathlib import Path

engine, host, port = sys.argv[1:]
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/end":
            os._exit(3)
        try:
            Path(engine, "config.json").write_text("changed")
        except OSError as error:
            refused = error.strerror
        body = json.dumps({
            "engine": Path(engine, "config.json").read_text(),
            "refused": refused,
            "directory": os.getcwd(),
            "environment": dict(os.environ),
        }).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

print("serving", flush=True)
http.server.HTTPServer((host, int(port)), Handler).serve_forever()
"""


def command(program: str = SERVER, **changes) -> ServeCommand:
    return ServeCommand(
        **{
            "argv": ("{python}", "-c", program, "{engine}", "{host}", "{port}"),
            "env": {"HF_HUB_OFFLINE": "1"},
            "model_name": "engine",
        }
        | changes
    )


@pytest.fixture
def daemon(docker_daemon: DockerDaemon, monkeypatch) -> Iterator[DockerDaemon]:
    if not docker_daemon.publishes_ports:
        pytest.skip("this machine cannot make a bridge")
    for name, value in docker_daemon.environment.items():
        monkeypatch.setenv(name, value)
    yield docker_daemon
    assert containers(docker_daemon) == []


def containers(daemon: DockerDaemon):
    return daemon.client().containers.list(all=True, ignore_removed=True, filters={"label": OURS})


@pytest.fixture
def engine_dir(tmp_path):
    engine = tmp_path / "engine"
    engine.mkdir()
    (engine / "config.json").write_text("the engine")
    return engine


@contextmanager
def lease(count: int) -> Iterator[tuple[str, ...]]:
    yield (GPU,) * count


def place(tmp_path) -> ContainerServing:
    return ContainerServing(
        image=python_reference(), workdir=tmp_path / "work", progress=Silent(), lease=lease
    )


@contextmanager
def served(tmp_path, engine_dir, wanted=None, timeout_s=LIMIT_S):
    with (
        place(tmp_path)(wanted or command()) as placed,
        serving(
            placed,
            engine_dir,
            progress=Silent(),
            log_path=tmp_path / "server.log",
            timeout_s=timeout_s,
        ) as server,
    ):
        yield server


def get(server, path="/"):
    address = urlsplit(server.endpoint.base_url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=10)
    connection.request("GET", path)
    return json.loads(connection.getresponse().read())


def test_a_server_in_its_image_is_reached_on_loopback_and_gone_afterwards(
    daemon, tmp_path, engine_dir
):
    wanted = command(gpus=1, shm_bytes=16 << 20)
    with served(tmp_path, engine_dir, wanted) as server:
        seen = get(server)
        (container,) = containers(daemon)
        attributes = container.attrs
    assert seen["engine"] == "the engine"
    assert seen["refused"] == "Read-only file system"
    assert seen["directory"] == "/ci/scratch"
    assert seen["environment"]["HF_HUB_OFFLINE"] == "1"
    assert seen["environment"]["NVIDIA_VISIBLE_DEVICES"] == GPU
    assert "DOCKER_HOST" not in seen["environment"]
    ports = attributes["NetworkSettings"]["Ports"]
    assert {binding["HostIp"] for found in ports.values() for binding in found} == {"127.0.0.1"}
    assert list((tmp_path / "work").iterdir()) == []
    assert "serving" in (tmp_path / "server.log").read_text()


def test_a_server_that_ends_while_it_is_asked_ended_by_itself(daemon, tmp_path, engine_dir):
    with served(tmp_path, engine_dir) as server:
        with pytest.raises((OSError, http.client.HTTPException)):
            get(server, "/end")
        server._process.wait(LIMIT_S)
        assert (server.ended().words, server.ended().by_itself) == ("exited with code 3", True)


def test_a_server_that_is_killed_from_outside_says_nothing_of_the_engine(
    daemon, tmp_path, engine_dir
):
    with served(tmp_path, engine_dir) as server:
        containers(daemon)[0].kill()
        server._process.wait(LIMIT_S)
        assert not server.ended().by_itself


def test_a_server_that_cannot_load_the_engine_fails_the_gate(daemon, tmp_path, engine_dir):
    broken = "import sys; sys.exit('Failed to deserialize cuda engine')"
    with pytest.raises(DidNotLoad) as caught, served(tmp_path, engine_dir, command(broken)):
        pass
    assert "Failed to deserialize cuda engine" in "\n".join(caught.value.log)


def test_an_image_without_the_server_could_not_be_judged(daemon, tmp_path, engine_dir):
    missing = command(argv=("trtllm-serve", "{engine}"))
    with (
        pytest.raises(CouldNotServe, match="trtllm-serve") as caught,
        served(tmp_path, engine_dir, missing),
    ):
        pass
    assert caught.value.name == "command-not-in-image"


def test_a_server_that_never_gets_ready_and_ignores_sigterm_is_removed(
    daemon, tmp_path, engine_dir
):
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"
    with (
        pytest.raises(CouldNotServe, match="not ready after 2 s"),
        served(tmp_path, engine_dir, command(deaf), timeout_s=2),
    ):
        pass


def test_a_port_that_is_taken_is_told_so_that_another_is_tried(daemon, tmp_path, engine_dir):
    with socket.socket() as taken, place(tmp_path)(command()) as placed:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        argv = [
            part.replace("{python}", sys.executable)
            .replace("{engine}", str(engine_dir))
            .replace("{port}", str(taken.getsockname()[1]))
            for part in placed.argv
        ]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert '"reference": "port-taken"' in done.stderr


GATE = """
import sys
from contextlib import contextmanager
from pathlib import Path
from engine_pipeline.backends.port import ServeCommand
from engine_pipeline.gates.server import serving
from engine_pipeline.progress import Silent
from engine_pipeline.runners.docker.serve import ContainerServing

root, image, command = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
place = ContainerServing(image=image, workdir=root / "work", progress=Silent(), lease=None)
with (
    place(ServeCommand.model_validate_json(command)) as placed,
    serving(placed, root / "engine", progress=Silent(), log_path=root / "log", timeout_s=40),
):
    print("ready", flush=True)
    sys.stdin.read()
"""


def test_kill_9_of_a_gate_removes_its_server(daemon, tmp_path, engine_dir):
    gate = subprocess.Popen(
        [
            sys.executable,
            "-c",
            GATE,
            str(tmp_path),
            python_reference(),
            command().model_dump_json(),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with gate:
        assert gate.stdout.readline() == b"ready\n"
        assert len(containers(daemon)) == 1
        gate.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + LIMIT_S
    while containers(daemon):
        assert time.monotonic() < deadline
        time.sleep(0.05)
