"""Promotion, rollback and what stands around them, through the real command line."""

from __future__ import annotations

import pytest

from engine_pipeline.gates.outcome import Outcome
from engine_registry.digest import Digest
from engine_registry.refs import ChannelRef

STAGING = "tiny/cpu-x86-64-v3/staging"
PROD = "tiny/cpu-x86-64-v3/prod"


def promote_all_the_way(project, release) -> None:
    for channel in ("staging", "prod"):
        assert project.run("promote", release.name, "--to", channel).code == 0


def test_a_judged_release_goes_through_staging_to_prod(project):
    release = project.release("one")
    promote_all_the_way(project, release)
    status = project.run("status", as_json=True).json
    live = {c["channel"]: c["release"]["number"] for c in status["channels"]}
    assert live == {STAGING: 1, PROD: 1}


@pytest.mark.parametrize(
    ("outcome", "then"),
    [
        (None, "enginectl gate {engine}"),
        (Outcome.FAILED, "enginectl gate {engine}"),
        (Outcome.PASSED, "enginectl promote tiny/cpu-x86-64-v3:1 --to staging"),
    ],
)
def test_a_release_says_what_brings_it_on(project, monkeypatch, outcome, then):
    """Where the first channel asks for gates, a release that none passed is judged first."""
    release = project.release("one", outcome)
    evidence = (Digest.of(b"report"),) if outcome is Outcome.PASSED else ()
    cut = release.model_copy(
        update={"content": release.content.model_copy(update={"evidence": evidence})}
    )
    monkeypatch.setattr("engine_pipeline.promote.release.cut_release", lambda *_: cut)
    ran = project.run("release", str(release.content.engine))
    assert ran.code == 0, ran.err
    assert f"next           {then.format(engine=release.content.engine.short)}\n" in ran.out


def test_promoting_what_is_live_already_changes_nothing(project):
    release = project.release("one")
    promote_all_the_way(project, release)
    again = project.run("promote", release.name, "--to", "prod", as_json=True)
    assert again.code == 0
    assert again.json["changed"] is False
    assert again.json["state"]["number"] == 1


def test_prod_takes_only_what_was_live_on_staging(project):
    refused = project.run("promote", project.release("one").name, "--to", "prod")
    assert refused.code == 5
    assert "error[rule-upstream]" in refused.err
    assert "enginectl promote tiny/cpu-x86-64-v3:1 --to staging" in refused.err


@pytest.mark.parametrize(
    ("outcome", "code", "reference"),
    [
        (None, 5, "rule-gates"),
        (Outcome.FAILED, 3, "rule-gates"),
        (Outcome.ERRORED, 4, "rule-gates"),
        (Outcome.INCONCLUSIVE, 4, "rule-gates"),
    ],
)
def test_a_release_reaches_a_channel_only_with_passed_reports(project, outcome, code, reference):
    refused = project.run("promote", project.release("one", outcome).name, "--to", "staging")
    assert (refused.code, reference in refused.err) == (code, True)
    assert project.registry.channels.state(ChannelRef.parse(STAGING)).number == 0


def test_changing_a_bar_makes_old_reports_no_evidence(project):
    release = project.release("one")
    text = (project.root / "channels.yaml").read_text()
    (project.root / "channels.yaml").write_text(text.replace("0.9", "0.91"))
    refused = project.run("promote", release.name, "--to", "staging")
    assert refused.code == 5
    assert "only under an older policy or suite" in refused.err


def test_rollback_goes_to_the_last_good_release_and_sets_a_hold(project):
    first, second = project.release("one"), project.release("two")
    promote_all_the_way(project, first)
    promote_all_the_way(project, second)
    back = project.run("rollback", PROD, "--reason", "second is slow", as_json=True)
    assert back.code == 0
    state = back.json["state"]
    assert state["history"][0]["live"]["number"] == 1
    assert state["hold"]["reason"] == "second is slow"
    refused = project.run("promote", second.name, "--to", "prod")
    assert refused.code == 5
    assert "on hold by promoter: second is slow" in refused.err
    assert "marked bad" in refused.err


def test_a_second_rollback_never_returns_to_what_was_rolled_back(project):
    releases = [project.release(name) for name in ("one", "two", "three")]
    for release in releases:
        promote_all_the_way(project, release)
    assert project.run("rollback", PROD, "--reason", "three bad").code == 0
    again = project.run("rollback", PROD, "--reason", "two bad as well", as_json=True)
    assert again.json["state"]["history"][0]["live"]["number"] == 1
    empty = project.run("rollback", PROD, "--reason", "and one")
    assert empty.code == 8
    assert "marked bad: 3, 2" in empty.err


def test_rolling_back_past_a_release_marks_it_bad_too(project):
    for name in ("one", "two", "three"):
        promote_all_the_way(project, project.release(name))
    assert project.run("rollback", PROD, "--to", "1", "--reason", "both bad").code == 0
    state = project.registry.channels.state(ChannelRef.parse(PROD))
    assert sorted(mark.number for mark in state.bad) == [2, 3]


def test_a_report_made_with_other_server_settings_is_no_evidence(project):
    release = project.release("one", outcome=None)
    engine, config = release.content.engine, dict(release.content.runtime_config)
    project.report(engine, Outcome.PASSED, runtime_config=config | {"slots": 64})
    refused = project.run("promote", release.name, "--to", "staging")
    assert refused.code == 5
    assert "with other settings of its server" in refused.err
    project.report(engine, Outcome.PASSED, runtime_config=config, hours_ago=2)
    assert project.run("promote", release.name, "--to", "staging").code == 0


def test_a_policy_that_somebody_broke_keeps_nobody_from_rolling_back(project):
    first, second = project.release("one"), project.release("two")
    promote_all_the_way(project, first)
    promote_all_the_way(project, second)
    (project.root / "channels.yaml").write_text("gates: [")
    back = project.run("rollback", PROD, "--reason", "second is slow")
    assert back.code == 0
    assert "nodes are not asked" in back.err
    (project.root / "channels.yaml").unlink()
    assert (
        project.run("rollback", PROD, "--to", "2", "--override", "bad", "--reason", "x").code == 0
    )


def test_rollback_needs_a_reason(project):
    refused = project.run("rollback", PROD)
    assert refused.code == 2
    assert "--reason" in refused.err


def test_rollback_to_an_engine_digest_finds_its_release(project):
    first, second = project.release("one"), project.release("two")
    promote_all_the_way(project, first)
    promote_all_the_way(project, second)
    target = first.content.engine.hex[:10]
    back = project.run("rollback", PROD, "--to", target, "--reason", "try", as_json=True)
    assert back.json["state"]["history"][0]["live"]["number"] == 1


def test_rollback_to_a_release_that_was_never_live_here_is_refused(project):
    first, second = project.release("one"), project.release("two")
    promote_all_the_way(project, first)
    refused = project.run("rollback", PROD, "--to", second.name, "--reason", "try")
    assert refused.code == 5
    assert "was never live" in refused.err


def flip(path, offset: int = 100) -> None:
    data = bytearray(path.read_bytes())
    data[min(offset, len(data) - 1)] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def test_a_flipped_byte_stops_promotion_and_rollback_with_exit_11(project):
    first, second = project.release("one"), project.release("two")
    promote_all_the_way(project, first)
    promote_all_the_way(project, second)
    engine = project.registry.engines.engine(first.content.engine)
    for layer in engine.manifest.layers:
        path = project.root / "engines/blobs/sha256" / layer.digest.hex
        good = path.read_bytes()
        flip(path)
        refused = project.run("rollback", PROD, "--reason", "second is slow")
        assert refused.code == 11, layer.title
        assert project.run("promote", first.name, "--to", "staging").code == 11
        assert project.run("verify").code == 11
        path.write_bytes(good)
    assert project.run("rollback", PROD, "--reason", "second is slow").code == 0


def test_a_missing_blob_stops_a_rollback_and_names_the_next_good_release(project):
    releases = [project.release(name) for name in ("one", "two", "three")]
    for release in releases:
        promote_all_the_way(project, release)
    engine = project.registry.engines.engine(releases[1].content.engine)
    (project.root / "engines/blobs/sha256" / engine.manifest.layers[0].digest.hex).unlink()
    refused = project.run("rollback", PROD, "--reason", "three is slow")
    assert refused.code == 8
    assert f"enginectl rollback {PROD} --to 1" in refused.err


def test_a_damaged_pointer_does_not_stop_a_rollback(project):
    first, second = project.release("one"), project.release("two")
    promote_all_the_way(project, first)
    promote_all_the_way(project, second)
    head = project.root / "engines/channels" / PROD / "head.json"
    flip(head)
    assert project.run("verify").code == 11
    assert project.run("rollback", PROD, "--reason", "second is slow").code == 0
    assert project.run("verify").code == 0


def test_a_freeze_stops_promotion_and_not_rollback(project):
    first, second = project.release("one"), project.release("two")
    promote_all_the_way(project, first)
    promote_all_the_way(project, second)
    assert project.run("freeze", PROD, "--reason", "incident", "--until", "2h").code == 0
    refused = project.run("promote", first.name, "--to", "prod")
    assert refused.code == 5
    assert "is frozen until" in refused.err
    assert project.run("rollback", PROD, "--reason", "second is slow").code == 0
    assert project.run("freeze", PROD, "--lift", "--reason", "over").code == 0
    assert project.run("hold", PROD, "--lift", "--reason", "over").code == 0
    state = project.registry.channels.state(ChannelRef.parse(PROD))
    assert (state.freeze, state.hold) == (None, None)


def test_an_approval_by_the_promoter_or_the_builder_does_not_count(project, monkeypatch):
    release = project.release("one")
    assert project.run("approve", release.name, "--on", "guarded").code == 0
    monkeypatch.setenv("ENGINECTL_ACTOR", "alice")  # who built the sample engines
    assert project.run("approve", release.name, "--on", "guarded").code == 0
    monkeypatch.setenv("ENGINECTL_ACTOR", "promoter")
    refused = project.run("promote", release.name, "--to", "guarded")
    assert refused.code == 5
    assert "0 of 1 approvals; not counted, built or promotes it: alice, promoter" in refused.err
    monkeypatch.setenv("ENGINECTL_ACTOR", "bob")
    assert project.run("approve", release.name, "--on", "guarded").code == 0
    monkeypatch.setenv("ENGINECTL_ACTOR", "promoter")
    assert project.run("promote", release.name, "--to", "guarded").code == 0


def test_a_yes_under_a_name_that_was_only_typed_does_not_count(project, monkeypatch):
    release = project.release("one")
    path = project.root / "channels.yaml"
    strict = path.read_text()
    path.write_text(
        strict.replace("approvals: 1}", "approvals: 1, approvals_proved_by: [claimed]}")
    )
    monkeypatch.setenv("ENGINECTL_ACTOR", "bob")
    assert project.run("approve", release.name, "--on", "proved").code == 0
    path.write_text(strict)  # and from now on it counts for nothing
    monkeypatch.delenv("ENGINECTL_ACTOR")
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("GITLAB_USER_LOGIN", "carol")
    refused = project.run("promote", release.name, "--to", "proved")
    assert refused.code == 5
    assert "0 of 1 approvals; not counted, not proved by github-oidc" in refused.err
    assert "bob" in refused.err
    monkeypatch.setenv("GITLAB_USER_LOGIN", "bob")  # the real one is not kept from saying yes
    assert project.run("approve", release.name, "--on", "proved").code == 0
    monkeypatch.setenv("GITLAB_USER_LOGIN", "carol")
    assert project.run("promote", release.name, "--to", "proved").code == 0


def test_who_promotes_under_a_made_up_name_cannot_use_approvals(project, monkeypatch):
    release = project.release("one")
    monkeypatch.delenv("ENGINECTL_ACTOR")
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("GITLAB_USER_LOGIN", "bob")
    assert project.run("approve", release.name, "--on", "proved").code == 0
    monkeypatch.setenv("ENGINECTL_ACTOR", "somebody-else")
    refused = project.run("promote", release.name, "--to", "proved")
    assert refused.code == 5
    assert "who promotes is somebody-else (claimed), want proof by" in refused.err


@pytest.mark.parametrize(
    "secret", ["hf_abcdefghijklmnopqrstuv", "https://host/file?sig=abcdef0123456789"]
)
def test_a_secret_in_a_reason_is_masked_before_it_is_recorded(project, secret):
    promote_all_the_way(project, project.release("one"))
    held = project.run("hold", PROD, "--reason", f"see {secret} first")
    assert held.code == 0
    assert "recorded as ***" in held.err
    recorded = project.run("history", PROD, as_json=True).out
    assert secret not in recorded
    assert "see " in recorded
    assert " first" in recorded
    stored = [p.read_text(errors="replace") for p in project.root.rglob("*.json")]
    assert stored
    assert not any(secret.rpartition("=")[2] in text for text in stored)


def test_an_ordinary_address_in_a_reason_is_recorded_as_it_is(project):
    promote_all_the_way(project, project.release("one"))
    address = "https://grafana.example/d/latency?orgId=1&from=now-1h"
    assert project.run("hold", PROD, "--reason", address).code == 0
    assert address in project.run("history", PROD, as_json=True).out


def test_whatwas_answers_from_the_log(project):
    first = project.release("one")
    promote_all_the_way(project, first)
    before = project.run("whatwas", PROD, "--at", "-1h", as_json=True).json
    now = project.run("whatwas", PROD, "--at", "0s", as_json=True).json
    assert before["release"] is None
    assert now["release"]["number"] == 1
    assert now["event"]["actor"]["name"] == "promoter"


def test_history_names_every_event_and_who_did_it(project):
    promote_all_the_way(project, project.release("one"))
    project.run("hold", PROD, "--reason", "look at it")
    events = project.run("history", PROD, as_json=True).json["events"]
    assert [e["change"]["kind"] for e in events] == ["promoted", "held"]
    assert events[1]["previous"] == events[0]["digest"]
    shown = project.run("history", PROD).out
    assert "look at it" in shown
    assert max(len(line) for line in shown.splitlines()) <= 100


def test_only_listed_rules_can_be_overridden_and_only_with_a_reason(project):
    release = project.release("one", None)
    promote = ("promote", release.name, "--to", "staging", "--override")
    gates = project.run(*promote, "gates", "--reason", "x")
    assert gates.code == 2
    silent = project.run(*promote, "bad")
    assert silent.code == 2
    assert "reason" in silent.err


def test_every_error_in_json_is_one_document_on_standard_output(project):
    failed = project.run("promote", "tiny/cpu-x86-64-v3:9", "--to", "prod", as_json=True)
    assert failed.code == 8
    assert failed.json["error"]["reference"] in {"release-missing", "registry-missing"}
    assert failed.json["error"]["exit_code"] == 8
    usage = project.run("promote", "--output", "json")
    assert usage.code == 2
    assert usage.json["error"]["reference"] == "usage"


def test_an_unknown_command_names_the_nearest_one(project):
    refused = project.run("rolback")
    assert refused.code == 2
    assert "did you mean rollback" in refused.err


@pytest.mark.parametrize(
    ("proved_by", "claimed", "says"),
    [
        ("", "mira", "mira (claimed) would not count on {}: want proof by github-oidc, ci-"),
        ("[github-oidc]", "", "bob (ci-environment) would not count on {}: want proof by github-"),
    ],
)
def test_a_yes_that_would_never_count_is_refused(project, monkeypatch, proved_by, claimed, says):
    monkeypatch.setenv("ENGINECTL_ACTOR", claimed)
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("GITLAB_USER_LOGIN", "bob")
    if proved_by:
        path = project.root / "channels.yaml"
        asks = f"approvals: 1, approvals_proved_by: {proved_by}}}"
        path.write_text(path.read_text().replace("approvals: 1}", asks))
    channel = "tiny/cpu-x86-64-v3/proved"
    refused = project.run("approve", project.release("one").name, "--on", "proved")
    assert refused.code == 5
    assert "error[approval-unproved]: approval by " + says.format(channel) in refused.err
    assert project.registry.channels.channels() == []


def test_a_yes_that_nobody_asks_for_is_not_recorded(project, monkeypatch):
    release = project.release("one")
    idle = project.run("approve", release.name, "--on", "staging")
    assert idle.out == f"unchanged {STAGING} asks for no approvals: nothing was recorded\n"
    monkeypatch.setenv("ENGINECTL_ACTOR", "bob")
    assert project.run("approve", release.name, "--on", "guarded").code == 0
    monkeypatch.setenv("ENGINECTL_ACTOR", "promoter")
    assert project.run("promote", release.name, "--to", "guarded").code == 0
    late = project.run("approve", release.name, "--on", "guarded", as_json=True)
    assert (late.code, late.json["changed"], late.json["state"]["number"]) == (0, False, 2)
    shown = project.run("approve", release.name, "--on", "guarded").out
    assert shown == f"unchanged {release.name} is live on guarded already: no approval is wanted\n"
