"""Every promotion and rollback rule, one at a time, over plain values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.promote.findings import Candidate, Evidence, Wanted
from engine_pipeline.promote.policy import ChannelPolicy
from engine_pipeline.promote.rules import (
    decide_promotion,
    decide_rollback,
    longest_live,
    rollback_candidates,
)
from engine_registry.digest import Digest
from engine_registry.errors import ExitCode
from engine_registry.events import (
    Approval,
    BadMark,
    ChannelState,
    Freeze,
    Hold,
    Live,
    WasLive,
)
from engine_registry.record import Actor, Platform, Release, ReleaseContent

NOW = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)
BUILDER = Actor(name="builder", proved_by="os-user")
PROMOTER = Actor(name="promoter", proved_by="os-user")
WANTED = Wanted(policy=Digest.of(b"policy"), suite=Digest.of(b"suite"))


def live(number: int) -> Live:
    return Live(number=number, release=release(number).digest, engine=Digest.of(b"e%d" % number))


def release(number: int, sku: str = "cpu-x86-64-v3") -> Release:
    return Release(
        model="m",
        target="cpu-x86-64-v3",
        number=number,
        content=ReleaseContent(
            engine=Digest.of(b"e%d" % number),
            record=Digest.of(b"record"),
            kind="llama-cpp",
            precision="int8",
            platform=Platform(sku=sku),
            tokenizer=Digest.of(b"tokenizer"),
            serving_image="embedded:x==1",
        ),
        created_by=BUILDER,
        created_at=NOW,
    )


def candidate(number: int = 1, sku: str = "cpu-x86-64-v3") -> Candidate:
    made = release(number, sku)
    return Candidate(release=made, digest=made.digest, built_by=BUILDER)


def channel(name: str = "prod", **fields: object) -> ChannelState:
    return ChannelState.model_validate(
        {"model": "m", "target": "cpu-x86-64-v3", "channel": name, **fields}
    )


def was_live(*numbers_and_hours_ago: tuple[int, float]) -> tuple[WasLive, ...]:
    return tuple(
        WasLive(live=live(number), since=NOW - timedelta(hours=hours), event=9)
        for number, hours in numbers_and_hours_ago
    )


def report(
    outcome: Outcome = Outcome.PASSED,
    *,
    hours_ago: float = 1,
    gate: str = "core",
    wanted: Wanted = WANTED,
) -> Evidence:
    return Evidence(
        gate=gate,
        outcome=outcome,
        policy=wanted.policy,
        suite=wanted.suite,
        report=Digest.of(f"{outcome}{hours_ago}".encode()),
        at=NOW - timedelta(hours=hours_ago),
    )


def decide(**changes: object):
    arguments = {
        "candidate": candidate(),
        "state": channel(),
        "upstream": None,
        "policy": ChannelPolicy(gates=("core",)),
        "wanted": {"core": WANTED},
        "evidence": (report(),),
        "actor": PROMOTER,
        "now": NOW,
        **changes,
    }
    return decide_promotion(**arguments)


def broken(decision) -> list[str]:
    return [finding.rule for finding in decision.broken]


def test_a_release_with_a_fresh_passed_report_may_go_live():
    decision = decide()
    assert not decision.broken
    assert [f.rule for f in decision.findings] == [
        "freeze",
        "hold",
        "bad",
        "fit",
        "gates",
        "approvals",
    ]


def test_every_broken_rule_is_named_at_once_in_the_order_of_the_rules():
    freeze = Freeze(reason="incident", actor=PROMOTER, at=NOW, until=None)
    hold = Hold(reason="rolled back", actor=PROMOTER, at=NOW)
    decision = decide(
        state=channel(freeze=freeze, hold=hold, bad=(BadMark(number=1, reason="slow"),)),
        candidate=candidate(sku="cpu-x86-64-v4"),
        evidence=(),
        policy=ChannelPolicy(gates=("core",), approvals=1),
    )
    assert broken(decision) == ["freeze", "hold", "bad", "fit", "gates", "approvals"]


@pytest.mark.parametrize(
    ("until", "stops"),
    [(None, True), (NOW + timedelta(seconds=1), True), (NOW, False), (NOW - timedelta(1), False)],
)
def test_a_freeze_stops_promotion_until_it_expires(until, stops):
    freeze = Freeze(reason="incident", actor=PROMOTER, at=NOW - timedelta(2), until=until)
    assert ("freeze" in broken(decide(state=channel(freeze=freeze)))) is stops


def test_an_engine_for_another_sku_is_incompatible_and_names_both():
    decision = decide(candidate=candidate(sku="cpu-x86-64-v4"))
    (finding,) = decision.broken
    assert finding.exit_code is ExitCode.INCOMPATIBLE
    assert "cpu-x86-64-v4" in finding.says
    assert "cpu-x86-64-v3" in finding.says


@pytest.mark.parametrize(
    ("evidence", "code"),
    [
        ((), ExitCode.POLICY),
        ((report(Outcome.FAILED),), ExitCode.REFUSED),
        ((report(Outcome.ERRORED),), ExitCode.COULD_NOT_JUDGE),
        ((report(Outcome.INCONCLUSIVE),), ExitCode.COULD_NOT_JUDGE),
        ((report(Outcome.SKIPPED),), ExitCode.COULD_NOT_JUDGE),
        ((report(hours_ago=24 * 31),), ExitCode.POLICY),
        ((report(gate="other"),), ExitCode.POLICY),
        ((report(wanted=Wanted(policy=Digest.of(b"old"), suite=WANTED.suite)),), ExitCode.POLICY),
        ((report(wanted=Wanted(policy=WANTED.policy, suite=Digest.of(b"old"))),), ExitCode.POLICY),
    ],
)
def test_only_a_fresh_passed_report_under_todays_policy_and_suite_counts(evidence, code):
    (finding,) = decide(evidence=evidence).broken
    assert finding.rule == "gates"
    assert finding.exit_code is code


def test_the_latest_report_decides_not_the_best():
    older_pass, newer_fail = report(hours_ago=5), report(Outcome.FAILED, hours_ago=1)
    assert broken(decide(evidence=(newer_fail, older_pass))) == ["gates"]
    newer_pass, older_fail = report(hours_ago=1), report(Outcome.FAILED, hours_ago=5)
    assert broken(decide(evidence=(newer_pass, older_fail))) == []


PROD = ChannelPolicy(gates=("core",), upstream="staging", soak=timedelta(hours=24))


@pytest.mark.parametrize(
    ("history", "may"),
    [
        (was_live((1, 25)), True),
        (was_live((1, 24)), True),
        (was_live((1, 23)), False),
        (was_live((2, 1), (1, 30)), True),  # soaked 29 h before release 2 came
        (was_live((2, 10), (1, 30)), False),
        (was_live((1, 3), (2, 6), (1, 30)), True),
        (was_live((2, 48)), False),
        ((), False),
    ],
)
def test_soak_counts_the_longest_unbroken_time_live_upstream(history, may):
    decision = decide(policy=PROD, upstream=channel("staging", history=history))
    assert ("upstream" not in broken(decision)) is may


def test_a_release_rolled_back_upstream_may_not_go_further():
    upstream = channel(
        "staging", history=was_live((1, 99)), bad=(BadMark(number=1, reason="rolled back"),)
    )
    assert broken(decide(policy=PROD, upstream=upstream)) == ["upstream"]


def test_a_clock_that_went_back_never_gives_a_negative_soak():
    state = channel("staging", history=was_live((1, -5)))
    assert longest_live(state, 1, NOW) == timedelta(0)


@pytest.mark.parametrize(
    ("approvers", "enough"),
    [
        ((), False),
        (("ann",), False),
        (("ann", "ann"), False),
        (("ann", "builder"), False),
        (("ann", "promoter"), False),
        (("ann", "bob"), True),
    ],
)
def test_approvals_count_people_who_neither_built_nor_promote(approvers, enough):
    digest = candidate().digest
    approvals = tuple(
        Approval(number=1, release=digest, actor=Actor(name=n, proved_by="os-user"), at=NOW)
        for n in approvers
    )
    policy = ChannelPolicy(gates=("core",), approvals=2)
    decision = decide(policy=policy, state=channel(approvals=approvals))
    assert ("approvals" not in broken(decision)) is enough


def test_approvals_of_another_release_do_not_count():
    approval = Approval(
        number=2,
        release=release(2).digest,
        actor=Actor(name="ann", proved_by="os-user"),
        at=NOW,
    )
    policy = ChannelPolicy(gates=("core",), approvals=1)
    assert broken(decide(policy=policy, state=channel(approvals=(approval,)))) == ["approvals"]


def test_only_bad_and_fit_can_be_overridden_and_the_override_is_kept():
    state = channel(bad=(BadMark(number=1, reason="slow"),))
    decision = decide(state=state, evidence=(), overrides=frozenset({"bad", "gates"}))
    assert broken(decision) == ["gates"]
    assert len(decision.overrides) == 1
    assert decision.overrides[0].startswith("bad: ")


def rollback(number: int, state: ChannelState, **changes: object):
    arguments = {
        "number": number,
        "was_live": any(entry.live.number == number for entry in state.history),
        "platform": Platform(sku="cpu-x86-64-v3"),
        "state": state,
        **changes,
    }
    return decide_rollback(**arguments)


def test_a_rollback_target_was_live_fits_and_is_not_marked_bad():
    state = channel(history=was_live((3, 1), (2, 5), (1, 9)), bad=(BadMark(number=1, reason="x"),))
    assert not rollback(2, state).broken
    assert broken(rollback(1, state)) == ["bad"]
    assert broken(rollback(3, state)) == ["changes"]
    assert broken(rollback(7, state)) == ["was-live"]
    assert broken(rollback(2, state, platform=Platform(sku="cpu-x86-64-v4"))) == ["fit"]
    assert not rollback(1, state, overrides=frozenset({"bad"})).broken


def test_freeze_and_hold_do_not_stop_a_rollback():
    state = channel(
        history=was_live((2, 1), (1, 9)),
        freeze=Freeze(reason="incident", actor=PROMOTER, at=NOW, until=None),
        hold=Hold(reason="earlier", actor=PROMOTER, at=NOW),
    )
    assert not rollback(1, state).broken


def test_candidates_are_the_good_ones_most_recently_live_first():
    state = channel(
        history=was_live((5, 1), (4, 2), (5, 3), (3, 4), (4, 5), (2, 6)),
        bad=(BadMark(number=3, reason="x"),),
    )
    assert [entry.live.number for entry in rollback_candidates(state)] == [4, 2]
    assert rollback_candidates(channel()) == ()
