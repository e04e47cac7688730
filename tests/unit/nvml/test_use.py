"""How boards did, and which times do not count: from readings, and through a watching child."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from engine_pipeline.nvml.use import (
    DISTURBING,
    REASONS,
    Reading,
    disturbances,
    overlaps,
    slowed,
    use_of,
    words,
)
from engine_pipeline.nvml.watch import PERIOD_S, GpuWatch
from tests.servers.gpus import answers, environment

HOT = 0x40


def reading(at: float, **changes: Any) -> Reading:
    told = {
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 2619,
        "power_mw": 600_000,
        "temperature_c": 60,
        "memory_used_bytes": 40 << 30,
        "busy_percent": 90,
        "reasons": 0x4,
    }
    return Reading(at=at, uuid="GPU-a", name="NVIDIA H100", **{**told, **changes})


def test_a_board_is_summed_up_over_the_time_asked_for():
    found = [reading(0.0, sm_clock_mhz=300), *(reading(t) for t in (1.0, 1.2, 1.4))]
    found.append(reading(1.6, sm_clock_mhz=1200, power_mw=700_000, reasons=HOT | 0x4))
    [board] = use_of(found, 1.0, 2.0)
    assert board.readings == 4
    assert (board.sm_clock_median_mhz, board.sm_clock_min_mhz) == (1980, 1200)
    assert (board.power_mean_w, board.power_max_w) == (625.0, 700.0)
    assert board.slowed == {"power limit of the board": 4, "too hot, by the hardware": 1}
    assert board.disturbed_share == 0.25
    said = words(board)
    assert "SM clock 1980 MHz (least 1200)" in said
    assert "40.0 GiB used at most" in said
    assert slowed([board]) == "NVIDIA H100 in 25% of 4 readings (too hot, by the hardware)"


def test_what_a_board_does_not_tell_is_not_made_up():
    [board] = use_of([Reading(at=1.0, uuid="GPU-a", name="GB10")], 0, 2)
    assert board.sm_clock_median_mhz is None
    assert board.disturbed_share == 0
    assert "SM clock ? MHz" in words(board)


def test_only_what_is_not_the_boards_own_disturbs():
    disturbing = {word for bit, word in REASONS.items() if bit & DISTURBING}
    assert disturbing == {
        "hardware slowdown",
        "too hot, by the driver",
        "too hot, by the hardware",
        "power brake from outside",
    }
    calm = [reading(1.0, reasons=bit) for bit in REASONS if not bit & DISTURBING]
    assert disturbances(calm, PERIOD_S) == []
    assert slowed(use_of(calm, 0, 2)) is None


def test_a_reading_stands_for_the_time_up_to_its_neighbours():
    spans = disturbances([reading(10.0, reasons=HOT)], 0.2)
    assert overlaps(9.0, 9.85, spans)
    assert overlaps(10.1, 11.0, spans)
    assert overlaps(9.0, 11.0, spans)
    assert not overlaps(9.0, 9.7, spans)
    assert not overlaps(10.3, 11.0, spans)


def boards(tmp_path: Path, monkeypatch, **told: Any) -> Path:
    """Puts boards that tell how they do before every child of this process."""
    found = answers("h100-sxm-8")
    for device in found["devices"]:
        device.update(told)
    path = tmp_path / "boards.json"
    path.write_text(json.dumps(found))
    monkeypatch.setenv("PYTHONPATH", environment("h100-sxm-8")["PYTHONPATH"])
    monkeypatch.setenv("FAKE_NVML", str(path))
    return path


TELL = {
    "nvmlDeviceGetClockInfo": [1980, 2619],
    "nvmlDeviceGetPowerUsage": 650_000,
    "nvmlDeviceGetTemperature": 61,
    "nvmlDeviceGetUtilizationRates": [97, 40],
    "nvmlDeviceGetCurrentClocksThrottleReasons": 4,
}


def seen(watch: GpuWatch, since: float, *, hot: bool = False) -> None:
    """Waits until a reading has come, or one of a hot board."""
    patience = time.monotonic() + 20
    while not (watch.disturbances() if hot else watch.use(since, time.perf_counter())):
        assert time.monotonic() < patience
        time.sleep(0.01)


def test_boards_are_watched_while_the_block_runs_and_the_child_ends_with_it(tmp_path, monkeypatch):
    path = boards(tmp_path, monkeypatch, **TELL)
    with GpuWatch() as watch:
        since = time.perf_counter()
        seen(watch, since)
        path.with_suffix(".hot").write_text(str(HOT))
        seen(watch, since, hot=True)
    found = watch.use(since, time.perf_counter())
    assert len(found) == 8
    assert found[0].sm_clock_median_mhz == 1980
    assert found[0].power_max_w == 650
    assert found[0].busy_mean_share == 0.97
    assert watch._child is not None
    assert watch._child.poll() == 0


def test_only_the_boards_that_this_process_may_use_are_watched(tmp_path, monkeypatch):
    boards(tmp_path, monkeypatch, **TELL)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    with GpuWatch() as watch:
        seen(watch, 0.0)
    assert len(watch.use(0.0, time.perf_counter())) == 2


def test_boards_that_tell_nothing_disturb_nothing(tmp_path, monkeypatch):
    boards(tmp_path, monkeypatch)
    with GpuWatch() as watch:
        seen(watch, 0.0)
    assert watch.disturbances() == []


@pytest.mark.parametrize("recording", ["no-library", "driver-not-loaded"])
def test_without_a_driver_there_is_nothing_to_see(recording, monkeypatch):
    for name, value in environment(recording).items():
        monkeypatch.setenv(name, value)
    with GpuWatch() as watch:
        pass
    assert watch.use(0.0, time.perf_counter()) == ()


def test_a_driver_that_does_not_answer_holds_nobody_up(tmp_path, monkeypatch):
    boards(tmp_path, monkeypatch)
    monkeypatch.setenv("FAKE_NVML_HANGS_S", "60")
    monkeypatch.setattr("engine_pipeline.nvml.watch._PATIENCE_S", 0.2)
    began = time.monotonic()
    with GpuWatch() as watch:
        pass
    assert time.monotonic() - began < 10
    assert watch.use(0.0, time.perf_counter()) == ()
