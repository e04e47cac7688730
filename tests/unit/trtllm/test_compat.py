"""Engines on nodes: each rule passes and fails with both sides, and nothing is guessed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from engine_pipeline.backends.trtllm.build_flags import build_versions
from engine_pipeline.compat.fit import FitPolicy, decide_fit
from engine_pipeline.compat.node import Node, NodeGpu
from engine_pipeline.compat.releases import (
    builder_removal,
    find_release,
    releases,
    same_version,
    version_parts,
)
from engine_registry.errors import ExitCode
from engine_registry.record import Parallelism, Platform

FACTS = json.loads(
    (Path(__file__).parents[2] / "data" / "trtllm" / "facts" / "versions.json").read_text()
)
H100 = NodeGpu(name="NVIDIA H100 80GB HBM3", sm=90, memory_mib=81559, free_mib=81000)
PCIE = NodeGpu(name="NVIDIA H100 PCIe", sm=90, memory_mib=81559, free_mib=81000)
A100 = NodeGpu(name="NVIDIA A100-SXM4-80GB", sm=80, memory_mib=81920, free_mib=81000)
GIB = 1 << 30


def platform(**changes):
    value = {
        "sku": "h100-sxm-80gb",
        "sm": 90,
        "parallelism": Parallelism(tensor=2),
        "runtime": {"tensorrt_llm": "1.2.1", "tensorrt": "10.14.1.48"},
    }
    return Platform(**value | changes)


def node(*gpus, **changes):
    value = {"driver": "590.44.01", "tensorrt": "10.14.1.48", "tensorrt_llm": "1.2.1"}
    return Node(gpus=gpus or (H100, H100), **value | changes)


def rules(findings):
    return {finding.rule: finding for finding in findings}


def broken(findings):
    return {finding.rule for finding in findings if not finding.holds}


def test_an_engine_fits_the_node_it_was_built_for():
    findings = decide_fit(platform(), node(), needed_bytes=40 * GIB)
    assert [finding.rule for finding in findings] == [
        "sku",
        "sm",
        "world-size",
        "driver",
        "tensorrt",
        "tensorrt-llm",
        "memory",
    ]
    assert broken(findings) == set()


@pytest.mark.parametrize(
    ("there", "breaks", "says"),
    [
        (node(PCIE, PCIE), {"sku", "world-size"}, "has h100-pcie-80gb: same SM 90"),
        (node(A100, A100), {"sku", "sm", "world-size"}, "has a100-sxm-80gb"),
        (node(H100), {"world-size"}, "built for h100-sxm-80gb"),
        (node(driver="580.95.05"), {"driver"}, "is one"),
        (node(driver=None), {"driver"}, "is one"),
        (node(tensorrt="10.13.3.9"), {"tensorrt"}, "is one"),
        (node(tensorrt=None), {"tensorrt"}, "is one"),
        (node(tensorrt_llm="1.2.0"), {"tensorrt-llm"}, "is one"),
        (Node(), {"sku", "sm", "world-size", "driver", "tensorrt", "tensorrt-llm"}, "no GPU"),
    ],
)
def test_each_rule_breaks_alone(there, breaks, says):
    findings = decide_fit(platform(), there)
    assert broken(findings) == breaks
    assert says in rules(findings)["sku"].says
    assert all(finding.hint for finding in findings if not finding.holds)
    assert {finding.exit_code for finding in findings} == {ExitCode.INCOMPATIBLE}


def test_both_sides_are_in_every_sentence():
    found = rules(decide_fit(platform(), node(A100, driver="550.1", tensorrt="10.9.0.34")))
    assert "SM 90" in found["sm"].says
    assert "SM 80" in found["sm"].says
    assert "590.44.01" in found["driver"].says
    assert "550.1" in found["driver"].says
    assert "10.14.1.48" in found["tensorrt"].says
    assert "10.9.0.34" in found["tensorrt"].says
    assert "2 rank(s)" in found["world-size"].says
    assert "0 board(s)" in found["world-size"].says


class TestSameCapabilityOtherBoard:
    def test_is_refused_although_the_runtime_only_warns(self):
        found = rules(decide_fit(platform(), node(PCIE, PCIE)))["sku"]
        assert not found.holds
        assert "it would load with a warning only" in found.says

    def test_is_accepted_where_policy_says_so(self):
        policy = FitPolicy(same_sm_other_sku=True)
        findings = decide_fit(platform(), node(PCIE, PCIE), policy=policy)
        assert broken(findings) == set()
        assert "accepted by policy" in rules(findings)["sku"].says

    def test_does_not_stretch_to_another_capability(self):
        policy = FitPolicy(same_sm_other_sku=True)
        assert "sm" in broken(decide_fit(platform(), node(A100, A100), policy=policy))

    def test_of_another_memory_size_is_another_board(self):
        small = NodeGpu(name="NVIDIA A100-SXM4-40GB", sm=80, memory_mib=40960)
        wanted = platform(sku="a100-sxm-80gb", sm=80, parallelism=Parallelism())
        assert "sku" in broken(decide_fit(wanted, node(small)))


class TestMemory:
    def test_is_that_of_the_boards_that_would_be_used(self):
        full = H100.model_copy(update={"free_mib": 100})
        findings = decide_fit(platform(), node(H100, full, H100), needed_bytes=40 * GIB)
        assert broken(findings) == set()
        findings = decide_fit(platform(), node(H100, full), needed_bytes=40 * GIB)
        assert "100 MiB free" in rules(findings)["memory"].says

    def test_that_nobody_states_is_not_enough(self):
        silent = NodeGpu(name="NVIDIA H100 80GB HBM3")
        assert broken(decide_fit(platform(), node(silent, silent), needed_bytes=1)) == {"memory"}


def test_a_board_that_is_cut_up_does_not_count():
    cut = H100.model_copy(update={"mig": True})
    findings = decide_fit(platform(), node(cut, H100))
    assert broken(findings) == {"world-size"}
    assert "MIG" in rules(decide_fit(platform(), node(cut)))["sku"].says


def test_the_capability_follows_from_the_name_where_it_is_not_stated():
    unnamed = H100.model_copy(update={"sm": None})
    assert broken(decide_fit(platform(), node(unnamed, unnamed))) == set()


def test_an_older_driver_can_be_accepted():
    policy = FitPolicy(older_driver=True)
    assert broken(decide_fit(platform(), node(driver="580.95.05"), policy=policy)) == set()


def test_a_checkpoint_has_no_tensorrt_to_agree_on():
    served = platform(runtime={"tensorrt_llm": "1.2.1"})
    findings = decide_fit(served, node(tensorrt=None))
    assert "tensorrt" not in rules(findings)
    assert broken(findings) == set()


def test_an_engine_for_a_cpu_has_one_rule():
    findings = decide_fit(Platform(sku="cpu-x86-64-v3"), Node(architecture="aarch64"))
    assert [(finding.rule, finding.holds) for finding in findings] == [("sku", False)]


def test_a_node_is_read_from_json_and_unknown_fields_are_refused():
    text = node().model_dump_json()
    assert Node.model_validate_json(text) == node()
    with pytest.raises(ValidationError):
        Node.model_validate_json('{"gpu": []}')


class TestReleases:
    @pytest.mark.parametrize("release", releases(), ids=lambda release: release.version)
    def test_have_the_parts_that_the_facts_give_them(self, release):
        row = FACTS["releases"].get(release.version.removesuffix(".post1"))
        assert row is not None
        if release.tensorrt is not None:
            assert same_version(release.tensorrt, row["tensorrt"].removesuffix(".0"))
        images = [i for i in FACTS["triton_trtllm_images"] if i["tensorrt_llm"] == release.version]
        for image in images:
            assert release.tensorrt == image["tensorrt"]
            assert release.driver == image["cuda_driver"]
            assert image["cuda"].startswith(release.cuda)
        assert release.builder == row["has_trtllm_build"]
        if "ngc_release_image" in row:
            assert release.image == row["ngc_release_image"]

    def test_with_a_builder_are_those_whose_flags_are_known(self):
        assert {r.version for r in releases() if r.builder} == set(build_versions())

    def test_after_the_table_have_no_builder(self):
        assert find_release("1.3.0") is not None
        assert not find_release("1.3.0").builder
        assert find_release("1.2.2") is None
        assert builder_removal().last_stable == "1.2.1"

    def test_are_compared_as_far_as_they_are_known(self):
        assert same_version("10.9.0.34", "10.9")
        assert not same_version("10.90.0.34", "10.9")
        assert version_parts("590.44.01") == (590, 44, 1)
        assert version_parts("580.95.05") < version_parts("590.44.01")
