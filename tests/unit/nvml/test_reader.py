"""Asking the driver, in a process of its own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from engine_pipeline.nvml import ask
from engine_pipeline.nvml.reader import NvmlReader
from tests.servers.gpus import environment, recorded


@pytest.fixture
def boards_of(monkeypatch):
    def choose(name: str, **more: str) -> None:
        for key, value in (environment(name) | more).items():
            monkeypatch.setenv(key, value)

    return choose


@pytest.mark.parametrize(
    "name",
    ["h200-sxm-4", "a100-sxm-80gb-4-mig", "a100-pcie-80gb-4-one-lost", "gb10", "driver-not-loaded"],
)
def test_what_the_library_answers_arrives_whole(name, boards_of):
    boards_of(name)
    assert NvmlReader().read() == recorded(name)


def test_a_driver_that_hangs_is_given_up(boards_of):
    boards_of("l4", FAKE_NVML_HANGS_S="60")
    assert NvmlReader(timeout_s=0.5).read().absent == "the NVIDIA driver did not answer in 0.5 s"


def test_a_crash_of_the_library_is_told_and_not_raised(boards_of):
    boards_of("l4", FAKE_NVML="/not/there")
    found = NvmlReader().read()
    assert "asking the NVIDIA driver failed" in found.absent
    assert "/not/there" in found.absent


def test_a_missing_package_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert ask.answers()["nvmlInit"]["text"] == "the package nvidia-ml-py is not installed"


def test_the_real_library_has_every_function_that_is_asked():
    pynvml = pytest.importorskip("pynvml")
    names = (*ask._BOARD, ask._PROCESSES, "nvmlSystemGetCudaDriverVersion_v2", "nvmlDeviceGetCount")
    assert [name for name in names if not callable(getattr(pynvml, name, None))] == []


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has an NVIDIA driver")
def test_the_real_library_without_a_driver_says_so():
    pytest.importorskip("pynvml")
    assert NvmlReader().read().absent == "NVML Shared Library Not Found"
