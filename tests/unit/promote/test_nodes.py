"""Nodes that a channel's policy names: promotion, rollback and deployment ask the same rules."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from engine_pipeline.cli.wiring import Shell
from engine_pipeline.compat.node import Node, NodeGpu
from engine_pipeline.deploy.node import read_node, write_node
from engine_pipeline.promote.findings import Wanted
from engine_pipeline.promote.policy import ChannelPolicy
from engine_pipeline.promote.promote import judge, promote
from engine_pipeline.promote.rollback import roll_back
from engine_pipeline.targets.definition import DirectoryDefinition
from engine_registry.digest import Digest
from engine_registry.errors import EngineCIError, Incompatible, NotFound
from engine_registry.record import Release
from engine_registry.refs import ChannelRef
from tests.unit.targets import gpu_engines
from tests.unit.targets.triton_yard import PRODUCT, TritonYard
from tests.unit.trtllm.works import machine

PROD = ChannelRef(PRODUCT, "prod")
H100, H200 = "NVIDIA H100 80GB HBM3", "NVIDIA H200"
TENSORRT = ".".join(map(str, gpu_engines.TENSORRT))


def node(name: str = H100, driver: str = "590.44.01", **changes: object) -> Node:
    board = NodeGpu(name=name, sm=90, memory_mib=143771 if name == H200 else 81559)
    fields = {"tensorrt": TENSORRT, "tensorrt_llm": gpu_engines.VERSION, **changes}
    return Node(name="gpu-07", driver=driver, gpus=(board, board), **fields)


@dataclass
class Site:
    """A yard whose policy names one node."""

    yard: TritonYard
    node: Node

    @property
    def desk(self):
        return replace(self.yard.desk, node={"nodes/gpu-07.json": self.node}.__getitem__)

    def policy(self, **changes: object) -> ChannelPolicy:
        fields = {"gates": ("core",), "nodes": ("nodes/gpu-07.json",), **changes}
        return ChannelPolicy.model_validate(fields)

    def findings(self, release: Release, **policy: object):
        desk = self.desk
        judged = judge(
            desk,
            release,
            PROD,
            desk.registry.channels.state(PROD),
            policy=self.policy(**policy),
            wanted={"core": Wanted(policy=Digest.of(b"policy"), suite=Digest.of(b"suite"))},
            overrides=frozenset(),
        )
        return [f for f in judged.decision.findings if f.rule == "fit"]

    def roll_back(self, **arguments):
        policy = arguments.pop("policy", self.policy())
        return roll_back(self.desk, PROD, reason="slow", policy=policy, **arguments)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(TritonYard(tmp_path), node())


@pytest.fixture
def two(site: Site) -> list[Release]:
    """Two releases that were live, the second is."""
    releases = [site.yard.engine_release(name) for name in ("a", "b")]
    for release in releases:
        site.yard.promote(release)
    return releases


def test_a_release_that_loads_on_every_node_is_said_to_by_the_rules_that_were_asked(site):
    target, there = site.findings(site.yard.engine_release("a"))
    assert target.holds
    assert there.holds
    assert there.says == ("node gpu-07 fits by sku, sm, world-size, driver, tensorrt, tensorrt-llm")


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (node(H200), "sku: engine was built for h100-sxm-80gb, gpu-07 has h200-sxm-141gb: same SM"),
        (node(driver="580.10"), "driver: TensorRT-LLM"),
        (node(tensorrt="10.13.3.9"), "tensorrt: engine was built with TensorRT"),
        (node(tensorrt_llm=None), "tensorrt-llm: engine was built with TensorRT-LLM"),
    ],
)
def test_a_promotion_is_refused_with_both_sides_where_it_would_not_load(site, there, says):
    site.node = there
    release = site.yard.engine_release("a")
    [_, finding] = site.findings(release)
    assert not finding.holds
    assert says in finding.says
    with pytest.raises(Incompatible, match="node gpu-07") as refused:
        promote(
            site.desk,
            release,
            PROD,
            policy=site.policy(),
            wanted={"core": Wanted(policy=Digest.of(b"p"), suite=Digest.of(b"s"))},
        )
    assert refused.value.name == "rule-fit"
    assert site.yard.registry.channels.state(PROD).live is None


@pytest.mark.parametrize(
    ("there", "accepts"),
    [(node(H200), "same-sm-other-sku"), (node(driver="580.10"), "older-driver")],
)
def test_what_the_policy_accepts_untested_is_accepted_and_said(site, there, accepts):
    site.node = there
    [_, finding] = site.findings(site.yard.engine_release("a"), accepts=[accepts])
    assert finding.holds
    assert "accepted by policy" in finding.says


def test_another_capability_is_never_accepted(site):
    board = NodeGpu(name="NVIDIA L40S", sm=89, memory_mib=46068)
    site.node = node().model_copy(update={"gpus": (board, board)})
    accepts = ["same-sm-other-sku", "older-driver"]
    [_, finding] = site.findings(site.yard.engine_release("a"), accepts=accepts)
    assert not finding.holds
    assert "sm: engine was built for SM 90" in finding.says


def test_a_rollback_is_refused_where_the_engine_would_not_load(site, two):
    site.node = node(driver="580.10")
    with pytest.raises(Incompatible, match="driver") as refused:
        site.roll_back()
    assert refused.value.name == "rule-fit"
    live = site.yard.registry.channels.state(PROD).live
    assert live is not None
    assert live.number == two[1].number


def test_a_rollback_to_what_loads_is_done_and_its_findings_name_the_node(site, two):
    moved = site.roll_back()
    assert moved.after.live.number == two[0].number
    assert any("node gpu-07 fits" in f.says for f in moved.decision.findings)


def test_an_override_with_a_reason_is_recorded_with_what_it_went_past(site, two):
    site.node = node(driver="580.10")
    moved = site.roll_back(overrides=("fit",))
    assert moved.after.live.number == two[0].number
    [said] = moved.event.change.overrides
    assert said.startswith("fit: node gpu-07: driver:")


def test_a_rollback_without_a_policy_asks_for_no_node(site, two):
    site.node = node(H200)
    assert site.roll_back(policy=None).after.live.number == two[0].number


def test_memory_is_that_of_the_whole_board_since_what_is_served_now_makes_room(site):
    full = NodeGpu(name=H100, sm=90, memory_mib=81559, free_mib=100)
    site.node = node().model_copy(update={"gpus": (full, full)})
    [_, finding] = site.findings(site.yard.engine_release("a"))
    assert finding.holds


def test_a_desk_that_reads_no_nodes_does_not_pass_over_those_that_a_policy_names(site, two):
    with pytest.raises(EngineCIError, match=r"nodes/gpu-07\.json"):
        roll_back(site.yard.desk, PROD, reason="slow", policy=site.policy())


def test_a_description_that_is_not_there_stops_a_promotion_and_never_a_rollback(site, two):
    def missing(name: str) -> Node:
        return read_node(site.yard.root / name)

    desk = replace(site.yard.desk, node=missing)
    with pytest.raises(NotFound, match=r"gpu-07\.json"):
        promote(
            desk,
            site.yard.engine_release("c"),
            PROD,
            policy=site.policy(),
            wanted={"core": Wanted(policy=Digest.of(b"p"), suite=Digest.of(b"s"))},
        )
    moved = roll_back(desk, PROD, reason="slow", policy=site.policy())
    assert moved.after.live.number == two[0].number
    assert any("gpu-07.json" in finding.says for finding in moved.decision.findings)


def test_a_policy_accepts_only_what_has_a_name():
    with pytest.raises(ValidationError):
        ChannelPolicy.model_validate({"gates": ["core"], "accepts": ["other-sm"]})


CHANNELS = """\
schema_version: 1
gates:
  core: {{suite: core, quality: {{min_score: 0.9}}}}
policies:
  - products: ["llama/*"]
    channels:
      prod: {{gates: [core], nodes: [nodes/gpu-07.json], accepts: [{accepts}]}}
"""


class TestShell:
    """The same file, named in channels.yaml and by a target."""

    def shell(self, site: Site, accepts: str = "") -> Shell:
        root = site.yard.root
        (root / "channels.yaml").write_text(CHANNELS.format(accepts=accepts))
        (root / "nodes").mkdir(exist_ok=True)
        (root / "nodes" / "gpu-07.json").write_text(site.node.model_dump_json(exclude_none=True))
        return Shell(
            registry_url=f"file://{root}/engines",
            channels_file=str(root / "channels.yaml"),
            cache_dir=str(root / "cache"),
        )

    def fit(self, shell: Shell, release: Release):
        definition = DirectoryDefinition.model_validate(
            {
                "kind": "directory",
                "channel": str(PROD),
                "path": "/srv/engine",
                "node": "nodes/gpu-07.json",
            }
        )
        return {f.rule: f for f in shell.fit(definition, None)(release)}

    def test_a_deployment_accepts_what_the_channel_accepts_and_nothing_more(self, site):
        release = site.yard.engine_release("a")
        site.node = node(H200)
        assert not self.fit(self.shell(site), release)["sku"].holds
        found = self.fit(self.shell(site, "same-sm-other-sku"), release)
        assert all(finding.holds for finding in found.values())

    def test_a_deployment_without_channels_yaml_accepts_nothing_untested(self, site):
        release = site.yard.engine_release("a")
        site.node = node(H200)
        shell = self.shell(site, "same-sm-other-sku")
        shell.channels_file.unlink()
        assert not self.fit(shell, release)["sku"].holds

    def test_the_desk_reads_the_node_beside_channels_yaml(self, site, two):
        shell = self.shell(site)
        assert shell.desk.node("nodes/gpu-07.json") == site.node
        assert shell.policy_of(PROD) == site.policy()
        assert shell.policy_of(ChannelRef(PRODUCT, "canary")) is None

    def test_channels_yaml_that_cannot_be_read_is_not_passed_over(self, site):
        shell = self.shell(site)
        shell.channels_file.write_text("gates: [")
        with pytest.raises(EngineCIError, match="channels"):
            shell.policy_of(PROD)


def test_a_machine_describes_itself_and_leaves_out_what_is_on_it_now(tmp_path):
    path = tmp_path / "gpu-07.json"
    write_node(machine(), path)
    described = json.loads(path.read_text())
    assert described["driver"] == "590.44.01"
    assert len(described["gpus"]) == 8
    assert "free_mib" not in described["gpus"][0]
    assert read_node(path).gpus[0].name == H100
    with pytest.raises(EngineCIError, match="cannot be written"):
        write_node(machine(), path)
