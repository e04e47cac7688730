"""Where bars stand in the noise, and what is proposed instead."""

from __future__ import annotations

import random
from datetime import UTC, datetime

import pytest

from engine_pipeline.gates.calibration import (
    ErrorRates,
    GateCalibration,
    WorthCatching,
    evidence,
    file_name,
    warnings,
)
from engine_pipeline.gates.calibration_bars import bars_of, basis_of
from engine_pipeline.gates.calibration_evidence import (
    cases_needed,
    lost_at_most,
    lost_by_chance,
)
from engine_pipeline.gates.calibration_file import calibration_path, keep, read_calibrations
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.suite import Recorded, Suite
from engine_registry.digest import Digest
from engine_registry.errors import InvalidInput

TTFT = [100.0, 104.0, 96.0, 102.0, 98.0]  # mean 100, deviation 3.16
RATE = [50.0, 52.0, 48.0, 51.0, 49.0]
LANE = {
    "workload": {
        "name": "chat",
        "prompt_tokens": {"kind": "fixed", "tokens": 60},
        "output_tokens": {"kind": "fixed", "tokens": 12},
        "arrival": {"kind": "concurrency", "steps": [1, 4]},
        "requests": 60,
    },
    "ceilings": {"ttft_p95_ms": 130},
}


def suite_of(cases: int = 69, tag: str = "facts") -> Suite:
    one = {"tags": [tag], "checks": [{"kind": "contains", "all_of": ["yes"]}]}
    asked = [{"role": "user", "content": "Say yes."}]
    return Suite.model_validate(
        {
            "name": "demo",
            "owner": "x",
            "description": "x",
            "model": "m",
            "reference": {"spec": "m/t-fp16", "note": "x"},
            "sampling": {"temperature": 0, "top_p": 1, "seed": 1, "max_tokens": 8},
            "cases": [{"id": f"c{n}", "messages": asked, **one} for n in range(cases)],
        }
    )


SUITE = suite_of()


def policy(**bars) -> GatePolicy:
    load = {"requests": 60, "concurrency": 2, "output_tokens": 8}
    fields = {"suite": "demo", "quality": {"min_score": 0.9}, "performance": {**load, **bars}}
    return GatePolicy.model_validate(fields)


def calibrated(
    wanted: GatePolicy,
    values: dict[str, list[float]] | None = None,
    rates: ErrorRates = ErrorRates(),  # noqa: B008
    suite: Suite = SUITE,
    **performance,
) -> GateCalibration:
    measured = {f"performance.{name}": found for name, found in performance.items()}
    measured |= values or {}
    bars = evidence(measured, bars_of(wanted, suite, {}), rates, WorthCatching())
    parts = {one.part for one in bars.values()}
    basis = basis_of(wanted, suite, {})
    return GateCalibration(
        engine=Digest.of(b"good"),
        at=datetime(2026, 3, 1, tzinfo=UTC),
        rates=rates,
        runs=10,
        basis={part: digest for part, digest in basis.items() if part in parts},
        bars=bars,
    )


def told(wanted: GatePolicy, known: GateCalibration, suite: Suite = SUITE) -> list[str]:
    return warnings("core", bars_of(wanted, suite, {}), basis_of(wanted, suite, {}), known)


def test_mean_deviation_and_n_stand_beside_the_bar():
    wanted = policy(max_ttft_p95_ms=150)
    one = calibrated(wanted, max_ttft_p95_ms=TTFT).bars["performance.max_ttft_p95_ms"]
    assert (one.bar, one.mean, one.deviation, one.n) == (150, 100.0, 3.1623, 5)


def test_a_proposed_bar_lies_on_the_side_that_keeps_good_engines_in():
    wanted = policy(max_ttft_p95_ms=150)
    bars = calibrated(wanted, max_ttft_p95_ms=TTFT, min_output_tokens_per_s=RATE).bars
    assert bars["performance.max_ttft_p95_ms"].proposed > 104
    assert bars["performance.min_output_tokens_per_s"].proposed < 48
    assert bars["performance.min_output_tokens_per_s"].bar is None


def test_proposed_bars_keep_the_stated_error_rates():
    draw = random.Random(5)
    rates = ErrorRates(false_alarm=0.05, miss=0.05)
    bars = bars_of(policy(max_ttft_p95_ms=150), suite_of(1), {})
    missed = caught = 0
    for _ in range(2000):
        seen = [draw.gauss(100, 4) for _ in range(8)]
        values = {"performance.max_ttft_p95_ms": seen}
        one = evidence(values, bars, rates, WorthCatching())["performance.max_ttft_p95_ms"]
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
    found = told(wanted, calibrated(wanted, max_ttft_p95_ms=TTFT))
    assert [said in text for text in found] == ([True] if said else [])
    assert all(f"max_ttft_p95_ms {bar}, measured 100 ± 3.1623 (n 5)" in text for text in found)


@pytest.mark.parametrize(("bar", "said"), [(49, "by chance"), (44, None), (20, "catastrophe")])
def test_for_throughput_the_other_side_counts(bar, said):
    wanted = policy(min_output_tokens_per_s=bar)
    found = told(wanted, calibrated(wanted, min_output_tokens_per_s=RATE))
    assert [said in text for text in found] == ([True] if said else [])


def test_a_bar_that_was_moved_since_is_judged_where_it_stands_now():
    before, now = policy(max_ttft_p95_ms=112), policy(max_ttft_p95_ms=101)
    [text] = told(now, calibrated(before, max_ttft_p95_ms=TTFT))
    assert "max_ttft_p95_ms 101" in text


def test_a_calibration_under_another_load_says_nothing_of_the_bars():
    known = calibrated(policy(max_ttft_p95_ms=112), max_ttft_p95_ms=TTFT)
    [text] = told(policy(max_ttft_p95_ms=112, prompt_words=500), known)
    assert "performance was calibrated on something else" in text
    assert "enginectl calibrate core" in text


def test_gates_of_one_suite_share_a_file_for_each_class_of_hosts(tmp_path):
    one = calibrated(policy(max_ttft_p95_ms=112), max_ttft_p95_ms=TTFT)
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
        keep(
            tmp_path, "host", "core", calibrated(policy(max_ttft_p95_ms=112), max_ttft_p95_ms=TTFT)
        )
    assert path.read_text() == "{"


def test_a_host_class_makes_a_file_name_on_every_system():
    assert file_name("NVIDIA H200, 8×, ÄÖ/..") == "nvidia-h200-8.json"


def test_runs_that_are_alike_leave_room_for_the_cases_that_so_few_runs_cannot_speak_for():
    """Ten equal runs bound flips by 0.3 a run; more than two come in under one run of 100."""
    wanted = policy(max_ttft_p95_ms=150)
    one = calibrated(wanted, {"quality.min_score": [1.0] * 10}).bars["quality.min_score"]
    assert (one.mean, one.deviation, one.n) == (1.0, 0.0, 10)
    assert one.proposed == 0.971  # 67 of 69
    assert lost_by_chance(10, 0.01) == 2
    assert lost_by_chance(3, 0.01) == 4
    assert lost_by_chance(1000, 0.01) == 0


def test_what_a_score_catches_follows_from_its_cases_and_so_does_how_many_it_takes():
    wanted = policy(max_ttft_p95_ms=150)
    one = calibrated(wanted, {"quality.min_score": [1.0] * 10}).bars["quality.min_score"]
    assert 0.08 < one.catches < 0.1
    assert lost_at_most(2, 69, one.catches) == pytest.approx(0.05, abs=0.001)
    assert one.catches_now > one.catches  # 0.9 lets six be lost
    assert lost_at_most(6, 69, one.catches_now) == pytest.approx(0.05, abs=0.001)
    assert one.needs == cases_needed(2, 0.05, 0.05)
    assert lost_at_most(2, one.needs, 0.05) <= 0.05 < lost_at_most(2, one.needs - 1, 0.05)


def test_the_smallest_change_says_how_many_requests_it_takes():
    wanted = policy(max_ttft_p95_ms=112)
    one = calibrated(wanted, max_ttft_p95_ms=TTFT).bars["performance.max_ttft_p95_ms"]
    assert one.needs == -(-60 * one.catches**2 // 0.1**2)
    assert one.of == 60


@pytest.mark.parametrize(
    ("bar", "said"),
    [(1.0, "not one case may be lost"), (0.97, None), (0.2, "only the loss of 8"), (0.95, None)],
)
def test_bars_on_scores_that_fail_by_chance_or_hardly_ever_are_warned_of(bar, said):
    wanted = policy(max_ttft_p95_ms=150).model_copy(
        update={"quality": policy(max_ttft_p95_ms=1).quality.model_copy(update={"min_score": bar})}
    )
    found = told(wanted, calibrated(wanted, {"quality.min_score": [1.0] * 10}))
    assert [said in text for text in found] == ([True] if said else [])


def test_a_score_below_its_bar_is_warned_of_with_the_bar_that_would_do():
    wanted = policy(max_ttft_p95_ms=150)
    [text] = told(wanted, calibrated(wanted, {"quality.min_score": [0.88, 0.9, 0.89, 0.9]}))
    assert "a good engine fails by chance; " in text
    assert "would do" in text


def test_cases_of_unequal_weight_count_as_fewer_and_leave_more_room():
    quality = {"min_score": 0.9, "tag_weights": {"json": 10}}
    heavy = GatePolicy.model_validate({"suite": "demo", "quality": quality})
    asked = suite_of(60).cases
    marked = [case.model_copy(update={"tags": ("json",)}) for case in asked[:6]]
    mixed = SUITE.model_copy(update={"cases": (*marked, *asked[6:])})
    one = calibrated(heavy, {"quality.min_score": [1.0] * 10}, suite=mixed)
    assert one.bars["quality.min_score"].proposed == 0.899  # 114² / 654: as 19.9 cases


def test_every_step_of_a_lane_has_its_own_evidence_and_the_bar_of_the_lane():
    wanted = GatePolicy.model_validate(
        {"suite": "demo", "quality": {"min_score": 0.9}, "lanes": {"chat": LANE}}
    )
    names = [bar.name for bar in bars_of(wanted, SUITE, {}) if bar.part == "lanes.chat"]
    assert names == ["lanes.chat.ceilings.ttft_p95_ms at 1", "lanes.chat.ceilings.ttft_p95_ms at 4"]
    slow = [value * 1.27 for value in TTFT]
    known = calibrated(wanted, {names[0]: TTFT, names[1]: slow})
    first, second = told(wanted, known)
    assert "at 1 130" in first
    assert "only a catastrophe" in first
    assert "at 4 130" in second
    assert "by chance" in second


def test_where_no_run_differs_from_a_parent_chance_plays_no_part_and_no_bar_is_made_up():
    wanted = GatePolicy.model_validate(
        {
            "suite": "demo",
            "quality": {"min_score": 0.9},
            "parity": {"parent": ["a", "b"], "max_kl": 0.02, "min_top1_agreement": 0.96},
        }
    )
    values = {"parity.max_kl with a": [0.002] * 5, "parity.max_kl with b": [0.03] * 5}
    known = calibrated(wanted, values)
    one = known.bars["parity.max_kl with a"]
    assert (one.mean, one.proposed, one.catches, one.needs) == (0.002, None, None, None)
    [text] = told(wanted, known)
    assert "max_kl with b 0.02, measured 0.03" in text


def test_a_suite_with_other_cases_makes_quality_stale_and_leaves_speed_as_it_is():
    wanted = policy(max_ttft_p95_ms=108)
    values = {"quality.min_score": [1.0] * 5, "performance.max_ttft_p95_ms": TTFT}
    known = calibrated(wanted, values)
    assert told(wanted, known) == []
    [text] = told(wanted, known, suite_of(70))
    assert "quality was calibrated on something else" in text


def test_parts_that_were_measured_before_on_the_same_engine_are_kept_beside_the_new(tmp_path):
    wanted = policy(max_ttft_p95_ms=112)
    answers = calibrated(wanted, {"quality.min_score": [1.0] * 5})
    speed = calibrated(wanted, max_ttft_p95_ms=TTFT)
    keep(tmp_path, "host", "core", answers)
    keep(tmp_path, "host", "core", speed)
    both = read_calibrations(tmp_path)[0].gates["core"]
    assert set(both.bars) == {"quality.min_score", "performance.max_ttft_p95_ms"}
    assert set(both.basis) == {"quality", "performance"}
    other = speed.model_copy(update={"engine": Digest.of(b"other")})
    keep(tmp_path, "host", "core", other)
    assert read_calibrations(tmp_path)[0].gates["core"] == other


def test_a_rate_cannot_fall_by_more_than_all_of_it():
    known = calibrated(
        policy(max_ttft_p95_ms=1, min_output_tokens_per_s=0.1), min_output_tokens_per_s=RATE
    )
    assert known.bars["performance.min_output_tokens_per_s"].catches_now == 1.0


def test_what_a_case_once_answered_is_no_part_of_what_is_measured():
    wanted = policy(max_ttft_p95_ms=112)
    answer = Recorded(text="yes", agreement=1.0, n=1)
    cases = tuple(case.model_copy(update={"recorded": answer}) for case in SUITE.cases)
    recorded = SUITE.model_copy(update={"cases": cases})
    assert basis_of(wanted, recorded, {}) == basis_of(wanted, SUITE, {})


def test_a_calibration_read_back_is_what_was_kept(tmp_path):
    one = calibrated(policy(max_ttft_p95_ms=112), {"quality.min_score": [1.0] * 3})
    keep(tmp_path, "host", "core", one)
    assert read_calibrations(tmp_path)[0].gates["core"] == one
