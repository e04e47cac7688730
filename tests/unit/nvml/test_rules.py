"""Which machine can build for which SKU, and what each refusal says."""

from __future__ import annotations

import pytest

from engine_pipeline.nvml.inventory import Inventory
from engine_pipeline.nvml.rules import Demand, fitting, judge
from engine_pipeline.nvml.visible import visible_boards
from engine_pipeline.spec.hardware import find_sku
from engine_registry.errors import ExitCode, Incompatible, InvalidInput
from tests.servers.gpus import FakeGpus, recorded

GIB = 1 << 30


def demand(sku: str, **more) -> Demand:
    return Demand(sku=find_sku(sku), **more)


def broken(name: str, wanted: Demand):
    """The one rule that a recorded machine breaks."""
    (finding,) = [f for f in judge(recorded(name), wanted) if not f.holds]
    return finding


@pytest.mark.parametrize(
    ("name", "sku", "ranks"),
    [
        ("a100-pcie-40gb", "a100-pcie-40gb", 1),
        ("a100-pcie-80gb-4-one-lost", "a100-pcie-80gb", 3),
        ("a100-sxm-40gb", "a100-sxm-40gb", 1),
        ("a100-sxm-80gb-4-mig", "a100-sxm-80gb", 1),
        ("a10g", "a10g-24gb", 1),
        ("b200-8", "b200-sxm-180gb", 8),
        ("gb10", "gb10-128gb", 1),
        ("gh200", "gh200-96gb", 1),
        ("h100-nvl-2", "h100-nvl-94gb", 2),
        ("h100-pcie", "h100-pcie-80gb", 1),
        ("h100-sxm-8", "h100-sxm-80gb", 8),
        ("h200-sxm-4", "h200-sxm-141gb", 2),
        ("l4", "l4-24gb", 1),
        ("l40s-4", "l40s-48gb", 4),
        ("mixed-workstation", "rtx-6000-ada-48gb", 1),
        ("mixed-workstation", "rtx-3090-24gb", 1),
        ("rtx-5090", "rtx-5090-32gb", 1),
        ("t4", "t4-16gb", 1),
    ],
)
def test_a_machine_fits_the_sku_it_is(name, sku, ranks):
    wanted = demand(sku, ranks=ranks)
    findings = judge(recorded(name), wanted)
    assert all(finding.holds for finding in findings), findings
    assert [f.rule for f in findings] == [
        "driver",
        "sku",
        "form-factor",
        "sm",
        "memory",
        "mig",
        "world-size",
        "free-memory",
    ]
    assert len(fitting(recorded(name), wanted)) >= ranks


@pytest.mark.parametrize(
    ("name", "sku", "rule", "both_sides"),
    [
        ("h100-pcie", "a100-sxm-80gb", "sku", ("NVIDIA A100-SXM4-80GB", "1 × NVIDIA H100 PCIe")),
        (
            "h100-pcie",
            "h100-sxm-80gb",
            "form-factor",
            ("an SXM board", "1 × NVIDIA H100 PCIe (h100-pcie-80gb)"),
        ),
        ("h100-sxm-8", "h100-nvl-94gb", "form-factor", ("an NVL board", "8 × NVIDIA H100 80GB")),
        ("h100-nvl-2", "h100-pcie-80gb", "form-factor", ("a PCIe card", "NVIDIA H100 NVL")),
        ("a100-sxm-40gb", "a100-sxm-80gb", "form-factor", ("A100-SXM4-80GB", "A100-SXM4-40GB")),
        ("h200-sxm-4", "h100-sxm-80gb", "sku", ("NVIDIA H100 80GB HBM3", "4 × NVIDIA H200")),
        ("a10g-slice", "a10g-24gb", "memory", ("23028 MiB", "12288 MiB")),
        ("h100-sxm-held", "h100-sxm-80gb", "free-memory", ("20359 MiB free", "73403 needed")),
        ("rtx-4090-desktop", "rtx-4090-24gb", "free-memory", ("needed", "2210 (/usr/bin/blender)")),
        ("no-library", "l4-24gb", "driver", ("l4-24gb", "NVML Shared Library Not Found")),
        ("driver-not-loaded", "l4-24gb", "driver", ("l4-24gb", "Driver Not Loaded")),
    ],
)
def test_a_machine_that_does_not_fit_breaks_one_rule_which_names_both_sides(
    name, sku, rule, both_sides
):
    finding = broken(name, demand(sku))
    assert finding.rule == rule
    assert all(side in finding.says for side in both_sides), finding.says
    assert finding.hint


def test_a_driver_below_the_releases_is_refused_and_one_above_is_not():
    old = broken("a100-sxm-40gb", demand("a100-sxm-40gb", driver="570.124.06"))
    assert old.rule == "driver"
    assert "570.124.06, here is 535.183.01" in old.says
    newer = judge(recorded("h100-pcie"), demand("h100-pcie-80gb", driver="570.124.06"))
    assert all(finding.holds for finding in newer)


def test_versions_are_compared_as_numbers():
    same = Inventory(driver="570.86.10", boards=recorded("l4").boards)
    assert judge(same, demand("l4-24gb", driver="570.86.10"))[0].holds
    assert not judge(same, demand("l4-24gb", driver="570.124.06"))[0].holds


def test_cut_boards_do_not_count_and_are_named():
    finding = broken("a100-sxm-80gb-4-mig", demand("a100-sxm-80gb", ranks=3))
    assert finding.rule == "mig"
    assert "GPU 0 on, GPU 1 turning-on" in finding.says
    boards = fitting(recorded("a100-sxm-80gb-4-mig"), demand("a100-sxm-80gb", ranks=2))
    assert sorted(board.index for board in boards) == [2, 3]


def test_too_few_boards_are_refused_with_both_numbers():
    finding = broken("h100-nvl-2", demand("h100-nvl-94gb", ranks=4))
    assert finding.rule == "world-size"
    assert finding.says == "4 × h100-nvl-94gb needed, 2 here"


def test_what_must_be_free_can_be_said_and_then_a_used_board_may_do():
    assert broken("h100-sxm-held", demand("h100-sxm-80gb", free_bytes=40 * GIB)).exit_code is (
        ExitCode.UNAVAILABLE
    )
    enough = judge(recorded("h100-sxm-held"), demand("h100-sxm-80gb", free_bytes=10 * GIB))
    assert all(finding.holds for finding in enough)


def test_boards_with_most_free_memory_come_first():
    boards = fitting(recorded("h200-sxm-4"), demand("h200-sxm-141gb"))
    assert [board.index for board in boards][2:] == [2, 0]


@pytest.mark.parametrize(
    ("name", "sku", "reference"),
    [
        ("no-library", "l4-24gb", "gpu-driver-unfit"),
        ("h100-pcie", "l4-24gb", "gpu-sku-differs"),
        ("h100-pcie", "h100-sxm-80gb", "gpu-form-factor-differs"),
        ("a10g-slice", "a10g-24gb", "gpu-memory-differs"),
    ],
)
def test_each_refusal_has_its_reference(name, sku, reference):
    with pytest.raises(Incompatible) as caught:
        fitting(recorded(name), demand(sku))
    assert caught.value.name == reference


def test_a_board_whose_capability_is_not_that_of_its_name_is_refused():
    gpus = FakeGpus(recorded("l4"))
    gpus.change(0, sm=86)
    with pytest.raises(Incompatible, match="SM 89, here is SM 86") as caught:
        fitting(gpus.read(), demand("l4-24gb"))
    assert caught.value.name == "gpu-sm-differs"


def test_memory_held_by_others_is_no_reason_to_call_a_board_unfit():
    assert fitting(recorded("h100-sxm-held"), demand("h100-sxm-80gb"))


BOARDS = recorded("h100-sxm-8").boards
MIXED = recorded("mixed-workstation").boards


@pytest.mark.parametrize(
    ("devices", "indices"),
    [
        (None, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("2,5", [2, 5]),
        ("5, 2", [5, 2]),
        ("", []),
        ("-1", []),
        ("1,99,2", [1]),
        ("1,1", [1]),
        (BOARDS[3].uuid, [3]),
        (f"{BOARDS[3].uuid[:12]},{BOARDS[6].uuid}", [3, 6]),
        ("GPU-", []),
        ("MIG-1a2b", []),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(devices, indices):
    assert [board.index for board in visible_boards(BOARDS, devices, None)] == indices


def test_numbers_on_a_machine_with_different_boards_are_refused_unless_counted_by_bus():
    with pytest.raises(InvalidInput, match="NVIDIA GeForce RTX 3090, NVIDIA RTX 6000 Ada"):
        visible_boards(MIXED, "0", None)
    assert [b.index for b in visible_boards(MIXED, "1", "PCI_BUS_ID")] == [1]
    assert [b.index for b in visible_boards(MIXED, MIXED[0].uuid, None)] == [0]
