"""`embeddings:` of a gate on the command line: an endpoint, a pinned file, and what is wrong."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

from engine_pipeline.cli.wiring import Shell
from engine_pipeline.gates.testing.chat_server import Behaviour, ChatServer
from engine_pipeline.promote import release as releasing
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.testing.samples import sample_engine
from tests.chat_world import ChatBackend
from tests.servers.embeddings import Embeddings, embeddings
from tests.unit.cli.conftest import CASES, CHANNELS, PRODUCT
from tests.unit.gates.test_endpoint_gate import listening

KEY = "embed-key-0123456789"
SIMILAR = CASES.replace(
    'checks: [{kind: contains, all_of: ["yes"]}]',
    "checks: [{kind: similar, to: yes it is so, at_least: 0.8}]",
)


@pytest.fixture
def compared(project, monkeypatch):
    """A project whose suite compares, with an engine that says what its file says."""
    (project.root / "golden_prompts" / "core" / "cases.yaml").write_text(SIMILAR)
    spec = SimpleNamespace(
        limits=SimpleNamespace(model_dump=lambda **_: {}), serving={}, name="tiny"
    )
    lock = SimpleNamespace(image=None, spec=spec)
    monkeypatch.setattr(releasing, "lock_of", lambda registry, record: lock)
    monkeypatch.setattr(Shell, "backend", lambda self, kind: ChatBackend())
    return project


def named(**model: str) -> str:
    """`channels.yaml` with an embedding model."""
    said = "".join(f"{name}: {value!r}, " for name, value in model.items())
    return CHANNELS.replace(
        "quality: {min_score: 0.9}", f"quality: {{min_score: 0.9}}\n    embeddings: {{ {said} }}"
    )


def gate(project, answer: str = "so it is, yes", **model: str):
    (project.root / "channels.yaml").write_text(named(**model))
    data = canonical_json({"answer": answer})
    engine = sample_engine(project.registry, answer, {"behaviour.json": data}, product=PRODUCT)
    return project.run("gate", str(engine.digest), "--gate", "core", as_json=True)


def test_a_gate_compares_answers_by_the_endpoint_that_it_names(compared, monkeypatch):
    monkeypatch.setenv("EMBED_KEY", KEY)
    with embeddings(Embeddings(api_key=KEY)) as (url, server):
        model = {"endpoint": f"{url}/v1", "model": "small", "api_key_env": "EMBED_KEY"}
        right = gate(compared, **model)
        wrong = gate(compared, "bananas are yellow", **model)
        monkeypatch.setenv("EMBED_KEY", KEY[::-1])
        refused = gate(compared, "yes, it is so", **model)
    assert (right.code, wrong.code, refused.code) == (0, 3, 4)
    assert len(server.asked) == 4
    for ran in (right, wrong, refused):
        for key in (KEY, KEY[::-1]):
            assert key not in ran.out + ran.err


def test_a_running_server_is_compared_in_the_same_way(compared):
    with (
        embeddings() as (where, server),
        listening(ChatServer(Behaviour(answer="so it is, yes"))) as url,
    ):
        text = named(endpoint=where, model="small")
        (compared.root / "channels.yaml").write_text(text)
        by = ("--endpoint", url, "--model", "engine", "--gate", "core")
        ran = compared.run("gate", *by, "--report", "gate.json")
    assert ran.code == 0, ran.err
    assert len(server.asked) == 2
    report = json.loads((compared.root / "gate.json").read_text())
    assert report["embeddings"]["model"] == "small"


def test_a_key_that_is_not_set_is_told_before_anything_runs(compared, monkeypatch):
    monkeypatch.delenv("EMBED_KEY", raising=False)
    ran = gate(compared, endpoint="http://x/v1", model="m", api_key_env="EMBED_KEY")
    assert ran.code == 2
    assert "EMBED_KEY, which is not set" in ran.err


def test_a_file_must_be_there_and_be_the_pinned_one(compared):
    pinned = {"file": "small.gguf", "digest": str(Digest.of(b"x"))}
    missing = gate(compared, **pinned)
    assert missing.code == 8
    assert "embedding model small.gguf: No such file or directory" in missing.err
    assert "embedding model small.gguf" in compared.run("validate", "channels.yaml").out
    (compared.root / "small.gguf").write_bytes(b"y")
    other = gate(compared, **pinned)
    assert other.code == 2
    assert f"is {Digest.of(b'y').short}, channels.yaml pins {Digest.of(b'x').short}" in other.err
    assert str(Digest.of(b"y")) in other.err
    (compared.root / "small.gguf").write_bytes(b"x")
    foreign = gate(compared, **pinned)
    assert foreign.code == 2
    assert "not a GGUF file" in foreign.err


def test_a_bar_is_given_with_answers_that_become_references(project):
    log = project.root / "log.jsonl"
    log.write_text('{"messages": [{"role": "user", "content": "Hi?"}], "ideal": "Hello!"}\n')
    to = ("--into", "golden_prompts/desk", "--owner", "x", "--model", "tiny")
    asked = ("suite", "import", str(log), *to, "--ideal-as", "similar")
    refused = project.run(*asked)
    assert refused.code == 2
    assert "--at-least COSINE go together" in refused.err
    assert project.run(*asked, "--at-least", "0.75").code == 0
    text = (project.root / "golden_prompts" / "desk" / "captured.yaml").read_text()
    assert '"similar"' in text
    assert "0.75" in text
    exported = project.run("suite", "export", "desk")
    assert '"reference": "Hello!"' in exported.out
