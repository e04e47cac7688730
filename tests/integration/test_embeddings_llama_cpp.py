"""Real weights as an embedding model: served by the gate itself, pinned, and mortal."""

from __future__ import annotations

import asyncio
import os
import signal
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.cli.wiring import Shell
from engine_pipeline.cli.wiring_embeddings import embeddings_of
from engine_pipeline.gates.embedder import Embedder
from engine_pipeline.gates.embedding_model import LocalEmbeddings
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.report import Device, Report
from engine_pipeline.gates.run import run_gate
from engine_pipeline.progress import Silent
from engine_registry.digest import Digest
from engine_registry.errors import InvalidInput
from tests.chat_world import ChatBackend, engine_of, registry_at, suite_of
from tests.integration.test_gate_llama_cpp import weights

pytestmark = [pytest.mark.model, pytest.mark.xdist_group("model")]

FRANCE = "Paris is the capital of France."
PASSWORD = "To reset your password, open the settings page."
NEAR = {
    FRANCE: "The capital of France is Paris.",
    PASSWORD: "You can change your password under settings.",
}
DEVICE = Device(sku="cpu-x86-64-v3", host_class="test", cpu_model="test", cores=2)
FAR = {FRANCE: "Bananas are yellow fruit.", PASSWORD: "2 + 2 = 4"}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A project whose folder has the weights."""
    (tmp_path / "small.gguf").symlink_to(weights())
    made = Shell(
        registry_url=f"file://{tmp_path}/engines",
        channels_file=str(tmp_path / "channels.yaml"),
        cache_dir=str(tmp_path / "cache"),
    )
    made.__dict__["progress"] = Silent()
    return made


@pytest.fixture(scope="module")
def digest() -> Digest:
    with weights().open("rb") as stream:
        return Digest.of_stream(stream)


def test_a_file_tells_near_from_far_and_its_death_says_nothing_of_the_engine(shell, digest):
    model = LocalEmbeddings(file="small.gguf", digest=digest, pooling="mean", max_tokens=128)
    place = embeddings_of(shell, model, load_timeout_s=60)
    assert place is not None
    served: list[str] = []

    @contextmanager
    def noted() -> Any:
        with place.serve() as endpoint:
            served.append(endpoint.base_url)
            yield endpoint

    async def act() -> dict[str, Any]:
        async with Embedder(model, replace(place, serve=noted)) as embedder:
            found: dict[str, Any] = {}
            for text in (FRANCE, PASSWORD):
                for name, answer in {"same": text, "near": NEAR[text], "far": FAR[text]}.items():
                    found[f"{name} {text}"] = await embedder.compare(answer, [text], 0.9)
            found["long"] = await embedder.compare("word " * 200, [FRANCE], 0.9)
            end_server(served[0])
            found["dead"] = await embedder.compare("Paris.", [FRANCE], 0.9)
        return {**found, "used": embedder.used()}

    found = asyncio.run(act())
    for text in (FRANCE, PASSWORD):
        same, near, far = (found[f"{name} {text}"] for name in ("same", "near", "far"))
        assert same[2].value == 1.0
        assert (near[0], far[0]) == (True, False)
        assert near[2].value > 0.9 > far[2].value + 0.1
    passed, reason, similarity = found["long"]
    assert (passed, similarity) == (None, None)
    assert reason.startswith("the embedding model does not take the answer, 1000 characters: ")
    assert "too large" in reason
    assert found["dead"][0] is None
    assert found["dead"][1].startswith("the embedding model does not answer")
    used = found["used"]
    assert (used.model, used.digest, used.pooling) == ("small.gguf", digest, "mean")
    assert (used.endpoint, used.dimension, used.unanswered) == (None, 576, 2)
    assert used.runtime.startswith("xllamacpp ")


def end_server(url: str) -> None:
    """Kill whoever was told to listen there, as the kernel does when memory runs out."""
    port = url.rpartition(":")[2]
    told = f"\0--port\0{port}\0".encode()
    killed = [
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if told in path.read_bytes() and b"\0--pooling\0" in path.read_bytes()
    ]
    assert killed
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
        while Path(f"/proc/{pid}/stat").exists() and b") Z" not in stat(pid):
            os.sched_yield()


def stat(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b") Z"


def test_a_model_that_does_not_say_how_it_pools_is_refused_with_what_there_is(shell, digest):
    with pytest.raises(InvalidInput, match="does not say how its vectors are pooled") as caught:
        embeddings_of(shell, LocalEmbeddings(file="small.gguf", digest=digest), load_timeout_s=60)
    assert caught.value.name == "pooling-not-stated"


def test_a_gate_judges_by_it_and_a_file_that_does_not_load_leaves_it_open(
    shell, digest, tmp_path, monkeypatch
):
    registry = registry_at(tmp_path)
    engine = engine_of(registry, answer=NEAR[FRANCE])
    suite = suite_of(
        {
            "id": "in-other-words",
            "tags": ["facts"],
            "must": True,
            "messages": [{"role": "user", "content": "Which one is it?"}],
            "checks": [{"kind": "similar", "to": FRANCE, "at_least": 0.9}],
        }
    )
    model = {"file": "small.gguf", "digest": str(digest), "pooling": "mean", "max_tokens": 128}
    policy = GatePolicy.model_validate(
        {"suite": suite.name, "quality": {"min_score": 1.0}, "embeddings": model}
    )

    def judge() -> Report:
        place = embeddings_of(shell, policy.embeddings, load_timeout_s=policy.load_timeout_s)
        report, _ = run_gate(
            registry=registry,
            engine=engine,
            gate="core",
            policy=policy,
            suite=suite,
            backend=ChatBackend(),
            runtime_config={"limits": {}, "serving": {}},
            device=DEVICE,
            progress=Silent(),
            clock=registry.clock,
            workdir=tmp_path / "work",
            embeddings=place,
        )
        return report

    report = judge()
    assert report.outcome is Outcome.PASSED
    assert report.embeddings is not None
    assert (report.embeddings.asked, report.embeddings.unanswered) == (2, 0)
    # As on a machine that lacks what was there when the gate was asked for.
    monkeypatch.setattr("engine_pipeline.backends.llama_cpp.embeddings._SERVER", "not_there")
    open_report = judge()
    assert open_report.outcome is Outcome.ERRORED
    case = open_report.cases[-1]
    assert case.attempts[0].checks[-1].reason.startswith("there is no embedding model: ")
