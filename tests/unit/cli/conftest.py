"""A project directory with registry, policies and a suite, and the command line in-process."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine_pipeline.cli.app import run
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.policy import GatePolicy, QualityBars
from engine_pipeline.gates.report import (
    Device,
    Finding,
    LoadResult,
    Report,
    listing,
    runtime_digest,
)
from engine_pipeline.gates.suite_file import load_suite
from engine_registry import manifest
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.refs import ProductRef
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import sample_engine, sample_release

PRODUCT = ProductRef("tiny", "cpu-x86-64-v3")
POLICY = GatePolicy(suite="core", quality=QualityBars(min_score=0.9))
CHANNELS = """\
schema_version: 1
gates:
  core:
    suite: core
    quality: {min_score: 0.9}
policies:
  - products: ["tiny/*"]
    channels:
      staging: {gates: [core]}
      prod: {gates: [core], upstream: staging}
      guarded: {gates: [core], approvals: 1, approvals_proved_by: [claimed]}
      proved: {gates: [core], approvals: 1}
"""
SUITE = """\
schema_version: 1
name: core
owner: the tests
description: One case.
model: tiny
reference: {spec: tiny/cpu-fp16, note: written by hand}
sampling: {temperature: 0.0, top_p: 1.0, seed: 7, max_tokens: 8}
cases: [cases.yaml]
"""
CASES = """\
cases:
  - id: one
    tags: [copying]
    messages: [{role: user, content: Say yes.}]
    checks: [{kind: contains, all_of: ["yes"]}]
"""


@dataclass
class Ran:
    """What one command line did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict:
        return json.loads(self.out)


@dataclass
class Project:
    """A scratch project; `run` is the command line in this process."""

    root: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def registry(self) -> Registry:
        return open_registry(f"file://{self.root}/engines")

    def run(self, *args: str, as_json: bool = False) -> Ran:
        options = ["--output", "json"] if as_json else []
        self.capsys.readouterr()
        code = run([*args, *options])
        captured = self.capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    def release(
        self,
        name: str,
        outcome: Outcome | None = Outcome.PASSED,
        *,
        product: ProductRef = PRODUCT,
    ):
        """A released engine with a report of this outcome; None leaves it unjudged."""
        engine = sample_engine(self.registry, name, product=product)
        if outcome is not None:
            self.report(engine.digest, outcome)
        return sample_release(self.registry, engine, product=product)

    def report(
        self,
        engine: Digest,
        outcome: Outcome,
        *,
        hours_ago: float = 1,
        policy: GatePolicy = POLICY,
        runtime_config: dict | None = None,
    ) -> Digest:
        at = datetime.now(UTC) - timedelta(hours=hours_ago)
        suite = load_suite(self.root / "golden_prompts", "core")
        report = Report(
            engine=engine,
            gate="core",
            suite_name="core",
            suite=suite.digest,
            policy=policy,
            policy_digest=policy.digest,
            device=Device(sku=PRODUCT.target, host_class="test", cpu_model="test", cores=1),
            started_at=at,
            finished_at=at,
            outcome=outcome,
            load=LoadResult(outcome=Outcome.PASSED, reason="loaded"),
            findings=(Finding(name="score", outcome=outcome, reason="as the test says"),),
            runtime_config=None if runtime_config is None else runtime_digest(runtime_config),
        )
        return self.registry.engines.attach(
            engine,
            manifest.REPORT_ARTIFACT,
            [("report.json", canonical_json(report), "application/json")],
            listing(report),
        )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> Project:
    (tmp_path / "channels.yaml").write_text(CHANNELS)
    suite = tmp_path / "golden_prompts" / "core"
    suite.mkdir(parents=True)
    (suite / "suite.yaml").write_text(SUITE)
    (suite / "cases.yaml").write_text(CASES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENGINECTL_REGISTRY", f"file://{tmp_path}/engines")
    monkeypatch.setenv("ENGINECTL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("ENGINECTL_ACTOR", "promoter")
    for name in ("GITHUB_ACTIONS", "GITLAB_CI", "ENGINECTL_CHANNELS", "ENGINECTL_SIGNING_KEY"):
        monkeypatch.delenv(name, raising=False)
    return Project(tmp_path, capsys)
