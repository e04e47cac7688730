"""When a deployment is refused, and what counts as a difference: rules over values."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from engine_pipeline.deploy.rules import decide_deployment, differences, refuse_deployment
from engine_pipeline.promote.findings import Finding
from engine_pipeline.targets.port import (
    Damage,
    Deployment,
    Fence,
    NothingRuns,
    Reading,
    Running,
)
from engine_registry.digest import Digest
from engine_registry.errors import Conflict, ExitCode, Incompatible, RefusedByPolicy
from engine_registry.record import Actor, Platform, Release, ReleaseContent

PROD = "tiny/cpu/prod"
AT = datetime(2026, 3, 1, tzinfo=UTC)
ALICE = Actor(name="alice", proved_by="os-user")


def digest(text: str) -> Digest:
    return Digest.of(text.encode())


def deployment(number: int = 7, event: int = 12, **changes: object) -> Deployment:
    content = ReleaseContent(
        engine=digest(f"engine {number}"),
        record=digest("record"),
        kind="llama-cpp",
        precision="int8",
        platform=Platform(sku="cpu"),
        tokenizer=digest("tokenizer"),
        serving_image="image",
    )
    release = Release(
        model="tiny", target="cpu", number=number, content=content, created_by=ALICE, created_at=AT
    )
    fields = {
        "channel": PROD,
        "event": event,
        "event_digest": digest(f"event {event}"),
        "release": release,
        "settings": digest("settings"),
        "actor": ALICE,
        "at": AT,
    }
    return Deployment.model_validate(fields | changes)


def fence(event: int, channel: str = PROD, text: str | None = None) -> Fence:
    return Fence(channel=channel, event=event, event_digest=digest(text or f"event {event}"))


def broken(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.rule for finding in findings if not finding.holds]


def decide(before: Fence | None, *, logged: str | None = None, rebind: bool = False, fit=()):
    return decide_deployment(
        deployment(),
        before,
        logged=digest(logged) if logged else None,
        fit=fit,
        rebind=rebind,
    )


def test_a_target_without_a_past_takes_anything_that_fits():
    assert decide(None) == ()


@pytest.mark.parametrize("event", [1, 11, 12])
def test_an_event_that_is_not_older_goes_through(event):
    assert not broken(decide(fence(event), logged=f"event {event}"))


def test_an_older_event_never_comes_back():
    findings = decide(fence(13), logged="event 13")
    assert broken(findings) == ["fence"]
    with pytest.raises(Conflict) as caught:
        refuse_deployment("directory:/srv", findings)
    assert caught.value.name == "rule-fence"
    assert "event 13" in caught.value.message
    assert "event 12" in caught.value.message


@pytest.mark.parametrize("logged", [None, "event 9 of another registry"])
def test_a_target_of_another_registry_is_refused_with_both_digests(logged):
    findings = decide(fence(9), logged=logged)
    assert broken(findings) == ["log"]
    with pytest.raises(Conflict, match=digest("event 9").short) as caught:
        refuse_deployment("directory:/srv", findings)
    assert (digest(logged).short if logged else "no such event") in caught.value.message


def test_a_target_that_follows_another_channel_is_refused_by_both_names():
    findings = decide(fence(3, "tiny/cpu/staging"))
    assert broken(findings) == ["follows"]
    with pytest.raises(RefusedByPolicy, match="tiny/cpu/staging") as caught:
        refuse_deployment("directory:/srv", findings)
    assert PROD in caught.value.message
    assert "--rebind" in caught.value.hint


@pytest.mark.parametrize("before", [fence(3, "tiny/cpu/staging"), fence(99), fence(9, text="x")])
def test_rebinding_lets_a_target_follow_another_log(before):
    assert decide(before, rebind=True) == ()


def test_every_broken_rule_is_named_and_the_first_one_decides():
    misfit = Finding(
        rule="sm",
        holds=False,
        says="built for SM 90, the node has SM 89",
        hint="choose",
        exit_code=ExitCode.INCOMPATIBLE,
    )
    findings = decide(fence(13), logged="event 13", fit=(misfit,))
    with pytest.raises(Conflict, match="also: built for SM 90"):
        refuse_deployment("triton", findings)
    with pytest.raises(Incompatible, match="SM 89"):
        refuse_deployment("triton", (misfit,))


def test_rebinding_does_not_make_an_engine_fit():
    misfit = Finding(rule="sku", holds=False, says="no", exit_code=ExitCode.INCOMPATIBLE)
    assert broken(decide(fence(3, "a/b/c"), rebind=True, fit=(misfit,))) == ["sku"]


def reading(found: Deployment, **parts: object) -> Reading:
    return Reading(serves=Running(deployment=found, generation=3, **parts), fence=None)


def test_the_same_release_is_no_difference_whoever_deployed_it_when():
    bob = Actor(name="bob", proved_by="os-user")
    later = datetime(2026, 4, 1, tzinfo=UTC)
    assert not differences(deployment(), reading(deployment(actor=bob, at=later)))


def test_a_later_event_with_the_same_release_is_no_difference():
    assert not differences(deployment(event=15), reading(deployment(event=12)))


def test_another_release_differs_in_number_document_and_engine():
    found = differences(deployment(7), reading(deployment(6)))
    assert [item.what for item in found] == ["release", "release document", "engine"]
    assert (found[0].channel, found[0].target) == ("tiny/cpu:7", "tiny/cpu:6")
    assert found[2].target == str(digest("engine 6"))


@pytest.mark.parametrize(
    ("changes", "what"),
    [({"channel": "tiny/cpu/staging"}, "channel"), ({"settings": digest("x")}, "target settings")],
)
def test_channel_and_settings_count(changes, what):
    assert [d.what for d in differences(deployment(), reading(deployment(**changes)))] == [what]


def test_nothing_running_is_a_difference_with_its_reason():
    found = differences(deployment(), Reading(serves=NothingRuns(reason="gone"), fence=None))
    assert [(d.what, d.target) for d in found] == [("deployment", "gone")]


def test_damage_and_disagreement_within_the_target_are_differences():
    found = differences(
        deployment(),
        reading(
            deployment(),
            apart=("the pointer is elsewhere",),
            damaged=(Damage(path="model.gguf", expected="a", found="b"),),
        ),
    )
    assert [(d.what, d.channel, d.target) for d in found] == [
        ("running", "tiny/cpu:7", "the pointer is elsewhere"),
        ("file model.gguf", "a", "b"),
    ]
