"""No baseline is a state of its own: good for a first release, and for no second one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired_result import Baseline, PairedResult
from engine_pipeline.gates.parity_result import Parent, ParityResult
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.report import Device, Finding, LoadResult, Report
from engine_pipeline.gates.run import attach
from engine_pipeline.gates.suite_file import load_suite
from engine_registry.digest import Digest
from tests.unit.cli.conftest import CHANNELS, POLICY, PRODUCT

STAGING = f"{PRODUCT}/staging"
PAIRED = {"against": "staging"}
PARITY = {"parent": ["staging"], "max_kl": 0.02}


def compared(how: str, live: Digest | None) -> dict:
    """What a report says of the comparison that its policy asks for."""
    if how == "paired":
        outcome = Outcome.PASSED if live else Outcome.SKIPPED
        baseline = Baseline(named=STAGING, engine=live)
        return {"paired": PairedResult(baseline=baseline, outcome=outcome, reason="x")}
    outcome = Outcome.PASSED if live else Outcome.SKIPPED
    parent = Parent(named=STAGING, engine=live)
    return {"parity": (ParityResult(parent=parent, outcome=outcome, reason="x"),)}


def judge(project, engine: Digest, policy: GatePolicy, how: str, live: Digest | None) -> None:
    at = datetime.now(UTC) - timedelta(hours=1 if live is None else 0)
    report = Report(
        engine=engine,
        gate="core",
        suite_name="core",
        suite=load_suite(project.root / "golden_prompts", "core").digest,
        policy=policy,
        policy_digest=policy.digest,
        device=Device(sku=PRODUCT.target, host_class="test", cpu_model="test", cores=1),
        started_at=at,
        finished_at=at,
        outcome=Outcome.PASSED,
        load=LoadResult(outcome=Outcome.PASSED, reason="loaded"),
        findings=(Finding(name="score", outcome=Outcome.PASSED, reason="as the test says"),),
        **compared(how, live),
    )
    attach(project.registry, report)


@pytest.mark.parametrize("how", ["paired", "parity"])
def test_two_first_releases_judged_alone_do_not_both_go_live_unlooked_at(project, how):
    bars = PAIRED if how == "paired" else PARITY
    written = str(bars).replace("'", "")
    (project.root / "channels.yaml").write_text(
        CHANNELS.replace(
            "quality: {min_score: 0.9}", f"quality: {{min_score: 0.9}}\n    {how}: {written}"
        )
    )
    policy = GatePolicy.model_validate({**POLICY.model_dump(exclude_none=True), how: bars})
    first = project.release("first", None)
    second = project.release("second", None)
    for release in (first, second):
        judge(project, release.content.engine, policy, how, None)
    assert project.run("promote", first.name, "--to", "staging").code == 0

    refused = project.run("promote", second.name, "--to", "staging")
    assert refused.code == 5
    live = first.content.engine.short
    assert f"nothing was live on {STAGING}; engine {live} is live there now" in refused.err
    assert f"enginectl gate {second.name} --gate core" in refused.err

    checked = project.run("verify", "--policy", second.name)
    assert checked.code == 5
    assert f"engine {live} is live there now and was not compared with" in checked.out
    # What is live there got there by it.
    assert project.run("verify", "--policy", STAGING).code == 0

    judge(project, second.content.engine, policy, how, first.content.engine)
    assert project.run("promote", second.name, "--to", "staging").code == 0
    assert project.run("verify", "--policy", second.name).code == 0
    # The first one is what it could be replaced by, and has not been compared with the second.
    assert project.run("verify", "--policy", first.name).code == 5
