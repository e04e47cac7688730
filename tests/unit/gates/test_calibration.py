"""Where bars stand in the noise, and what is proposed instead."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from engine_pipeline.gates.calibration import (
    ErrorRates,
    GateCalibration,
    evidence,
    file_name,
    load_of,
    warnings,
)
from engine_pipeline.gates.calibration_file import calibration_path, keep, read_calibrations
from engine_pipeline.gates.policy import GatePolicy
from engine_registry.digest import Digest
from engine_registry.errors import InvalidInput

TTFT = [100.0, 104.0, 96.0, 102.0, 98.0]  # mean 100, deviation 3.16
RATE = [50.0, 52.0, 48.0, 51.0, 49.0]


def policy(**bars) -> GatePolicy:
    load = {"requests": 60, "concurrency": 2, "output_tokens": 8}
    fields = {"suite": "demo", "quality": {"min_score": 0.9}, "performance": {**load, **bars}}
    return GatePolicy.model_validate(fields)


def calibrated(wanted: GatePolicy, **values) -> GateCalibration:
    rates = ErrorRates()
    return GateCalibration(
        engine=Digest.of(b"good"),
        at=datetime(2026, 3, 1, tzinfo=UTC),
        load=load_of(wanted.performance),
        rates=rates,
        bars=evidence(values, wanted.performance, rates),
    )


def test_mean_deviation_and_n_stand_beside_the_bar():
    wanted = policy(max_ttft_p95_ms=150)
    one = calibrated(wanted, ttft_p95_ms=TTFT).bars["max_ttft_p95_ms"]
    assert (one.bar, one.mean, one.deviation, one.n) == (150, 100.0, 3.162, 5)


def test_a_proposed_bar_lies_on_the_side_that_keeps_good_engines_in():
    bars = calibrated(policy(max_ttft_p95_ms=150), ttft_p95_ms=TTFT, output_tokens_per_s=RATE).bars
    assert bars["max_ttft_p95_ms"].proposed > 104
    assert bars["min_output_tokens_per_s"].proposed < 48
    assert bars["min_output_tokens_per_s"].bar is None


def test_proposed_bars_keep_the_stated_error_rates():
    draw = random.Random(5)
    rates = ErrorRates(false_alarm=0.05, miss=0.05)
    bars = policy(max_ttft_p95_ms=150).performance
    missed = caught = 0
    for _ in range(2000):
        seen = [draw.gauss(100, 4) for _ in range(8)]
        one = evidence({"ttft_p95_ms": seen}, bars, rates)["max_ttft_p95_ms"]
        missed += draw.gauss(100, 4) > one.proposed
        caught += draw.gauss(100 * (1 + one.catches), 4) > one.proposed
    assert 0.03 < missed / 2000 < 0.07
    assert caught / 2000 > 0.93


@pytest.mark.parametrize(
    ("bar", "said"),
    [
        (90, "a good engine fails by chance"),
        (105, "a good engine fails by chance"),
        (112, None),
        (130, "only a catastrophe fails"),
    ],
)
def test_bars_within_two_deviations_or_beyond_six_are_warned_of(bar, said):
    wanted = policy(max_ttft_p95_ms=bar)
    found = warnings("core", wanted, calibrated(wanted, ttft_p95_ms=TTFT))
    assert [said in text for text in found] == ([True] if said else [])
    assert all(f"max_ttft_p95_ms {bar}, measured 100 ± 3.162 (n 5)" in text for text in found)


@pytest.mark.parametrize(("bar", "said"), [(49, "by chance"), (44, None), (20, "catastrophe")])
def test_for_throughput_the_other_side_counts(bar, said):
    wanted = policy(min_output_tokens_per_s=bar)
    found = warnings("core", wanted, calibrated(wanted, output_tokens_per_s=RATE))
    assert [said in text for text in found] == ([True] if said else [])


def test_a_bar_that_was_moved_since_is_judged_where_it_stands_now():
    before, now = policy(max_ttft_p95_ms=112), policy(max_ttft_p95_ms=101)
    [text] = warnings("core", now, calibrated(before, ttft_p95_ms=TTFT))
    assert "max_ttft_p95_ms 101" in text


def test_a_calibration_under_another_load_says_nothing_of_the_bars():
    known = calibrated(policy(max_ttft_p95_ms=112), ttft_p95_ms=TTFT)
    [text] = warnings("core", policy(max_ttft_p95_ms=112, prompt_words=500), known)
    assert "under another load" in text
    assert "enginectl calibrate core" in text


def test_gates_of_one_suite_share_a_file_for_each_class_of_hosts(tmp_path):
    one = calibrated(policy(max_ttft_p95_ms=112), ttft_p95_ms=TTFT)
    two = one.model_copy(update={"dropped": 2})
    host = "AMD EPYC 9B14, x86-64-v4, 2 cores, 24 GiB"
    path = keep(tmp_path, host, "core", one)
    assert keep(tmp_path, host, "other", two) == path == calibration_path(tmp_path, host)
    assert path.name == "amd-epyc-9b14-x86-64-v4-2-cores-24-gib.json"
    [read] = read_calibrations(tmp_path)
    assert read.gates == {"core": one, "other": two}
    keep(tmp_path, host, "core", two)
    assert read_calibrations(tmp_path)[0].gates == {"core": two, "other": two}
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_a_damaged_file_is_neither_read_nor_overwritten(tmp_path):
    path = calibration_path(tmp_path, "host")
    path.parent.mkdir()
    path.write_text("{")
    with pytest.raises(InvalidInput, match="not a calibration"):
        read_calibrations(tmp_path)
    with pytest.raises(InvalidInput):
        keep(tmp_path, "host", "core", calibrated(policy(max_ttft_p95_ms=112), ttft_p95_ms=TTFT))
    assert path.read_text() == "{"


def test_a_host_class_makes_a_file_name_on_every_system():
    assert file_name("NVIDIA H200, 8×, ÄÖ/..") == "nvidia-h200-8.json"
