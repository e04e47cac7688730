"""Signatures and windows among the rules of promotion, over plain values."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine_pipeline.promote.policy import ChannelPolicy
from engine_pipeline.promote.rules import decide_promotion
from engine_pipeline.promote.window import Day, Window
from engine_pipeline.trust.policy import Role
from engine_pipeline.trust.standing import Seen, Signatures, Standing
from engine_pipeline.trust.statements import Claim
from engine_registry.digest import Digest
from engine_registry.errors import ExitCode
from tests.unit.promote.test_rules import NOW, PROMOTER, WANTED, broken, candidate, channel, report

RELEASE = candidate()
ENGINE = RELEASE.release.content.engine
REPORT = report()
SIGNERS = {Role.BUILD: ("ci",), Role.GATE: ("ci",), Role.RELEASE: ("team",)}


def seen(role: Role, about: Digest, standing: Standing = Standing.GOOD) -> Seen:
    return Seen(
        envelope=Digest.of(f"{role}{about}{standing}".encode()),
        claim=Claim(role=role, about=about, engine=ENGINE),
        signer="ci",
        standing=standing,
        says="as the test says",
    )


def decide(*found: Seen, evidence=(REPORT,), **policy):
    return decide_promotion(
        candidate=RELEASE,
        state=channel(),
        upstream=None,
        policy=ChannelPolicy(gates=("core",), **{"signed": tuple(Role), **policy}),
        wanted={"core": WANTED},
        evidence=evidence,
        actor=PROMOTER,
        now=NOW,
        signatures=Signatures(seen=found, signers=SIGNERS),
    )


BUILD = seen(Role.BUILD, ENGINE)
GATE = seen(Role.GATE, report().report)
CUT = seen(Role.RELEASE, RELEASE.digest)


def test_with_every_signature_a_release_may_go_live():
    assert broken(decide(BUILD, GATE, CUT)) == []


@pytest.mark.parametrize("left_out", [BUILD, GATE, CUT])
def test_each_signature_that_is_missing_is_one_broken_rule(left_out):
    decision = decide(*({BUILD, GATE, CUT} - {left_out}))
    assert broken(decision) == ["signed"]
    assert decision.broken[0].exit_code is ExitCode.POLICY


def test_a_channel_that_asks_for_no_signature_looks_at_none():
    decision = decide(seen(Role.BUILD, ENGINE, Standing.BAD), signed=())
    assert "signed" not in [finding.rule for finding in decision.findings]


def test_a_signed_only_channel_takes_nothing_when_nobody_looked():
    decision = decide_promotion(
        candidate=RELEASE,
        state=channel(),
        upstream=None,
        policy=ChannelPolicy(gates=("core",), signed=(Role.BUILD,)),
        wanted={"core": WANTED},
        evidence=(report(),),
        actor=PROMOTER,
        now=NOW,
        overrides=frozenset({"signed"}),
    )
    assert broken(decision) == ["signed"]


@pytest.mark.parametrize("standing", [s for s in Standing if s is not Standing.GOOD])
def test_a_signature_of_any_other_standing_does_not_count_and_a_bad_one_is_exit_11(standing):
    decision = decide(seen(Role.BUILD, ENGINE, standing), GATE, CUT)
    assert broken(decision) == ["signed"]
    bad = standing is Standing.BAD
    assert decision.broken[0].exit_code is (ExitCode.INTEGRITY if bad else ExitCode.POLICY)


def test_the_report_that_decides_is_the_one_that_must_be_signed():
    older, newer = report(hours_ago=5), report(hours_ago=1)
    signed_older = seen(Role.GATE, older.report)
    assert broken(decide(BUILD, signed_older, CUT, evidence=(older, newer))) == ["signed"]
    assert broken(decide(BUILD, GATE, CUT, evidence=(older, newer))) == []


def test_a_report_that_is_not_there_is_the_gates_business_alone():
    assert broken(decide(BUILD, CUT, evidence=())) == ["gates"]


def test_a_closed_window_is_a_rule_like_any_other():
    opens = Window(days=(Day.SAT,), opens="08:00", closes="16:00")
    decision = decide(BUILD, GATE, CUT, windows=(opens,))
    assert broken(decision) == ["window"]
    saturday = NOW + timedelta(days=4)
    assert opens.is_open(saturday)
