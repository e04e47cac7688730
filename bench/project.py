"""A project that may promote: policies, a suite of 48 cases, two judged releases, a long log."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import Device, Finding, LoadResult, Report, listing
from engine_pipeline.gates.suite_file import load_suite
from engine_pipeline.promote.findings import Wanted
from engine_pipeline.promote.policy import Policies
from engine_pipeline.yaml_file import validated
from engine_registry.documents import canonical_json
from engine_registry.manifest import REPORT_ARTIFACT
from engine_registry.refs import ChannelRef, ProductRef
from engine_registry.registry import open_registry, utc_now
from engine_registry.testing import samples
from fill import quick_registry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from engine_pipeline.promote.policy import ChannelPolicy
    from engine_registry.record import Release
    from engine_registry.registry import Registry

PRODUCT = ProductRef("tiny", "cpu-x86-64-v3")
CHANNEL = ChannelRef(PRODUCT, "prod")
ENGINES = 2
EVENTS = 300
CASES = 48
_CHANNELS = """\
schema_version: 1
gates:
  core:
    suite: core
    quality: {min_score: 0.9}
policies:
  - products: ["tiny/*"]
    channels:
      prod: {gates: [core]}
"""
_SUITE = """\
schema_version: 1
name: core
owner: the benchmark
description: As many cases as a real suite has, in the form that people write them.
model: tiny
reference: {spec: tiny/cpu-fp16, note: written by hand}
sampling: {temperature: 0.0, top_p: 1.0, seed: 7, max_tokens: 64}
cases: [cases.yaml]
"""
_CASE = """\
  - id: case-{number}
    tags: [copying, short]
    messages:
      - role: system
        content: You answer with what you are asked for and nothing else.
      - role: user
        content: Repeat the number {number} and the word "engine", in this order.
    checks:
      - kind: contains
        all_of: ["{number}", "engine"]
      - kind: not-contains
        none_of: ["sorry", "cannot"]
    recorded:
      text: "{number} engine"
      agreement: 1.0
      n: 3
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """Two releases; the first is live on `channel`, the second was before."""

    folder: Path
    url: str
    channel: ChannelRef
    second: Release
    policy: ChannelPolicy
    wanted: Mapping[str, Wanted]

    @property
    def env(self) -> dict[str, str]:
        """What points the command line at this project."""
        return {
            "ENGINECTL_REGISTRY": self.url,
            "ENGINECTL_CHANNELS": str(self.folder / "channels.yaml"),
            "ENGINECTL_ACTOR": "bench",
        }


def prepare(folder: Path, root: Path, events: int = EVENTS) -> Project:
    """Write the files below `folder` and put engines, reports, releases and events into `root`.

    Args:
        folder: of `channels.yaml` and the suite.
        root: of the registry.
        events: length of the channel's log; even, so that the first release is live at its end.
    """
    suite_dir = folder / "golden_prompts" / "core"
    suite_dir.mkdir(parents=True)
    (folder / "channels.yaml").write_text(_CHANNELS)
    (suite_dir / "suite.yaml").write_text(_SUITE)
    cases = "".join(_CASE.format(number=number) for number in range(CASES))
    (suite_dir / "cases.yaml").write_text(f"cases:\n{cases}")

    registry = open_registry(f"file://{root}")
    policies = validated(folder / "channels.yaml", Policies)
    gate = policies.gate("core")
    wanted = {"core": Wanted(policy=gate.digest, suite=load_suite(suite_dir.parent, "core").digest)}
    first, second = (_release(registry, name, policies, wanted["core"]) for name in ("one", "two"))
    quick = quick_registry(root)
    for number in range(events):
        change = samples.sample_promotion(second if number % 2 == 0 else first)
        samples.sample_event(quick, change, ref=CHANNEL, operation=uuid.uuid4().hex)
    return Project(
        folder=folder,
        url=f"file://{root}",
        channel=CHANNEL,
        second=second,
        policy=policies.for_channel(CHANNEL),
        wanted=wanted,
    )


def _release(registry: Registry, name: str, policies: Policies, wanted: Wanted) -> Release:
    engine = samples.sample_engine(registry, name, product=PRODUCT)
    now = utc_now()
    report = Report(
        engine=engine.digest,
        gate="core",
        suite_name="core",
        suite=wanted.suite,
        policy=policies.gate("core"),
        policy_digest=wanted.policy,
        device=Device(sku=PRODUCT.target, host_class="bench", cpu_model="bench", cores=1),
        started_at=now,
        finished_at=now,
        outcome=Outcome.PASSED,
        load=LoadResult(outcome=Outcome.PASSED, reason="loaded"),
        findings=(Finding(name="score", outcome=Outcome.PASSED, reason="written by hand"),),
    )
    attached = registry.engines.attach(
        engine.digest,
        REPORT_ARTIFACT,
        [("report.json", canonical_json(report), "application/json")],
        listing(report),
    )
    return samples.sample_release(registry, engine, product=PRODUCT, evidence=(attached,))
