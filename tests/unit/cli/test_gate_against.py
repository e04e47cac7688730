"""`gate` against what is live, on real server processes of known delays."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from engine_pipeline.cli.opponent import with_against
from engine_pipeline.cli.wiring import Shell
from engine_pipeline.gates.paired_gate import check_same_device
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.promote import release as releasing
from engine_pipeline.promote.evidence import read_report
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import Incompatible
from engine_registry.refs import ChannelRef
from engine_registry.testing.samples import (
    sample_engine,
    sample_event,
    sample_promotion,
    sample_release,
)
from tests.chat_world import ChatBackend
from tests.unit.cli.conftest import PRODUCT

PROD = f"{PRODUCT}/prod"
CHANNELS = """\
schema_version: 1
gates:
  core:
    suite: core
    quality: {min_score: 0.9}
    performance:
      {requests: 20, concurrency: 2, output_tokens: 4, max_ttft_p95_ms: 100000}
    paired: {against: prod, requests: 8, output_tokens: 2, max_rounds: 6, max_foreign_cpu: 100%}
  plain:
    suite: core
    quality: {min_score: 0.9}
policies:
  - products: ["tiny/*"]
    channels:
      staging: {gates: [core]}
      prod: {gates: [core], upstream: staging}
"""


@pytest.fixture
def judged(project, monkeypatch):
    """A project whose engines are chat servers of the behaviour in their files."""
    (project.root / "channels.yaml").write_text(CHANNELS)
    lock = SimpleNamespace(
        image=None,
        spec=SimpleNamespace(
            limits=SimpleNamespace(model_dump=lambda **_: {}), serving={}, name="tiny"
        ),
    )
    monkeypatch.setattr(releasing, "lock_of", lambda registry, record: lock)
    monkeypatch.setattr(Shell, "backend", lambda self, kind: ChatBackend())
    return project


def engine(project, name: str, **behaviour):
    data = canonical_json({"answer": "yes it is so", **behaviour})
    return sample_engine(project.registry, name, {"behaviour.json": data}, product=PRODUCT)


def go_live(project, stored):
    release = sample_release(project.registry, stored, product=PRODUCT)
    sample_event(
        project.registry,
        sample_promotion(release),
        ref=ChannelRef.parse(PROD),
        operation=release.name,
    )
    return release


def gate(project, stored, *options: str):
    ran = project.run("gate", str(stored.digest), "--gate", "core", *options, as_json=True)
    if "gates" not in ran.json:
        return ran, None
    attached = Digest.parse(ran.json["gates"][0]["report"])
    return ran, read_report(project.registry, stored.digest, attached)


def test_without_anything_live_the_rest_decides_and_the_report_says_no_baseline(judged):
    ran, report = gate(judged, engine(judged, "first"))
    assert ran.code == 0
    assert report.paired.outcome == "skipped"
    assert report.paired.reason == f"no baseline: nothing is live on {PROD}"
    assert {f.name: str(f.outcome) for f in report.findings}["against live"] == "skipped"


def test_a_slower_candidate_is_refused_with_both_sides_and_reported_for_people(judged):
    live = engine(judged, "live", ttft_s=0.01)
    release = go_live(judged, live)
    ran, report = gate(judged, engine(judged, "slow", ttft_s=0.06))
    assert ran.code == 3
    assert report.paired.baseline.engine == live.digest
    assert report.paired.baseline.release == release.name
    [reason] = ran.json["gates"][0]["reasons"]
    assert reason.startswith("against live: ttft_p50_ms ")
    assert "slower for sure" in reason
    shown = judged.run("show", str(report.engine), "--report", ran.json["gates"][0]["report"]).out
    assert "## Against the live engine" in shown
    assert f"{PROD}, engine {live.digest.short}, release {release.name}" in " ".join(shown.split())
    assert "this decides nothing" in shown
    assert "The client itself adds at most" in shown


def test_a_report_is_reused_only_while_the_same_engine_is_live(judged):
    candidate = engine(judged, "candidate")
    gate(judged, candidate)
    assert gate(judged, candidate)[0].json["gates"][0]["reused"] is True
    live = engine(judged, "live", ttft_s=0.04, gap_s=0.03)
    go_live(judged, live)
    ran, report = gate(judged, candidate)
    assert ran.json["gates"][0]["reused"] is False
    assert report.outcome == "passed"
    assert report.paired.baseline.engine == live.digest
    assert gate(judged, candidate)[0].json["gates"][0]["reused"] is True


def test_what_is_live_is_not_compared_with_itself_unless_it_is_asked_for(judged):
    live = engine(judged, "live", ttft_s=0.005)
    go_live(judged, live)
    ran, report = gate(judged, live)
    assert ran.code == 0
    assert report.paired.reason == f"no baseline: the candidate is itself what is live on {PROD}"
    _, report = gate(judged, live, "--against", PROD, "--again")
    assert len(report.paired.rounds) == 6


def test_against_another_engine_is_another_policy_and_no_evidence_for_promotion(judged):
    other = engine(judged, "other", ttft_s=0.04, gap_s=0.03)
    _, report = gate(judged, engine(judged, "mine"), "--against", str(other.digest))
    assert report.outcome == "passed"
    assert report.paired.baseline.engine == other.digest
    text = (judged.root / "channels.yaml").read_text()
    assert "against: prod" in text
    release = sample_release(judged.registry, engine(judged, "mine"), product=PRODUCT)
    refused = judged.run("promote", release.name, "--to", "staging")
    assert refused.code == 5
    assert "rule-gates" in refused.err


@pytest.mark.parametrize(
    ("against", "code", "reference"),
    [("nowhere", 2, "nowhere"), ("deadbeefdeadbeef", 8, "engine-missing")],
)
def test_a_baseline_that_is_not_there_is_refused_before_anything_runs(
    judged, against, code, reference
):
    ran, _ = gate(judged, engine(judged, "mine"), "--against", against)
    assert ran.code == code
    assert reference in ran.out


def test_against_is_refused_for_a_gate_that_compares_with_nothing(judged):
    stored = engine(judged, "mine")
    ran = judged.run("gate", str(stored.digest), "--gate", "plain", "--against", PROD)
    assert ran.code == 2
    assert "error[gate-not-paired]" in ran.err
    assert "paired: {against: prod}" in ran.err


def test_naming_the_policys_own_channel_in_full_keeps_its_digest():
    record = SimpleNamespace(model="tiny", target="cpu-x86-64-v3")
    policy = GatePolicy.model_validate(
        {"suite": "core", "quality": {"min_score": 0.9}, "paired": {"against": "prod"}}
    )
    for named in (None, "prod", PROD):
        assert with_against(policy, record, "core", named).digest == policy.digest
    assert with_against(policy, record, "core", "staging").digest != policy.digest


def test_engines_of_two_devices_are_not_compared(judged):
    [record] = engine(judged, "mine").records
    check_same_device(record, record)
    platform = record.platform.model_copy(update={"sku": "h100-sxm-80gb"})
    with pytest.raises(Incompatible, match=r"is for cpu-x86-64-v3, .* for h100-sxm-80gb") as caught:
        check_same_device(record, record.model_copy(update={"platform": platform}))
    assert caught.value.name == "gate-devices-differ"
