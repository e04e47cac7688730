"""The fetch step as a process, with the environment variables that every tool of the hub knows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine_pipeline.progress import Silent
from engine_pipeline.runners.protocol import parse_error
from engine_pipeline.sources.hub import HubSource
from engine_pipeline.sources.hub_client import HubClient
from engine_pipeline.sources.port import Wanted
from engine_pipeline.spec.lock import BuildLock, LockedTokenizer
from engine_pipeline.spec.lock_file import write_lock
from engine_pipeline.spec.model import BuildSpec
from engine_registry.digest import Digest
from engine_registry.errors import EngineCIError, ExitCode
from tests.servers.hub import Fault, HubServer

TOKEN = "hf_PlantedTokenThatMustNeverBeSeen0123456789"
FILES = {"config.json": b"{}", "model.safetensors": b"weights " * 20_000}
SPEC = {
    "schema_version": 1,
    "model": {"name": "m", "source": "hf://org/model", "revision": "main"},
    "target": {"sku": "cpu-x86-64-v3"},
    "precision": {"weights": "fp16"},
    "backend": {"kind": "llama-cpp", "version": "1"},
    "limits": {
        "max_batch_size": 1,
        "max_input_tokens": 8,
        "max_sequence_tokens": 16,
        "max_batch_tokens": 8,
    },
    "suites": ["s"],
}


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        server.tokens.add(TOKEN)
        server.repo("org/model", private=True).commit("main", FILES)
        yield server


@pytest.fixture
def lock_path(hub: HubServer, tmp_path: Path) -> Path:
    client = HubClient(endpoint=hub.url, cache_dir=tmp_path / "lock-cache", token=TOKEN)
    source = HubSource(client).resolve(Wanted(uri="hf://org/model", revision="main"), Silent())
    lock = BuildLock(
        spec=BuildSpec.model_validate(SPEC),
        source=source,
        tokenizer=LockedTokenizer(digest=Digest.of(b""), chat_template=None),
        tools={},
    )
    path = tmp_path / "spec.lock.json"
    write_lock(lock, path)
    return path


@pytest.fixture
def start(hub: HubServer, lock_path: Path, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    def run(output: str = "out", part: str = "source", **env: str) -> subprocess.Popen[str]:
        (tmp_path / output).mkdir(exist_ok=True)
        return subprocess.Popen(
            [
                sys.executable,
                *("-m", "engine_pipeline.sources.fetch"),
                *("--lock", str(lock_path), "--part", part, "--output", str(tmp_path / output)),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
                "HF_ENDPOINT": hub.url,
                "HF_HOME": str(tmp_path / "hf-home"),
                "HF_TOKEN": TOKEN,
                **env,
            },
        )

    return run


def ending(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def error_of(err: str) -> EngineCIError:
    error = parse_error(err.splitlines()[-1])
    assert error is not None
    return error


def test_the_step_puts_the_locked_files_into_its_directory_and_reports_bytes(start, tmp_path):
    code, out, err = ending(start())
    assert (code, err) == (0, "")
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == FILES
    total = sum(map(len, FILES.values()))
    assert f"::progress {total} {total} bytes" in out.splitlines()
    assert (tmp_path / "hf-home" / "hub" / "models--org--model").is_dir()


def test_a_rejected_token_ends_it_with_one_error_line_that_does_not_show_it(start, hub):
    bad = "hf_NobodyKnowsThisTokenAtAll0123456789"
    code, out, err = ending(start(HF_TOKEN=bad))
    assert code == ExitCode.INVALID
    assert error_of(err).name == "hub-bad-token"
    assert len(err.strip().splitlines()) == 1
    assert bad not in out + err


def test_offline_it_takes_what_is_cached_and_says_what_is_missing(start, hub, tmp_path):
    code, _, err = ending(start(HF_HUB_OFFLINE="1"))
    assert code == ExitCode.UNAVAILABLE
    assert error_of(err).name == "hub-offline"
    assert ending(start())[0] == 0
    hub.seen.clear()
    assert ending(start("again", HF_HUB_OFFLINE="1"))[0] == 0
    assert {p.name for p in (tmp_path / "again").iterdir()} == set(FILES)
    assert not hub.seen


def test_it_asks_the_hub_for_the_files_and_for_nothing_else(start, hub):
    hub.seen.clear()
    assert ending(start(AI_AGENT="x"))[0] == 0
    assert {seen.path.split("/")[1] for seen in hub.seen} == {"org", "cdn"}


def test_a_broken_download_shows_in_the_log_without_the_signature_of_its_link(start, hub):
    hub.faults.append(Fault("truncate", "/cdn/"))
    code, out, err = ending(start())
    assert code == 0
    assert "/cdn/" in err, "the library no longer warns, so this test sees nothing"
    assert "s3cret" not in out + err


def test_two_processes_that_need_one_revision_download_it_once(start, hub, tmp_path):
    hub.seen.clear()
    processes = [start(f"out-{number}") for number in range(2)]
    assert [ending(process)[0] for process in processes] == [0, 0]
    assert len(hub.requests("/cdn/", "GET")) == 1
    for number in range(2):
        assert {p.name for p in (tmp_path / f"out-{number}").iterdir()} == set(FILES)


def test_a_part_that_the_lock_does_not_have_is_an_error(start):
    code, _, err = ending(start(part="calibration"))
    assert code == ExitCode.INVALID
    assert error_of(err).name == "lock-part-missing"
