"""A bake-off of real engines behind the real llama.cpp server, and vLLM beside it at night."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.backends.llama_cpp.backend import LlamaCppBackend
from engine_pipeline.bakeoff.entry import EngineEntry, Entry, checked_identity, endpoint_entry
from engine_pipeline.bakeoff.file import BakeoffFile
from engine_pipeline.bakeoff.measure import self_test
from engine_pipeline.bakeoff.measured import Measured, Unmeasured
from engine_pipeline.bakeoff.result import BakeoffResult, judge_bakeoff
from engine_pipeline.bakeoff.run import run_bakeoff
from engine_pipeline.bakeoff.trial import trial_of
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import Device
from engine_pipeline.gates.server import Server
from engine_pipeline.gates.suite import Suite
from engine_pipeline.progress import Silent
from engine_registry.documents import canonical_json
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import TickingClock, sample_engine
from tests.planted import f16, quantised, source
from tests.servers.vllm_cpu import CannotStart, vllm, vllm_python

pytestmark = [pytest.mark.model, pytest.mark.xdist_group("model")]

RUNTIME_CONFIG: dict[str, Any] = {
    "limits": {
        "max_batch_size": 2,
        "max_input_tokens": 256,
        "max_sequence_tokens": 512,
        "max_batch_tokens": 512,
    },
    "serving": {},
}
SUITE = Suite.model_validate(
    {
        "name": "short",
        "owner": "x",
        "description": "x",
        "model": "smollm2-135m-instruct",
        "reference": {"spec": "smollm2-135m-instruct/cpu-x86-64-v3-fp16", "note": "x"},
        "sampling": {"temperature": 0, "top_p": 1, "seed": 1, "max_tokens": 12},
        "cases": [
            {
                "id": "capital",
                "tags": ["facts"],
                "messages": [{"role": "user", "content": "What is the capital city of Japan?"}],
                "checks": [{"kind": "contains", "all_of": ["Tokyo"]}],
            }
        ],
    }
)
SCHEMA = {
    "type": "object",
    "properties": {"year": {"type": "integer", "minimum": 1000, "maximum": 2100}},
    "required": ["year"],
    "additionalProperties": False,
}


# A machine that runs other tests besides may keep the client from its times.
LANE = {
    "workload": {
        "name": "chat",
        "prompt_tokens": {"kind": "uniform", "low": 40, "high": 60},
        "output_tokens": {"kind": "uniform", "low": 4, "high": 8},
        "arrival": {"kind": "poisson", "rate_per_s": 4},
        "requests": 20,
        "warmup_requests": 2,
    },
    "ceilings": {"e2e_p50_ms": 60000},
    "max_client_lag_ms": 5000,
}


def bake(
    tmp_path: Path, models: dict[str, Path], *, requests: int = 4, endpoints: Sequence[Server] = ()
) -> BakeoffResult:
    registry = open_registry(str(tmp_path / "registry"), TickingClock())
    registry.stores.blobs.add_bytes(b"founds it")
    backend = LlamaCppBackend()
    file = BakeoffFile.model_validate(
        {
            "schema_version": 1,
            "name": "real",
            "contestants": [
                *(
                    {
                        "name": "vllm",
                        "endpoint": {
                            "url": server.endpoint.base_url,
                            "model": server.endpoint.model,
                        },
                        "model_revision": "0.1.2",
                        "chat_template": "the checkpoint's own",
                        "price": {"per_hour": 0.1},
                    }
                    for server in endpoints
                ),
                *({"name": name, "engine": name, "price": {"per_hour": 0.1}} for name in models),
            ],
            "suites": ["short"],
            "load": {"requests": requests, "concurrency": [1], "output_tokens": 6},
            "lanes": {"chat": LANE},
            "structured": {
                "requests": 2,
                "output_tokens": 32,
                "ask": "Give a year.",
                "schema": SCHEMA,
            },
            "optimise": ["cost", "quality"],
        }
    )
    entries: dict[str, Entry | Unmeasured] = {
        one.name: endpoint_entry(one, {}, timeout_s=file.timeout_s)
        for one in file.contestants
        if one.endpoint is not None
    }
    for name, path in models.items():
        entries[name] = _entry(registry, backend, tmp_path, file, name, path)
    trial = trial_of(file, [SUITE], today=registry.clock().date())
    found = run_bakeoff(
        trial,
        entries,
        workdir=tmp_path / "kept",
        again=False,
        self_test=lambda: self_test(trial, tmp_path / "kept", Silent()),
        progress=Silent(),
        clock=registry.clock,
    )
    made = {name: one for name, one in found.items() if isinstance(one, Measured)}
    assert set(made) == {one.name for one in file.contestants}, found
    return judge_bakeoff(file, made, {}, registry.clock())


def _entry(
    registry: Registry,
    backend: LlamaCppBackend,
    tmp_path: Path,
    file: BakeoffFile,
    name: str,
    path: Path,
) -> EngineEntry:
    engine = sample_engine(registry, path.parent.name, {"model.gguf": path.read_bytes()}).digest
    [contestant] = [one for one in file.contestants if one.name == name]
    return EngineEntry(
        identity=checked_identity(contestant, engine, "0.1.2", None),
        engine=engine,
        registry=registry,
        backend=backend,
        device=Device(
            sku="cpu-x86-64-v3",
            host_class="test host",
            cpu_model="test",
            cores=2,
            runtime=backend.runtime(),
        ),
        runtime_config=RUNTIME_CONFIG,
        workdir=tmp_path / "work",
        load_timeout_s=120.0,
        place=nullcontext,
    )


def check(result: BakeoffResult) -> None:
    assert result.winner is not None
    for row in result.contestants:
        assert row.score is not None
        assert row.score.value == 1.0
        assert row.at is not None
        assert row.at.failed == {}
        assert row.at.ignores_eos
        assert row.at.cost is not None
        [chat] = row.lanes
        assert (chat.outcome, chat.failed, chat.requests) == (Outcome.PASSED, {}, 20)
        # Under the schema's grammar every answer that is finished fits.
        assert row.structured is not None
        assert row.structured.valid == 2, row.structured.defects
    assert canonical_json(result)


def test_an_engine_is_served_measured_once_and_level_with_itself(tmp_path):
    # As the package has it, in INT4: nothing is converted.
    [gguf] = source().glob("*.gguf")
    result = bake(tmp_path, {"one": gguf, "again": gguf})
    check(result)
    assert len(list((tmp_path / "kept").glob("*.json"))) == 1
    assert (result.winner, result.tied, result.outcome) == (
        "one",
        ("again",),
        Outcome.INCONCLUSIVE,
    )
    assert "take either" in result.recommendation


@pytest.mark.nightly
def test_three_precisions_under_a_load_that_proves_p95(tmp_path):
    parent = f16(tmp_path / "f16" / "model.gguf")
    models = {
        name: quantised(parent, recipe, tmp_path / name / "model.gguf")
        for name, recipe in (("int8", "q8_0"), ("int4", "q4_1"))
    }
    check(bake(tmp_path, {"f16": parent, **models}, requests=60))


@pytest.mark.nightly
def test_vllm_as_an_endpoint_beside_an_engine_of_the_same_weights(tmp_path):
    try:
        vllm_python()
    except CannotStart as error:
        pytest.skip(str(error))
    parent = f16(tmp_path / "f16" / "model.gguf")
    [gguf] = source().glob("*.gguf")
    with vllm(gguf, tmp_path) as server:
        result = bake(tmp_path, {"llama-cpp": parent}, endpoints=[server])
    check(result)
    engines = {row.name: row.identity.verified for row in result.contestants if row.identity}
    assert engines == {"vllm": False, "llama-cpp": True}
    assert any("vllm are what the file states" in caveat for caveat in result.caveats)
