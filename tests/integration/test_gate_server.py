"""A server's life: real processes, every way of not getting ready, and no server outlives us."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from engine_pipeline.backends.port import ServeCommand
from engine_pipeline.gates import server as servers
from engine_pipeline.gates.ending import CouldNotServe, DidNotLoad
from engine_pipeline.gates.server import serving
from engine_pipeline.progress import Silent

PATIENCE_S = 20.0


def command(*options: str) -> ServeCommand:
    module = "engine_pipeline.gates.testing.chat_server"
    return ServeCommand(
        argv=("{python}", "-m", module, "--port", "{port}", *options), model_name="m"
    )


def run(tmp_path: Path, served: ServeCommand, timeout_s: float = PATIENCE_S, stop_s: float = 5.0):
    return serving(
        served,
        tmp_path,
        progress=Silent(),
        log_path=tmp_path / "server.log",
        timeout_s=timeout_s,
        stop_s=stop_s,
    )


def answers(base_url: str) -> bool:
    connection = http.client.HTTPConnection(base_url.removeprefix("http://"), timeout=5)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def until_silent(base_url: str) -> None:
    """Wait until nobody answers any more."""
    deadline = time.monotonic() + PATIENCE_S
    while answers(base_url):
        assert time.monotonic() < deadline, f"{base_url} still answers"
        time.sleep(0.02)


def test_a_server_is_ready_inside_the_block_and_gone_after_it(tmp_path):
    with run(tmp_path, command("--load-s", "0.2")) as server:
        assert answers(server.endpoint.base_url)
        assert server.load_s >= 0.2
        assert server.ended() is None
        assert server.log()[0] == "loading"
    assert not answers(server.endpoint.base_url)


def test_it_is_gone_after_an_error_in_the_block(tmp_path):
    with pytest.raises(KeyboardInterrupt), run(tmp_path, command()) as server:
        raise KeyboardInterrupt
    assert not answers(server.endpoint.base_url)


def test_a_server_that_ignores_sigterm_is_killed(tmp_path):
    with run(tmp_path, command("--ignore-sigterm"), stop_s=0.2) as server:
        assert answers(server.endpoint.base_url)
    assert not answers(server.endpoint.base_url)


def test_a_server_that_exits_while_loading_did_not_load_the_engine(tmp_path):
    with (
        pytest.raises(DidNotLoad, match="exited with code 3") as caught,
        run(tmp_path, command("--exit-at-load", "3")),
    ):
        pytest.fail("it must not get ready")
    assert caught.value.log == ("loading", "error: wrong tensor shape")


def test_a_server_that_is_killed_while_loading_says_nothing_of_the_engine(tmp_path):
    with (
        pytest.raises(CouldNotServe, match="was killed by SIGKILL before it was ready"),
        run(tmp_path, command("--kill-at-load")),
    ):
        pytest.fail("it must not get ready")


def test_a_server_that_never_gets_ready_is_given_up_with_what_it_said(tmp_path):
    with (
        pytest.raises(CouldNotServe, match="not ready after 1 s: /health says 503, want 200") as it,
        run(tmp_path, command("--never-ready"), timeout_s=1.0),
    ):
        pytest.fail("it must not get ready")
    assert it.value.name == "server-not-ready"
    assert it.value.log


def test_a_command_that_is_not_there_could_not_be_started(tmp_path):
    missing = ServeCommand(argv=("/nowhere/server", "{port}"), model_name="m")
    with (
        pytest.raises(CouldNotServe, match="could not be started") as caught,
        run(tmp_path, missing),
    ):
        pytest.fail("it must not get ready")
    assert "guard: cannot start /nowhere/server" in caught.value.log[0]


@pytest.fixture
def taken_port():
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def test_a_port_that_was_taken_meanwhile_is_tried_again_with_another(
    tmp_path, monkeypatch, taken_port
):
    free = servers._free_port
    picks = iter([taken_port, free()])
    monkeypatch.setattr(servers, "_free_port", lambda: next(picks))
    with run(tmp_path, command()) as server:
        assert answers(server.endpoint.base_url)
        assert not server.endpoint.base_url.endswith(f":{taken_port}")


def test_a_port_that_is_taken_twice_is_no_verdict_on_the_engine(tmp_path, monkeypatch, taken_port):
    monkeypatch.setattr(servers, "_free_port", lambda: taken_port)
    word = '::error {"reference": "port-taken", "message": "taken", "hint": "x", "exit_code": 9}'
    with (
        pytest.raises(CouldNotServe, match="taken") as caught,
        run(tmp_path, command("--exit-at-load", "9", "--last-word", word)),
    ):
        pytest.fail("it must not get ready")
    assert caught.value.name == "port-taken"


@pytest.mark.skipif(sys.platform != "linux", reason="reservations are a Linux thing")
def test_two_gates_never_get_the_same_port(monkeypatch):
    picks = iter([40001, 40001, 40001, 40002, 40001])
    monkeypatch.setattr(servers, "_free_port", lambda: next(picks))
    with servers._reserved_port() as first, servers._reserved_port() as second:
        assert (first, second) == (40001, 40002)
    with servers._reserved_port() as again:
        assert again == 40001


def test_the_end_of_a_server_is_seen_and_named(tmp_path):
    with run(tmp_path, command()) as server:
        os.kill(pid_of(server), signal.SIGSEGV)
        deadline = time.monotonic() + PATIENCE_S
        while server.ended() is None:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        ended = server.ended()
    assert ended is not None
    assert (ended.words, ended.by_itself) == ("crashed with SIGSEGV", True)


def pid_of(server: servers.Server) -> int:
    return int(server.log()[-1].removeprefix("process ").split()[0])


def test_no_secret_of_the_environment_reaches_the_server(tmp_path, monkeypatch):
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "db_password", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "s3cret")
    monkeypatch.setenv("HARMLESS", "visible")
    code = "import os, sys; print(*os.environ.values(), flush=True); sys.exit(5)"
    shown = ServeCommand(
        argv=("{python}", "-c", code), model_name="m", env={"EXTRA": "from the backend"}
    )
    with pytest.raises(DidNotLoad), run(tmp_path, shown):
        pytest.fail("it must not get ready")
    log = (tmp_path / "server.log").read_text()
    assert "s3cret" not in log
    assert "visible" in log
    assert "from the backend" in log


OWNER = """
import sys, time
from pathlib import Path
from engine_pipeline.backends.port import ServeCommand
from engine_pipeline.gates.server import serving
from engine_pipeline.progress import Silent

work = Path(sys.argv[1])
module = "engine_pipeline.gates.testing.chat_server"
argv = ("{python}", "-m", module, "--port", "{port}", *sys.argv[2:])
command = ServeCommand(argv=argv, model_name="m")
log = work / "log"
with serving(
    command, work, progress=Silent(), log_path=log, timeout_s=20, stop_s=0.5
) as server:
    print(server.endpoint.base_url, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("options", [(), ("--ignore-sigterm",)])
def test_a_server_dies_with_its_owner_even_by_kill_9(tmp_path, options):
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path), *options],
        stdout=subprocess.PIPE,
        text=True,
    ) as owner:
        assert owner.stdout is not None
        base_url = owner.stdout.readline().strip()
        assert answers(base_url)
        owner.kill()
        owner.wait()
        until_silent(base_url)
