"""What this machine is, and what is refused before anything expensive."""

from __future__ import annotations

import pytest

from engine_pipeline.build import preflight
from engine_pipeline.build.machine import (
    Machine,
    cgroup_cores,
    free_disk_bytes,
    host_gpus,
    this_machine,
    usable_cores,
)
from engine_pipeline.build.plan import Step
from engine_pipeline.nvml.inventory import Board, Inventory
from engine_pipeline.spec.hardware import Host, HostGpu, find_sku
from engine_registry.digest import Digest
from engine_registry.errors import Incompatible, Unavailable

GIB = 1 << 30
V3 = find_sku("cpu-x86-64-v3").flags
V4 = find_sku("cpu-x86-64-v4").flags


def machine(flags=V3, gpus=(), free=8 * GIB, architecture="x86_64") -> Machine:
    return Machine(
        host=Host(architecture=architecture, flags=frozenset(flags), gpus=gpus),
        cpu_model="Toy CPU",
        cores=4,
        ram_bytes=16 * GIB,
        ram_free_bytes=free,
    )


def test_this_machine_has_cores_memory_and_a_level():
    found = this_machine()
    assert 1 <= usable_cores() == found.cores
    assert 0 < found.ram_free_bytes <= found.ram_bytes
    assert found.isa
    assert found.isa in found.host_class


@pytest.mark.parametrize(
    ("flags", "isa"), [(V3, "x86-64-v3"), (V4, "x86-64-v4"), ({"sse2"}, "x86_64")]
)
def test_the_highest_level_is_the_one_named(flags, isa):
    assert machine(flags).isa == isa


def test_the_host_class_names_what_measurements_depend_on():
    found = machine(gpus=(HostGpu(name="NVIDIA H200"),))
    assert found.host_class == "Toy CPU, x86-64-v3, 4 cores, 16 GiB, NVIDIA H200"


@pytest.mark.parametrize(
    ("text", "cores"),
    [
        ("max 100000\n", None),
        ("", None),
        ("200000 100000", 2),
        ("150000 100000", 2),
        ("50000 100000", 1),
        ("1 0", None),
    ],
)
def test_a_cgroup_quota_counts_as_whole_cores(text, cores):
    assert cgroup_cores(text) == cores


def test_the_hosts_gpus_are_those_that_the_driver_lists():
    inventory = Inventory(
        boards=(
            Board(index=0, name="NVIDIA H200", uuid="GPU-0", sm=90, memory_bytes=143771 << 20),
            Board(index=1, name="NVIDIA GB10", uuid="GPU-1", sm=121),
        )
    )
    assert host_gpus(inventory) == (
        HostGpu(name="NVIDIA H200", memory_mib=143771, sm=90),
        HostGpu(name="NVIDIA GB10", memory_mib=None, sm=121),
    )


def test_free_disk_is_told_for_a_place_that_is_not_there_yet(tmp_path):
    assert free_disk_bytes(tmp_path / "not" / "yet") > 0


def test_a_machine_of_the_target_or_better_may_build(make_lock):
    preflight.check_target(make_lock("cpu-x86-64-v3"), machine(V3))
    preflight.check_target(make_lock("cpu-x86-64-v3"), machine(V4))


@pytest.mark.parametrize(
    ("sku", "host", "said"),
    [
        ("cpu-x86-64-v4", machine(V3), "avx512f"),
        ("cpu-aarch64", machine(V3), "this host is x86_64"),
        ("cpu-x86-64-v3", machine(architecture="aarch64"), "this host is aarch64"),
    ],
)
def test_another_machine_than_the_target_is_refused_with_both_sides(make_lock, sku, host, said):
    with pytest.raises(Incompatible) as caught:
        preflight.check_target(make_lock(sku), host)
    assert caught.value.name == "target-not-this-machine"
    assert sku in caught.value.message
    assert said in caught.value.message


def test_tools_as_locked_pass(make_lock):
    preflight.check_tools(make_lock(), {"tool": "1"})


@pytest.mark.parametrize(
    ("installed", "said"),
    [
        ({"tool": "2"}, "tool: lock 1, installed 2"),
        ({}, "tool: lock 1, installed none"),
        ({"tool": "1", "new": "3"}, "new: lock none, installed 3"),
    ],
)
def test_other_tools_than_locked_are_refused_with_both_sides(make_lock, installed, said):
    with pytest.raises(Incompatible) as caught:
        preflight.check_tools(make_lock(), installed)
    assert caught.value.name == "tool-version-differs"
    assert said in caught.value.message


def steps(*sizes):
    return [
        Step(
            name=f"s{number}",
            title="S",
            argv=("x",),
            outputs=("o",),
            disk_bytes=disk,
            ram_bytes=ram,
            key=Digest.of(b""),
        )
        for number, (disk, ram) in enumerate(sizes)
    ]


def test_room_for_a_quarter_more_than_all_outputs_is_wanted():
    preflight.check_room(steps((4 * GIB, 0), (4 * GIB, 0)), machine(), 10 * GIB)
    with pytest.raises(Unavailable) as caught:
        preflight.check_room(steps((4 * GIB, 0), (4 * GIB, 0)), machine(), 10 * GIB - 1)
    assert caught.value.name == "disk-short"
    assert "need 10.00 GiB" in caught.value.message
    assert "10.00 GiB free" in caught.value.message


def test_the_hungriest_step_must_fit_into_free_memory():
    preflight.check_room(steps((0, 8 * GIB), (0, 8 * GIB)), machine(free=8 * GIB), 0)
    with pytest.raises(Unavailable) as caught:
        preflight.check_room(steps((0, 1), (0, 8 * GIB)), machine(free=8 * GIB - 1), 0)
    assert caught.value.name == "ram-short"
    assert "step s1 needs 8.00 GiB" in caught.value.message


def test_nothing_to_run_needs_no_room():
    preflight.check_room([], machine(free=0), 0)
