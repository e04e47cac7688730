"""Whole builds by the real runner, killed with kill -9 wherever it hurts."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import gguf
import numpy as np
import pytest

from engine_pipeline.backends.llama_cpp.backend import LlamaCppBackend
from engine_pipeline.backends.llama_cpp.runtime import SUPPORTED_RUNTIME
from engine_pipeline.backends.llama_cpp.tokenizer import gguf_tokenizer
from engine_pipeline.build.build import build
from engine_pipeline.build.machine import this_machine
from engine_pipeline.build.step_cache import StepCache
from engine_pipeline.progress import Silent
from engine_pipeline.runners.local import LocalRunner
from engine_pipeline.spec.lock import BuildLock
from engine_registry.digest import Digest
from engine_registry.record import Actor
from engine_registry.registry import open_registry

LIMIT_S = 60
HIDDEN, WORDS, LAYERS = 256, 4096, 4


def write_model(path: Path) -> None:
    """A llama model of 8 MB: large enough to be caught in the middle, small enough to be quick."""
    random_numbers = np.random.default_rng(1)

    def matrix(*shape: int) -> np.ndarray:
        return (random_numbers.standard_normal(shape) * 0.1).astype(np.float16)

    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(1024)
    writer.add_embedding_length(HIDDEN)
    writer.add_token_list([f"word{number}" for number in range(WORDS)])
    writer.add_tensor("token_embd.weight", matrix(WORDS, HIDDEN))
    for layer in range(LAYERS):
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", matrix(HIDDEN, HIDDEN))
        writer.add_tensor(f"blk.{layer}.attn_norm.weight", matrix(HIDDEN).astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture(scope="module")
def lock_path(tmp_path_factory) -> Path:
    """An INT8 lock of that model, which lies beside it."""
    directory = tmp_path_factory.mktemp("lock")
    weights = directory / "model" / "toy.gguf"
    weights.parent.mkdir()
    write_model(weights)
    tokenizer, template = gguf_tokenizer(weights)
    backend = LlamaCppBackend()
    spec = {
        "schema_version": 1,
        "model": {"name": "toy", "source": "file://model", "revision": "one"},
        "target": {"sku": f"cpu-{this_machine().isa}"},
        "precision": {"weights": "int8"},
        "backend": {"kind": "llama-cpp", "version": SUPPORTED_RUNTIME},
        "limits": {
            "max_batch_size": 2,
            "max_input_tokens": 256,
            "max_sequence_tokens": 512,
            "max_batch_tokens": 512,
        },
        "suites": ["toy"],
    }
    file = {
        "path": weights.name,
        "size_bytes": weights.stat().st_size,
        "digest": Digest.of(weights.read_bytes()),
    }
    lock = BuildLock.model_validate(
        {
            "spec": spec,
            "source": {"source": "file://model", "revision": "one", "files": [file]},
            "tokenizer": {"digest": tokenizer, "chat_template": template},
            "tools": backend.tools(),
        }
    )
    path = directory / "toy.lock.json"
    path.write_text(lock.model_dump_json())
    return path


def run_build(lock_path: Path, directory: Path, progress=None):
    return build(
        BuildLock.model_validate_json(lock_path.read_bytes()),
        lock_path.read_bytes(),
        lock_path=lock_path,
        registry=open_registry(str(directory / "registry")),
        runner=LocalRunner(),
        cache=StepCache(directory / "cache"),
        backend=LlamaCppBackend(),
        machine=this_machine(),
        progress=progress or Silent(),
        actor=Actor(name="test", proved_by="os-user"),
        clock=lambda: datetime.now(UTC),
    )


BUILDER = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from engine_pipeline.backends.llama_cpp.backend import LlamaCppBackend
from engine_pipeline.build.build import build
from engine_pipeline.build.machine import this_machine
from engine_pipeline.build.step_cache import StepCache
from engine_pipeline.runners.local import LocalRunner
from engine_pipeline.spec.lock import BuildLock
from engine_registry.record import Actor
from engine_registry.registry import open_registry

class Told:
    def phase(self, *said): print(*said, flush=True)
    update = note = phase

lock_path, directory = Path(sys.argv[1]), Path(sys.argv[2])
build(
    BuildLock.model_validate_json(lock_path.read_bytes()),
    lock_path.read_bytes(),
    lock_path=lock_path,
    registry=open_registry(str(directory / "registry")),
    runner=LocalRunner(),
    cache=StepCache(directory / "cache"),
    backend=LlamaCppBackend(),
    machine=this_machine(),
    progress=Told(),
    actor=Actor(name="test", proved_by="os-user"),
    clock=lambda: datetime.now(UTC),
)
"""


def descendants(pid: int) -> list[int]:
    found = []
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    for child in map(int, children):
        found += [child, *descendants(child)]
    return found


def kill_after_lines(lock_path: Path, directory: Path, lines: int) -> bool:
    """Start a build, kill it after so many lines of progress; False if it was done before.

    Returns once every process that it had started is gone too.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", BUILDER, str(lock_path), str(directory)],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    for _ in range(lines):
        if not process.stdout.readline():
            assert process.wait(LIMIT_S) == 0
            return False
    watched = []
    for pid in descendants(process.pid):
        try:
            watched.append(os.pidfd_open(pid))
        except ProcessLookupError:
            continue
    process.send_signal(signal.SIGKILL)
    process.wait(LIMIT_S)
    for descriptor in watched:
        ready, _, _ = select.select([descriptor], [], [], LIMIT_S)
        assert ready, "a process of a killed build lives on"
        os.close(descriptor)
    process.stdout.close()
    return True


@pytest.fixture(scope="module")
def wanted(lock_path, tmp_path_factory):
    """What an undisturbed build gives."""
    return run_build(lock_path, tmp_path_factory.mktemp("undisturbed")).engine


@pytest.mark.parametrize("seed", range(4))
def test_a_build_killed_again_and_again_shows_no_half_entry_and_ends_as_if_never_killed(
    lock_path, wanted, tmp_path, seed
):
    dice = random.Random(seed)
    # An undisturbed build writes at least eleven lines, so that the first kill always hits.
    assert kill_after_lines(lock_path, tmp_path, dice.randrange(1, 12))
    for _ in range(2):
        cache = StepCache(tmp_path / "cache")
        for entry in (cache.root / "steps").glob("*"):
            assert cache.find(Digest(entry.name)) is not None, "a half entry is visible"
        kill_after_lines(lock_path, tmp_path, dice.randrange(1, 12))
    finished = run_build(lock_path, tmp_path)
    assert finished.engine == wanted
    assert open_registry(str(tmp_path / "registry")).engines.check_engine(wanted)
    # A last build that had work to do has swept; one that found the engine had no need to look.
    made = any(not step.reused for step in finished.steps)
    assert not made or list((tmp_path / "cache" / "staging").iterdir()) == []
