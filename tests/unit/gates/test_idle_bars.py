"""Bars that can hardly fail, or never pass, are told of before anything is measured."""

from __future__ import annotations

import pytest

from engine_pipeline.gates.idle_bars import idle_bars
from engine_pipeline.gates.policy import GatePolicy
from tests.unit.gates.test_calibration import LANE, suite_of

LOAD = {"requests": 60, "concurrency": 2, "output_tokens": 8, "max_ttft_p95_ms": 800}


def said(quality=None, cases: int = 20, **parts) -> list[str]:
    fields = {"suite": "demo", "quality": quality or {"min_score": 0.9}, **parts}
    return idle_bars("core", GatePolicy.model_validate(fields), suite_of(cases), {})


def test_bars_as_people_mean_them_are_not_warned_of():
    parity = {"parent": "p", "max_kl": 0.02, "max_real_divergences": 0.1, "max_tag_drop": 0.2}
    lane = LANE | {"slo": {"max_ttft_ms": 900}, "min_good_share": 0.9}
    quality = {"min_score": 0.9, "min_tag_score": {"facts": 0.6}}
    load = LOAD | {"max_tpot_p95_ms": 90, "min_output_tokens_per_s": 20}
    assert said(quality, parity=parity, lanes={"chat": lane}, performance=load) == []


@pytest.mark.parametrize(
    ("quality", "words"),
    [
        ({"min_score": 0.01}, "quality.min_score 0.01: can hardly fail: it does only where all 20"),
        ({"min_score": 0.1}, "fewer than 2 of 20 cases pass"),
        ({"min_score": 0.9, "min_tag_score": {"facts": 0.05}}, "min_tag_score.facts 0.05"),
    ],
)
def test_a_score_that_only_a_wreck_misses(quality, words):
    [text] = said(quality)
    assert words in text


@pytest.mark.parametrize(
    ("bar", "value"),
    [
        ("max_kl", 1000),
        ("max_real_divergences", 0.95),
        ("max_tag_drop", 0.95),
        ("min_top1_agreement", 0.3),
        ("min_prefix_agreement", 0.01),
    ],
)
def test_a_distance_from_a_parent_that_planted_faults_keep(bar, value):
    [text] = said(parity={"parent": "p", bar: value})
    assert f"parity.{bar} {value}: can hardly fail" in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"max_ttft_p95_ms": 99999999}, "max_ttft_p95_ms 99999999: can hardly fail: what takes"),
        ({"max_tpot_p95_ms": 20000}, "max_tpot_p95_ms 20000: can hardly fail"),
        ({"min_output_tokens_per_s": 0.1}, "still make 0.133 a second"),
        ({"requests": 12}, "can never pass: 12 requests prove no p95; 59 do"),
    ],
)
def test_a_bar_on_speed_that_a_timeout_comes_before_or_that_too_few_requests_prove(change, words):
    [text] = said(performance=LOAD | change)
    assert words in text


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ceilings": {"e2e_p95_ms": 120000}}, "lanes.chat.ceilings.e2e_p95_ms 120000"),
        ({"slo": {"max_ttft_ms": 1e6}, "min_good_share": 0.9}, "lanes.chat.slo 1000000: asks"),
        ({"slo": {"max_ttft_ms": 900}, "min_good_share": 0.05}, "nearly all requests may be bad"),
        (
            {"slo": {"max_ttft_ms": 900}, "min_good_share": 0.99},
            "can never pass: 60 requests prove at most 0.951; 299 do",
        ),
    ],
)
def test_a_bar_of_a_lane_that_decides_nothing(change, words):
    [text] = said(lanes={"chat": LANE | change})
    assert words in text
