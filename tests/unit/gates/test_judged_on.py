"""Which machine an engine may be judged on, and what its report says of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from engine_pipeline.build.machine import Machine, host_gpus
from engine_pipeline.gates.device import device_for
from engine_pipeline.gates.judged_on import JudgedOn, check_machine
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.report import DEVICE, DRIVER, Device, Finding, Report, listing
from engine_pipeline.gates.run import attach
from engine_pipeline.gates.words import where
from engine_pipeline.nvml.inventory import Board, Inventory
from engine_pipeline.promote.evidence import read_evidence
from engine_pipeline.promote.findings import Wanted
from engine_pipeline.spec.hardware import CpuSku, Host, find_sku
from engine_registry.backends.memory import memory_stores
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import ExitCode, Incompatible
from engine_registry.record import Parallelism, Platform
from engine_registry.registry import Registry
from engine_registry.testing.samples import TickingClock, sample_engine
from tests.unit.gates.test_report import report

AT = datetime(2026, 12, 1, 12, tzinfo=UTC)

H100 = Platform(sku="h100-sxm-80gb")
V3 = find_sku("cpu-x86-64-v3")
assert isinstance(V3, CpuSku)
LATER = {"under_load", "lanes", "paired", "parity", "judge", "embeddings"}
SXM = "NVIDIA H100 80GB HBM3"


def machine(*boards: str, driver: str | None = "590.44.01", absent: str = "") -> Machine:
    found = tuple(
        Board(index=n, name=name, uuid=f"GPU-{n}", sm=90, memory_bytes=81559 << 20)
        for n, name in enumerate(boards)
    )
    inventory = Inventory(driver=driver, boards=found, absent=absent)
    return Machine(
        host=Host(architecture="x86_64", flags=V3.flags, gpus=host_gpus(inventory)),
        cpu_model="test",
        cores=2,
        ram_bytes=8 << 30,
        ram_free_bytes=4 << 30,
        inventory=inventory,
    )


def test_a_report_from_a_gpu_names_its_driver_in_its_listing_and_on_its_pages():
    here = machine(SXM)
    device = device_for(H100, here)
    assert device.driver == "590.44.01"
    judged = report(device=device)
    assert listing(judged)[DRIVER] == "590.44.01"
    assert listing(judged)[DEVICE] == here.host_class
    assert ("GPU driver", "590.44.01") in where(judged)


def test_the_driver_of_a_gpu_is_not_named_for_an_engine_that_runs_on_the_cpu():
    device = device_for(Platform(sku="cpu-x86-64-v3"), machine(SXM))
    assert device.driver is None
    assert DRIVER not in listing(report(device=device))


@pytest.mark.parametrize(
    ("boards", "found"),
    [
        (("NVIDIA H100 PCIe",), "this host has NVIDIA H100 PCIe"),
        ((), "this host has no GPU (no NVML library)"),
    ],
)
def test_an_engine_is_not_judged_on_a_machine_without_its_gpu(boards, found):
    absent = "" if boards else "no NVML library"
    with pytest.raises(Incompatible) as refused:
        device_for(H100, machine(*boards, absent=absent))
    assert refused.value.exit_code is ExitCode.INCOMPATIBLE
    assert refused.value.name == "gate-other-sku"
    assert refused.value.message == (
        "the engine was built for h100-sxm-80gb, this machine is none: "
        f"h100-sxm-80gb needs {SXM}, {found}"
    )


def test_an_engine_for_two_gpus_is_not_judged_on_one():
    two = Platform(sku="h100-sxm-80gb", parallelism=Parallelism(tensor=2))
    with pytest.raises(Incompatible, match="needs 2 such GPUs, this host has 1"):
        device_for(two, machine(SXM))
    assert device_for(two, machine(SXM, SXM)).sku == "h100-sxm-80gb"


def test_an_engine_is_not_judged_on_a_cpu_that_lacks_its_instructions():
    with pytest.raises(Incompatible, match="this machine is none: cpu-x86-64-v4 needs avx512"):
        device_for(Platform(sku="cpu-x86-64-v4"), machine(SXM))


def test_a_report_that_was_stored_before_drivers_were_named_is_still_read():
    stored = report().model_dump(mode="json")
    del stored["device"]["driver"]
    read = Report.model_validate(stored)
    assert read.device is not None
    assert read.device.driver is None


@pytest.mark.parametrize(
    ("host_class", "driver", "refusal"),
    [
        ("epyc, NVIDIA H100 PCIe", "570.12", "driver '590.*', this machine has '570.12'"),
        ("epyc, NVIDIA H100 PCIe", None, "driver '590.*', this machine has none"),
        ("epyc", "590.44.01", "host_class '*H100*', this machine has 'epyc'"),
    ],
)
def test_a_gate_that_names_its_machines_refuses_others_with_both_sides(host_class, driver, refusal):
    wanted = JudgedOn(host_class="*H100*", driver="590.*")
    good = Device(
        sku="h100-pcie-80gb",
        host_class="epyc, NVIDIA H100 PCIe",
        cpu_model="epyc",
        cores=1,
        driver="590.44.01",
    )
    check_machine(wanted, good)
    with pytest.raises(Incompatible) as refused:
        check_machine(wanted, good.model_copy(update={"host_class": host_class, "driver": driver}))
    assert refused.value.name == "gate-other-machine"
    assert refused.value.message == f"the gate is judged on {refusal}"


def test_a_restriction_to_nothing_is_refused():
    with pytest.raises(ValidationError, match="give host_class, driver or both"):
        JudgedOn()


def test_naming_machines_changes_the_digest_of_the_bars_and_naming_none_does_not():
    plain = {"suite": "demo", "quality": {"min_score": 0.9}}
    bars = GatePolicy.model_validate(plain)
    assert "judged_on" in bars.model_dump()
    named = GatePolicy.model_validate({**plain, "judged_on": {"driver": "590.*"}})
    assert named.digest != bars.digest
    silent = bars.model_dump(mode="json", exclude={"judged_on"} | LATER)
    assert bars.digest == Digest.of(canonical_json(silent))


def test_devices_that_differ_by_their_driver_alone_are_not_the_same():
    one = Device(sku="h100-sxm-80gb", host_class="h", cpu_model="c", cores=1, driver="590.1")
    assert one != one.model_copy(update={"driver": "590.2"})


def test_of_several_machines_every_report_that_counts_is_read_and_no_other():
    clock = TickingClock()
    registry = Registry(memory_stores(clock), clock)
    engine = sample_engine(registry, "one").digest
    attached = {}
    for number, (host, driver, outcome) in enumerate(
        (
            ("h100", "570.1", Outcome.FAILED),
            ("h100", "590.1", Outcome.FAILED),
            ("h100", "590.1", Outcome.PASSED),
            ("h200", "590.1", Outcome.ERRORED),
            ("h200", "590.2", Outcome.PASSED),
        )
    ):
        device = Device(
            sku="h100-sxm-80gb", host_class=host, cpu_model="epyc", cores=1, driver=driver
        )
        at = AT + timedelta(hours=number)
        told = Finding(name="score", outcome=outcome, reason="as the test says")
        made = report(
            told, engine=engine, device=device, outcome=outcome, started_at=at, finished_at=at
        )
        attached[attach(registry, made)] = number
    wanted = {"smoke": Wanted(policy=made.policy_digest, suite=made.suite)}
    read = read_evidence(registry, engine, wanted)
    assert sorted(attached[one.report] for one in read) == [0, 2, 4]
    assert {one.machine for one in read} == {
        "h100, driver 570.1",
        "h100, driver 590.1",
        "h200, driver 590.2",
    }
    (failed,) = (one for one in read if one.outcome is Outcome.FAILED)
    assert attached[failed.report] == 0
