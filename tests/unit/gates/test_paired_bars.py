"""`paired:` of a gate in channels.yaml, and what its digest covers."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from engine_pipeline.gates.paired_bars import PairedBars
from engine_pipeline.gates.policy import GatePolicy

PLAIN = {"suite": "demo", "quality": {"min_score": 0.9}}


@pytest.mark.parametrize("written", ["10%", "10 %", "10.0%", 0.1])
def test_a_share_is_written_in_per_cent_or_as_a_number(written):
    assert PairedBars(against="prod", smallest_change=written).smallest_change == 0.1


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"smallest_change": "ten"}, "smallest_change"),
        ({"smallest_change": "0.5%"}, "smallest_change"),
        ({"rounds": 5}, "rounds"),
        ({"rounds": 12, "max_rounds": 8}, "max_rounds 8 is less than rounds 12"),
        ({"requests": 8, "concurrency": 9}, "requests 8 cannot keep 9 in flight"),
        ({"false_alarm": 0}, "false_alarm"),
        ({"min_output_tokens_per_s": 4}, "min_output_tokens_per_s"),
    ],
)
def test_what_cannot_decide_anything_is_refused_by_name(changes, named):
    with pytest.raises(ValidationError, match=named):
        PairedBars.model_validate({"against": "prod", **changes})


def test_verdicts_are_tried_after_twice_as_many_rounds_each_time():
    assert PairedBars(against="prod").looks == (6, 12, 24, 48, 96)
    assert PairedBars(against="prod", rounds=6, max_rounds=20).looks == (6, 12, 20)
    assert PairedBars(against="prod", rounds=8, max_rounds=8).looks == (8,)


def test_the_policys_digest_covers_every_paired_bar():
    paired = GatePolicy.model_validate({**PLAIN, "paired": {"against": "prod"}})
    others = [
        {"against": "staging"},
        {"against": "prod", "smallest_change": "20%"},
        {"against": "prod", "smallest_change_p95": "30%"},
        {"against": "prod", "rounds": 7},
        {"against": "prod", "miss": 0.1},
        {"against": "prod", "requests": 30},
    ]
    digests = {paired.digest, GatePolicy.model_validate(PLAIN).digest}
    for other in others:
        digests.add(GatePolicy.model_validate({**PLAIN, "paired": other}).digest)
    assert len(digests) == 2 + len(others)


def test_a_policy_without_a_comparison_has_the_digest_it_had_before_there_were_any():
    assert str(GatePolicy.model_validate(PLAIN).digest) == PLAIN_DIGEST


# Taken from the version of this package before `paired`.
PLAIN_DIGEST = "sha256:bec10a28899a122448bb3453bde126ef2d885d92a513c99b0d50961adef93421"
