"""channels.yaml as values: what is refused, and what a policy's digest covers."""

from __future__ import annotations

from datetime import timedelta

import pytest
from pydantic import ValidationError

from engine_pipeline.promote.policy import ChannelPolicy, Policies, say_duration
from engine_registry.errors import InvalidInput, NotFound
from engine_registry.refs import ChannelRef, ProductRef

GATES = {"core": {"suite": "core", "quality": {"min_score": 0.9}}}


def policies(channels: dict, products: tuple[str, ...] = ("m/*",), gates: dict = GATES) -> Policies:
    return Policies.model_validate(
        {
            "schema_version": 1,
            "gates": gates,
            "policies": [{"products": products, "channels": channels}],
        }
    )


def test_a_channel_without_gates_is_refused():
    with pytest.raises(ValidationError, match="at least 1 item"):
        policies({"prod": {"gates": []}})


def test_a_channel_names_only_gates_that_exist():
    with pytest.raises(ValidationError, match="no gate speed; there are core"):
        policies({"prod": {"gates": ["core", "speed"]}})


def test_an_upstream_must_be_a_channel_of_the_same_policy():
    with pytest.raises(ValidationError, match="upstream staging is not one of prod"):
        policies({"prod": {"gates": ["core"], "upstream": "staging"}})


def test_upstreams_that_lead_in_a_circle_are_refused():
    circle = {
        "a": {"gates": ["core"], "upstream": "b"},
        "b": {"gates": ["core"], "upstream": "a"},
    }
    with pytest.raises(ValidationError, match="leads back to itself"):
        policies(circle)


def test_a_soak_without_an_upstream_is_refused():
    with pytest.raises(ValidationError, match="needs an upstream"):
        policies({"prod": {"gates": ["core"], "soak": "1h"}})


@pytest.mark.parametrize("text", ["", "1", "h", "-1h", "1.5h", "1 h", "1w", "９h", "1h30m"])
def test_a_duration_is_a_number_and_one_unit(text):
    with pytest.raises(ValidationError):
        ChannelPolicy.model_validate({"gates": ["core"], "evidence_max_age": text})


@pytest.mark.parametrize("text", ["90s", "30m", "12h", "7d", "0s", "61m"])
def test_a_duration_reads_back_as_written(text):
    policy = ChannelPolicy.model_validate({"gates": ["core"], "evidence_max_age": text})
    assert say_duration(policy.evidence_max_age) == text


def test_a_product_without_a_policy_may_go_nowhere():
    with pytest.raises(NotFound, match="no policy in channels.yaml covers other/cpu"):
        policies({"prod": {"gates": ["core"]}}).for_product(ProductRef("other", "cpu"))


def test_an_unknown_channel_is_named_with_the_known_ones():
    found = policies({"staging": {"gates": ["core"]}, "prod": {"gates": ["core"]}})
    with pytest.raises(InvalidInput, match="no channel 'live'; channels.yaml names staging, prod"):
        found.for_channel(ChannelRef.parse("m/cpu/live"))


def test_the_first_matching_policy_wins():
    both = Policies.model_validate(
        {
            "schema_version": 1,
            "gates": GATES,
            "policies": [
                {"products": ["m/gpu"], "channels": {"prod": {"gates": ["core"], "approvals": 2}}},
                {"products": ["m/*"], "channels": {"prod": {"gates": ["core"]}}},
            ],
        }
    )
    assert both.for_channel(ChannelRef.parse("m/gpu/prod")).approvals == 2
    assert both.for_channel(ChannelRef.parse("m/cpu/prod")).approvals == 0


def test_a_softer_policy_has_another_digest():
    hard = ChannelPolicy.model_validate({"gates": ["core"], "upstream": "s", "soak": "2h"})
    soft = hard.model_copy(update={"soak": timedelta(hours=1)})
    assert hard.digest != soft.digest
    assert hard.digest == ChannelPolicy.model_validate(hard.model_dump()).digest
