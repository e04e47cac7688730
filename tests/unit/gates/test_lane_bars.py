"""The bars of a lane: what they ask, what they refuse, and that old policies keep their digest."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from engine_pipeline.gates.lane_bars import LaneBars, Slo
from engine_pipeline.gates.policy import GatePolicy

WORKLOAD = {
    "name": "w",
    "prompt_tokens": {"kind": "fixed", "tokens": 20},
    "output_tokens": {"kind": "fixed", "tokens": 4},
    "arrival": {"kind": "poisson", "rate_per_s": 5},
    "requests": 10,
}
DIGEST = "sha256:" + "a" * 64


def bars(**changes: Any) -> LaneBars:
    return LaneBars.model_validate(
        {"workload": WORKLOAD, "ceilings": {"ttft_p95_ms": 100}, **changes}
    )


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"workload": None}, "either workload or workload_file"),
        (
            {"workload_file": {"file": "w.yaml", "digest": DIGEST}},
            "either workload or workload_file",
        ),
        ({"ceilings": {"ttft_p96_ms": 1}}, "no metric ttft_p96_ms"),
        ({"ceilings": {"ttft_p95_ms": 0}}, "greater than 0"),
        ({"ceilings": {}}, "throughput alone decides nothing"),
        ({"ceilings": {}, "min_output_tokens_per_s": 5}, "throughput alone decides nothing"),
        ({"slo": {"max_ttft_ms": 5}}, "go together"),
        ({"min_good_share": 0.9}, "go together"),
        ({"slo": {}, "min_good_share": 0.9}, "asks nothing"),
        ({"slo": {"max_ttft_ms": 5}, "min_good_share": 1.0}, "less than 1"),
    ],
)
def test_bars_that_decide_nothing_are_refused(changes, says):
    with pytest.raises(ValidationError, match=says):
        bars(**changes)


@pytest.mark.parametrize("file", ["/etc/passwd", "../w.yaml", "a/../b", "a//b", "a\\b", "./a"])
def test_a_pinned_file_stays_below_the_policy(file):
    with pytest.raises(ValidationError, match="no plain path"):
        bars(workload=None, workload_file={"file": file, "digest": DIGEST})


def policy(**changes: Any) -> GatePolicy:
    return GatePolicy.model_validate({"suite": "s", "quality": {"min_score": 0.9}, **changes})


def test_a_policy_without_lanes_keeps_the_digest_it_had_before_there_were_lanes():
    known = "sha256:bb2e2e0d8c31ef8cee5960f402006e49883cded41c8ffa4a27a7f5ccbaebb0c4"
    assert policy(lanes=None).digest == policy().digest
    assert str(policy().digest) == known


def test_every_word_of_a_lane_is_part_of_the_policy():
    lane = {"workload": WORKLOAD, "ceilings": {"ttft_p95_ms": 100}}
    one = policy(lanes={"interactive": lane})
    digests = {
        one.digest,
        policy().digest,
        policy(lanes={"batch": lane}).digest,
        policy(lanes={"interactive": {**lane, "max_late_share": "2%"}}).digest,
        policy(lanes={"interactive": {**lane, "workload": {**WORKLOAD, "seed": 3}}}).digest,
    }
    assert len(digests) == 5
    assert GatePolicy.model_validate_json(one.model_dump_json()) == one


def test_an_slo_says_what_it_asks():
    assert Slo(max_ttft_ms=500, max_tpot_ms=50).words() == "TTFT ≤ 500 ms, TPOT ≤ 50 ms"
