"""Parity and template guard on real weights: healthy engines pass, each planted fault does not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.backends.llama_cpp.backend import LlamaCppBackend
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.parity import Pair, compare, path
from engine_pipeline.gates.parity_answer import ParityAnswer, Step
from engine_pipeline.gates.parity_gate import compare_with_parents
from engine_pipeline.gates.parity_judge import judge_parity, sum_up
from engine_pipeline.gates.parity_parent import (
    ANSWERS_ARTIFACT,
    NoParent,
    ParentEngine,
    asked,
    recorded,
)
from engine_pipeline.gates.parity_result import DivergenceKind, Parent, ParityResult
from engine_pipeline.gates.parity_run import chosen_cases
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.report import Device, Report
from engine_pipeline.gates.run import run_gate
from engine_pipeline.gates.starter import Starter
from engine_pipeline.gates.suite import Reference, Suite
from engine_pipeline.gates.template_ask import record_template
from engine_pipeline.progress import Silent
from engine_registry.digest import Digest
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import TickingClock, sample_engine
from tests import planted

pytestmark = [pytest.mark.model, pytest.mark.xdist_group("model")]

PROMPTS = {
    "capital": ("What is the capital of Japan?", "Tokyo"),
    "ocean": ("What is the largest ocean on Earth?", "Pacific"),
    "sum": ("What is 2 plus 3? Answer with the number.", "5"),
    "colours": ("Name three colours.", "ed"),
    "sky": ("Why is the sky blue? Answer in one sentence.", "light"),
    "greeting": ("Write a friendly greeting for a new colleague.", "e"),
}
SUITE = Suite.model_validate(
    {
        "name": "kin",
        "owner": "x",
        "description": "x",
        "model": "smollm2-135m-instruct",
        "reference": {"spec": "smollm2-135m-instruct/cpu-x86-64-v3-fp16", "note": "x"},
        "sampling": {"temperature": 0, "top_p": 1, "seed": 1, "max_tokens": 12},
        "cases": [
            {
                "id": name,
                "tags": ["facts"],
                "messages": [{"role": "user", "content": asked_for}],
                "checks": [{"kind": "contains", "all_of": [want]}],
            }
            for name, (asked_for, want) in PROMPTS.items()
        ],
    }
)
# The bars of docs/parity.md, without those that six short prompts are too few for.
POLICY = GatePolicy.model_validate(
    {
        "suite": "kin",
        "quality": {"min_score": 0.1},
        "parity": {
            "parent": "f16",
            "forced_tokens": 12,
            "max_real_divergences": 0.1,
            "max_kl": 0.02,
            "min_top1_agreement": 0.95,
        },
    }
)
CONFIG: dict[str, Any] = {
    "limits": {
        "max_batch_size": 1,
        "max_input_tokens": 256,
        "max_sequence_tokens": 512,
        "max_batch_tokens": 512,
    },
    "serving": {},
}


@dataclass(frozen=True, kw_only=True)
class Kin:
    """A registry with the unquantised engine in it, and a folder for its children."""

    registry: Registry
    parent: Digest
    file: Path
    folder: Path

    @property
    def device(self) -> Device:
        return Device(
            sku="cpu-x86-64-v3",
            host_class="test host",
            cpu_model="test",
            cores=2,
            runtime=LlamaCppBackend().runtime(),
        )

    @property
    def parent_engine(self) -> ParentEngine:
        return ParentEngine(
            parent=Parent(named="f16", engine=self.parent, precision="fp16"),
            engine=self.parent,
            backend=LlamaCppBackend(),
            runtime_config=CONFIG,
            runtime=self.device.runtime,
        )

    def starter(self, file: Path) -> Starter:
        return Starter(
            backend=LlamaCppBackend(),
            engine_dir=file.parent,
            runtime_config=CONFIG,
            runtime=self.device.runtime,
            log_path=self.folder / "server.log",
            progress=Silent(),
            timeout_s=60,
        )

    def compare(self, file: Path) -> ParityResult:
        (result,) = compare_with_parents(
            registry=self.registry,
            candidate=self.starter(file),
            parents=[self.parent_engine],
            policy=POLICY,
            suite=SUITE,
            device=self.device,
            today=date(2026, 3, 1),
            loads=True,
            progress=Silent(),
            directory=self.folder,
        )
        return result

    def gate(self, engine: Digest, suite: Suite, *parents: ParentEngine | NoParent) -> Report:
        report, _ = run_gate(
            registry=self.registry,
            engine=engine,
            gate="kin",
            policy=POLICY if parents else POLICY.model_copy(update={"parity": None}),
            suite=suite,
            backend=LlamaCppBackend(),
            runtime_config=CONFIG,
            device=self.device,
            progress=Silent(),
            clock=self.registry.clock,
            workdir=self.folder / "work",
            parents=parents,
        )
        return report


@pytest.fixture(scope="module")
def kin(tmp_path_factory) -> Kin:
    folder = tmp_path_factory.mktemp("kin")
    registry = open_registry(str(folder / "registry"), TickingClock())
    registry.stores.blobs.add_bytes(b"founds it")
    file = planted.f16(folder / "f16" / "model.gguf")
    parent = sample_engine(registry, "f16", {"model.gguf": file.read_bytes()}).digest
    return Kin(registry=registry, parent=parent, file=file, folder=folder)


@pytest.fixture(scope="module")
def int8(kin) -> Path:
    return planted.quantised(kin.file, "q8_0", kin.folder / "q8_0" / "model.gguf")


def outcomes(result: ParityResult) -> dict[str, Outcome]:
    return {one.measure: one.outcome for one in result.findings}


def test_a_healthy_int8_engine_passes_and_its_parent_is_asked_only_once(kin, int8):
    engine = sample_engine(kin.registry, "int8", {"model.gguf": int8.read_bytes()}).digest
    report = kin.gate(engine, SUITE, kin.parent_engine)
    (result,) = report.parity
    assert result.outcome is Outcome.PASSED, result.reason
    assert {one.name: one.outcome for one in report.findings}["parity with f16"] == "passed"
    assert result.measures is not None
    assert result.measures.not_measured == ()
    assert "## Parity with f16 (engine " in to_markdown(report)
    again = kin.compare(int8)
    assert again.reused
    assert again.measures == result.measures  # one stream, no prompt cache: the same every time
    assert len(kin.registry.engines.referrers(kin.parent, ANSWERS_ARTIFACT)) == 1


def test_int4_that_speaks_garbage_fails(kin):
    file = planted.quantised(kin.file, "q4_0", kin.folder / "q4_0" / "model.gguf")
    result = kin.compare(file)
    assert result.outcome is Outcome.FAILED
    assert {name for name, outcome in outcomes(result).items() if outcome == "failed"} >= {
        "real divergences",
        "KL",
    }
    assert result.divergences[0].kind is DivergenceKind.REAL
    assert (result.divergences[0].margin or 0) > 0.5


def expect_a_fault(kin: Kin, fault: Callable[..., Any]) -> ParityResult:
    file = planted.with_fault(kin.file, fault, kin.folder / fault.__name__ / "model.gguf")
    result = kin.compare(file)
    file.unlink()
    assert result.outcome is Outcome.FAILED, result.reason
    assert outcomes(result)["KL"] is Outcome.FAILED
    return result


@pytest.mark.parametrize("fault", [planted.other_template, planted.stretched_rope])
def test_a_fault_that_hides_behind_fluent_answers_fails(kin, fault):
    result = expect_a_fault(kin, fault)
    assert outcomes(result)["real divergences"] is Outcome.FAILED


@pytest.mark.nightly
@pytest.mark.parametrize("fault", [planted.lost_rope_base, planted.other_vocabulary])
def test_a_further_fault_fails(kin, fault):
    expect_a_fault(kin, fault)


def test_one_token_that_tips_over_at_a_near_tie_passes(kin, int8):
    """The parent's own answers, but where its first two choices are closest the second is taken."""
    kin.compare(int8)
    cases = chosen_cases(SUITE, None)
    found = recorded(kin.registry, kin.parent, asked(kin.parent_engine, SUITE, cases, kin.device))
    assert found is not None
    answers = {answer.case: answer for answer in found[0].answers}
    gap, case, at = min(
        (step.top[0].logprob - step.top[1].logprob, name, at)
        for name, answer in answers.items()
        for at, step in enumerate(answer.steps)
    )
    assert gap < 0.5, "no near-tie among these prompts: add one"
    parent = answers[case]
    tipped = tip_over(parent, at)
    pairs = [
        Pair(parent=one, candidate=tipped if name == case else one, forced={})
        for name, one in answers.items()
    ]
    bars = POLICY.parity
    assert bars is not None
    measures, [divergence] = compare(pairs, bars.near_tie_logprob)
    assert (divergence.kind, divergence.at) == (DivergenceKind.NEAR_TIE, at)
    outcome, reason = sum_up(judge_parity(measures, (), bars))
    assert outcome is Outcome.PASSED, reason


def tip_over(answer: ParityAnswer, at: int) -> ParityAnswer:
    step = path(answer)[at]
    other = step.top[1]
    first, second = (one.logprob for one in step.top[:2])
    top = (
        other.model_copy(update={"logprob": first}),
        step.top[0].model_copy(update={"logprob": second}),
        *step.top[2:],
    )
    steps = (*answer.steps[:at], Step(token=other.token, id=other.id, top=top))
    text = "".join(one.token for one in steps)
    return answer.model_copy(update={"steps": steps, "text": text, "finish_reason": "length"})


def test_the_guard_passes_the_engine_it_was_recorded_from_and_its_children_and_no_other(kin, int8):
    with kin.starter(kin.file).serve() as server:
        goldens = asyncio.run(
            record_template(server.endpoint, None, Reference(spec="m/t", note="here"), timeout_s=60)
        )
    assert {"<|im_start|>", "<|im_end|>"} <= goldens.special_tokens.keys()
    suite = SUITE.model_copy(update={"template": goldens, "cases": SUITE.cases[:1]})
    child = sample_engine(kin.registry, "int8", {"model.gguf": int8.read_bytes()}).digest
    healthy = kin.gate(child, suite)
    assert healthy.template is not None
    assert healthy.template.outcome is Outcome.PASSED, healthy.template.reason
    swapped = planted.with_fault(int8, planted.other_template, kin.folder / "swap" / "model.gguf")
    stranger = sample_engine(kin.registry, "swap", {"model.gguf": swapped.read_bytes()}).digest
    report = kin.gate(stranger, suite)
    assert report.outcome is Outcome.FAILED
    assert report.template is not None
    assert "got '[INST] " in report.template.reason
    assert {one.name: one.outcome for one in report.findings}["chat template"] == "failed"


def test_a_parent_that_is_not_there_is_its_own_state(kin, int8):
    missing = NoParent(
        parent=Parent(named="m/t/prod"), outcome=Outcome.SKIPPED, why="nothing is live on m/t/prod"
    )
    engine = sample_engine(kin.registry, "int8", {"model.gguf": int8.read_bytes()}).digest
    report = kin.gate(engine, SUITE.model_copy(update={"cases": SUITE.cases[:1]}), missing)
    (result,) = report.parity
    assert (result.outcome, result.parent.engine) == (Outcome.SKIPPED, None)
    assert "nothing is live on m/t/prod" in to_markdown(report)
