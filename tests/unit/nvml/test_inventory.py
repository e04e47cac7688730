"""What NVML's answers mean, on the recordings of tests/data/nvml."""

from __future__ import annotations

import pytest

from engine_pipeline.build.machine import host_gpus
from engine_pipeline.nvml.inventory import GpuProcess, Mig
from engine_pipeline.nvml.node import node_of
from engine_pipeline.spec.hardware import GpuSku, Host, skus_of_host
from tests.servers.gpus import RECORDINGS, recorded

MIB = 1 << 20


@pytest.mark.parametrize(
    ("name", "skus"),
    [
        ("a100-pcie-40gb", ["a100-pcie-40gb"]),
        ("a100-pcie-80gb-4-one-lost", ["a100-pcie-80gb"]),
        ("a100-sxm-40gb", ["a100-sxm-40gb"]),
        ("a100-sxm-80gb-4-mig", ["a100-sxm-80gb"]),
        ("a10g", ["a10g-24gb"]),
        ("a10g-slice", []),
        ("b200-8", ["b200-sxm-180gb"]),
        ("driver-not-loaded", []),
        ("gb10", ["gb10-128gb"]),
        ("gh200", ["gh200-96gb"]),
        ("h100-nvl-2", ["h100-nvl-94gb"]),
        ("h100-pcie", ["h100-pcie-80gb"]),
        ("h100-sxm-8", ["h100-sxm-80gb"]),
        ("h100-sxm-held", ["h100-sxm-80gb"]),
        ("h200-sxm-4", ["h200-sxm-141gb"]),
        ("l4", ["l4-24gb"]),
        ("l40s-4", ["l40s-48gb"]),
        ("mixed-workstation", ["rtx-3090-24gb", "rtx-6000-ada-48gb"]),
        ("no-library", []),
        ("rtx-4090-desktop", ["rtx-4090-24gb"]),
        ("rtx-5090", ["rtx-5090-32gb"]),
        ("t4", ["t4-16gb"]),
    ],
)
def test_each_recorded_machine_is_the_sku_it_is_named_after(name, skus):
    host = Host(architecture="", flags=frozenset(), gpus=host_gpus(recorded(name)))
    assert [sku.name for sku in skus_of_host(host) if isinstance(sku, GpuSku)] == skus


def test_every_recording_is_told_apart_above():
    (mark,) = test_each_recorded_machine_is_the_sku_it_is_named_after.pytestmark
    assert tuple(name for name, _ in mark.args[1]) == RECORDINGS


def test_driver_cuda_and_board_are_read_in_full():
    found = recorded("h100-sxm-8")
    assert (found.driver, found.cuda, found.absent, found.lost) == ("570.124.06", "12.8", "", ())
    assert len(found.boards) == 8
    board = found.boards[7]
    assert (board.index, board.name, board.sm) == (7, "NVIDIA H100 80GB HBM3", 90)
    assert board.uuid.startswith("GPU-")
    assert board.memory_mib == 81559
    assert 80000 < board.free_mib < 81559
    assert (board.mig, board.processes) == (Mig.OFF, ())


def test_who_computes_on_a_board_is_named_where_the_driver_can():
    boards = recorded("h200-sxm-4").boards
    assert boards[0].processes == (
        GpuProcess(pid=48211, name="/usr/bin/python3", memory_bytes=128764 * MIB),
    )
    assert str(boards[0].processes[0]) == "48211 (/usr/bin/python3, 128764 MiB)"
    assert str(boards[2].processes[0]) == "51877 (unknown program, 8604 MiB)"
    (desktop,) = recorded("rtx-4090-desktop").boards
    assert str(desktop.processes[0]) == "2210 (/usr/bin/blender)"


def test_mig_is_read_as_it_is_and_as_it_will_be():
    boards = recorded("a100-sxm-80gb-4-mig").boards
    assert [board.mig for board in boards] == [Mig.ON, Mig.TURNING_ON, Mig.OFF, Mig.OFF]
    assert recorded("l4").boards[0].mig is Mig.NOT_THERE


def test_what_a_driver_does_not_say_is_unknown_and_not_zero():
    (board,) = recorded("gb10").boards
    assert (board.memory_mib, board.free_mib) == (None, None)


def test_a_lost_board_is_told_and_the_others_stay():
    found = recorded("a100-pcie-80gb-4-one-lost")
    assert found.lost == ("GPU 1: GPU is lost",)
    assert [board.index for board in found.boards] == [0, 2, 3]


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("no-library", "NVML Shared Library Not Found"),
        ("driver-not-loaded", "Driver Not Loaded"),
    ],
)
def test_a_machine_without_a_driver_says_why_there_are_no_boards(name, why):
    assert recorded(name).absent == why


def test_as_a_node_it_has_what_the_rules_of_fit_ask_for():
    node = node_of(recorded("a100-sxm-80gb-4-mig"), name="this node", architecture="x86_64")
    assert node.driver == "570.124.06"
    assert [gpu.mig for gpu in node.gpus] == [True, True, False, False]
    assert len(node.host.gpus) == 2
    assert node.gpus[0].memory_mib == 81920
    assert node.gpus[0].free_mib < 81920
