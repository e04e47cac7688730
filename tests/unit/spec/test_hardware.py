from __future__ import annotations

import time

import pytest

from engine_pipeline.spec.hardware import (
    CpuSku,
    GpuSku,
    Host,
    HostGpu,
    find_sku,
    matches_host,
    refuse_impossible,
    sku_names,
    skus_of_host,
)
from engine_pipeline.spec.model import EngineKind
from engine_registry.errors import ExitCode, Incompatible, InvalidInput
from tests.unit.spec.specs import spec_with

V3_FLAGS = find_sku("cpu-x86-64-v3").flags  # type: ignore[union-attr]


def host(*gpus: HostGpu, flags: frozenset[str] = V3_FLAGS, architecture: str = "x86_64") -> Host:
    return Host(architecture=architecture, flags=flags, gpus=gpus)


H100 = HostGpu(name="NVIDIA H100 80GB HBM3", memory_mib=81559, sm=90)


def refusal(**changes: str) -> Incompatible:
    spec = spec_with({path.replace("__", "."): value for path, value in changes.items()})
    with pytest.raises(Incompatible) as caught:
        refuse_impossible(spec)
    assert caught.value.exit_code == ExitCode.INCOMPATIBLE
    return caught.value


def test_fp8_on_an_a100_is_refused_with_what_works_there_and_where_it_would_work() -> None:
    error = refusal(target__sku="a100-sxm-80gb")
    assert error.name == "precision-not-on-sku"
    assert "fp8 weights with trtllm-engine on a100-sxm-80gb (SM 80)" in error.message
    assert "fp16, bf16, int8, int4" in error.message
    assert "h100-sxm-80gb" in error.hint


def test_a_refusal_takes_milliseconds() -> None:
    spec = spec_with({"target.sku": "a100-sxm-80gb"})
    find_sku("a100-sxm-80gb")
    start = time.perf_counter()
    for _ in range(20):
        with pytest.raises(Incompatible):
            refuse_impossible(spec)
    assert (time.perf_counter() - start) / 20 < 0.005


@pytest.mark.parametrize(
    ("kind", "sku", "weights", "cache"),
    [
        ("trtllm-engine", "h100-sxm-80gb", "fp8", "fp8"),
        ("trtllm-engine", "h100-pcie-80gb", "int4", "int8"),
        ("trtllm-engine", "l40s-48gb", "fp8", "fp8"),
        ("trtllm-engine", "a100-pcie-40gb", "int8", "int8"),
        ("trtllm-checkpoint", "b200-sxm-180gb", "nvfp4", "fp8"),
        ("trtllm-checkpoint", "a100-sxm-80gb", "int4", "fp8"),
        ("hf-checkpoint", "a100-sxm-80gb", "fp8", "bf16"),
        ("llama-cpp", "cpu-aarch64", "fp16", "fp16"),
    ],
)
def test_what_works_is_let_through(kind: str, sku: str, weights: str, cache: str) -> None:
    refuse_impossible(
        spec_with(
            {
                "backend.kind": kind,
                "target.sku": sku,
                "precision.weights": weights,
                "precision.kv_cache": cache,
            }
        )
    )


@pytest.mark.parametrize(
    ("kind", "sku", "weights", "cache", "says"),
    [
        ("trtllm-engine", "a100-sxm-80gb", "fp16", "fp8", "fp8 KV cache"),
        ("trtllm-engine", "t4-16gb", "bf16", "fp16", "bf16 weights"),
        ("trtllm-engine", "h200-sxm-141gb", "nvfp4", "fp16", "nvfp4 weights"),
        ("trtllm-checkpoint", "h100-sxm-80gb", "int8", "fp16", "int8 weights"),
        ("hf-checkpoint", "b200-sxm-180gb", "int8", "fp16", "int8 weights"),
        ("llama-cpp", "cpu-x86-64-v3", "fp8", "fp16", "fp8 weights"),
        ("llama-cpp", "cpu-x86-64-v3", "int8", "int8", "int8 KV cache"),
    ],
)
def test_what_cannot_work_is_refused(
    kind: str, sku: str, weights: str, cache: str, says: str
) -> None:
    error = refusal(
        backend__kind=kind, target__sku=sku, precision__weights=weights, precision__kv_cache=cache
    )
    assert error.name == "precision-not-on-sku"
    assert error.message.startswith(says)


def test_a_kind_that_does_not_run_there_is_refused_with_those_that_do() -> None:
    error = refusal(target__sku="cpu-x86-64-v3")
    assert error.name == "kind-not-on-sku"
    assert "kinds that work there: llama-cpp" in error.message
    assert "cpu-x86-64-v3" in refusal(backend__kind="llama-cpp", precision__weights="fp16").hint


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("h100", "h100-sxm-80gb or h100-pcie-80gb or h100-nvl-94gb"),
        ("h100-sxm5-80gb", "h100-sxm-80gb"),
        ("a100-80gb", "a100-sxm-80gb"),
        ("rtx-4090", "rtx-4090-24gb"),
        ("cpu-x86-64", "cpu-x86-64-v"),
    ],
)
def test_an_unknown_sku_is_answered_with_the_nearest_ones(name: str, near: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        find_sku(name)
    assert caught.value.name == "unknown-sku"
    assert near in caught.value.message


def test_a_name_like_nothing_known_is_answered_with_the_form_of_a_name() -> None:
    with pytest.raises(InvalidInput) as caught:
        find_sku("zzz")
    assert "h100-sxm-80gb" in caught.value.hint


def test_boards_with_the_same_chip_are_different_skus() -> None:
    boards = [find_sku(name) for name in ("h100-sxm-80gb", "h100-pcie-80gb", "h100-nvl-94gb")]
    assert len({sku.nvml_names for sku in boards if isinstance(sku, GpuSku)}) == 3
    for sku in boards:
        fits = [matches_host(sku, host(H100)).fits]
        assert fits == [sku.name == "h100-sxm-80gb"]


def test_the_table_is_whole() -> None:
    skus = [find_sku(name) for name in sku_names()]
    assert len(skus) >= 39
    gpus = [sku for sku in skus if isinstance(sku, GpuSku)]
    names = [name.lower() for sku in gpus for name in sku.nvml_names]
    assert len(names) == len(set(names))
    assert {kind for sku in skus for kind in sku.kinds} == set(EngineKind)
    assert all(can.weights and can.kv_cache for sku in skus for can in sku.kinds.values())
    assert all(70 <= sku.sm <= 130 for sku in gpus)


def test_newer_instruction_sets_contain_older_ones() -> None:
    v3, v4 = (find_sku(f"cpu-x86-64-v{level}") for level in (3, 4))
    assert isinstance(v3, CpuSku)
    assert isinstance(v4, CpuSku)
    assert v3.flags < v4.flags


def test_a_cpu_that_lacks_a_flag_is_told_which() -> None:
    fit = matches_host(find_sku("cpu-x86-64-v3"), host(flags=V3_FLAGS - {"avx2", "fma"}))
    assert not fit.fits
    assert "avx2, fma" in fit.reason


def test_a_cpu_of_another_architecture_does_not_fit() -> None:
    fit = matches_host(find_sku("cpu-x86-64-v3"), host(architecture="aarch64"))
    assert not fit.fits
    assert "x86_64" in fit.reason
    assert "aarch64" in fit.reason


def test_a_newer_cpu_fits_an_older_target() -> None:
    flags = V3_FLAGS | {"avx512f", "sse4a"}
    assert matches_host(find_sku("cpu-x86-64-v3"), host(flags=flags)).fits


@pytest.mark.parametrize(
    ("gpu", "sku"),
    [
        (HostGpu(name="NVIDIA A100-SXM4-80GB", memory_mib=81920), "a100-sxm-80gb"),
        (HostGpu(name="A100-SXM4-80GB"), "a100-sxm-80gb"),
        (HostGpu(name="NVIDIA A100-PCIe-40GB", memory_mib=40536), "a100-pcie-40gb"),
        (HostGpu(name="Tesla T4", memory_mib=15109, sm=75), "t4-16gb"),
    ],
)
def test_a_board_is_known_however_its_driver_spells_it(gpu: HostGpu, sku: str) -> None:
    assert matches_host(find_sku(sku), host(gpu)).fits


@pytest.mark.parametrize(
    ("gpu", "says"),
    [
        (HostGpu(name="NVIDIA H100 PCIe"), "this host has NVIDIA H100 PCIe"),
        (HostGpu(name="NVIDIA H100 80GB HBM3", memory_mib=40000), "has 40000 MiB"),
        (HostGpu(name="NVIDIA H100 80GB HBM3", sm=89), "has 89"),
    ],
)
def test_a_host_that_is_not_the_target_is_told_both_sides(gpu: HostGpu, says: str) -> None:
    fit = matches_host(find_sku("h100-sxm-80gb"), host(gpu))
    assert not fit.fits
    assert says in fit.reason
    assert "h100-sxm-80gb needs" in fit.reason


def test_as_many_boards_are_needed_as_there_are_ranks() -> None:
    sku = find_sku("h100-sxm-80gb")
    assert matches_host(sku, host(H100, H100), ranks=2).fits
    fit = matches_host(sku, host(H100, HostGpu(name="NVIDIA H100 PCIe")), ranks=2)
    assert not fit.fits
    assert "needs 2" in fit.reason
    assert not matches_host(sku, host()).fits


def test_a_host_lists_everything_it_can_serve() -> None:
    assert [sku.name for sku in skus_of_host(host(H100))] == [
        "h100-sxm-80gb",
        "cpu-x86-64-v3",
    ]
