"""Gate policies: bars that cannot be missed are refused, and the digest covers every bar."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from engine_pipeline.gates.policy import GatePolicy, check_fits
from engine_pipeline.gates.suite import Suite
from engine_registry.errors import InvalidInput

SPEED = {"requests": 60, "concurrency": 2, "output_tokens": 16, "max_ttft_p95_ms": 500}


def policy(**changes: Any) -> GatePolicy:
    return GatePolicy.model_validate(
        {"suite": "demo", "quality": {"min_score": 0.9}, "performance": SPEED, **changes}
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"quality": {}},
        {"quality": {"min_score": 0}},
        {"quality": {"min_score": 1.1}},
        {"quality": {"min_score": 0.9, "min_tag_score": {"facts": 0}}},
        {"quality": {"min_score": 0.9, "must_cases": "some"}},
        {"performance": {**SPEED, "max_ttft_p95_ms": None}},
        {"performance": {**SPEED, "max_ttft_p95_ms": 0}},
        {"performance": {**SPEED, "max_ttft_p95_ms": float("inf")}},
        {"performance": {**SPEED, "requests": 1}},
        {"performance": {**SPEED, "warmup_requests": 0}},
        {"performance": {**SPEED, "output_tokens": 1}},
        {"concurrency": 0},
        {"timeout_s": 0},
        {"unknown": 1},
    ],
)
def test_a_bar_that_cannot_be_missed_or_a_load_that_cannot_be_made_is_refused(changes):
    with pytest.raises(ValidationError):
        policy(**changes)


@pytest.mark.parametrize(
    "changed",
    [
        policy(quality={"min_score": 0.91}),
        policy(quality={"min_score": 0.9, "min_tag_score": {"facts": 0.5}}),
        policy(performance=None),
        policy(performance={**SPEED, "max_ttft_p95_ms": 501}),
        policy(performance={**SPEED, "concurrency": 1}),
        policy(concurrency=2),
        policy(timeout_s=60),
    ],
)
def test_every_bar_is_in_the_digest(changed):
    assert changed.digest != policy().digest
    assert policy().digest == policy().digest


def suite(name: str = "demo") -> Suite:
    return Suite.model_validate(
        {
            "name": name,
            "owner": "x",
            "description": "x",
            "model": "m",
            "reference": {"spec": "m/t-fp16", "note": "x"},
            "sampling": {"temperature": 0, "top_p": 1, "seed": 1, "max_tokens": 8},
            "cases": [
                {
                    "id": "a",
                    "tags": ["facts"],
                    "messages": [{"role": "user", "content": "x"}],
                    "checks": [{"kind": "contains", "all_of": ["x"]}],
                }
            ],
        }
    )


def test_a_policy_for_another_suite_is_refused():
    check_fits(policy(), suite())
    with pytest.raises(InvalidInput, match="wants suite demo, was given other"):
        check_fits(policy(), suite("other"))


def test_a_bar_on_a_tag_that_no_case_has_is_refused():
    fitting = policy(quality={"min_score": 0.9, "min_tag_score": {"facts": 0.5}})
    check_fits(fitting, suite())
    lost = policy(quality={"min_score": 0.9, "min_tag_score": {"fact": 0.5}})
    with pytest.raises(InvalidInput, match="no case with tag fact .its tags: facts."):
        check_fits(lost, suite())


def test_throughput_alone_is_no_bar_that_an_engine_could_pass():
    load = {"requests": 60, "concurrency": 2, "output_tokens": 8, "min_output_tokens_per_s": 5}
    with pytest.raises(InvalidInput, match="throughput alone") as caught:
        check_fits(policy(performance=load), suite())
    assert caught.value.name == "gate-throughput-alone"
    check_fits(policy(performance={**load, "max_tpot_p95_ms": 90}), suite())
    check_fits(policy(performance=load, paired={"against": "prod"}), suite())
