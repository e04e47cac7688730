"""Several releases promoted with one command, and what people are told while a set is under way."""

from __future__ import annotations

from datetime import timedelta

import pytest

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.promote.moves import Desk
from engine_pipeline.promote.sets import promote_set
from engine_registry.record import Actor
from engine_registry.refs import ChannelRef, ProductRef
from engine_registry.registry import Registry, utc_now
from engine_registry.sets import SetDecisions
from engine_registry.testing.faults import CrashMode, FaultPlan, SimulatedCrash, faulty

SKUS = [ProductRef(f"tiny-{name}", "cpu-x86-64-v3") for name in ("a", "b", "c")]
STAGING = [f"{product}/staging" for product in SKUS]


@pytest.fixture
def matrix(project):
    """A release of each product is live on staging, and a newer one is ready for it."""
    text = (project.root / "channels.yaml").read_text()
    (project.root / "channels.yaml").write_text(text.replace('"tiny/*"', '"*/*"'))
    for round_ in ("first", "second"):
        for product in SKUS:
            release = project.release(f"{product.model} {round_}", product=product)
            if round_ == "first":
                assert project.run("promote", release.name, "--to", "staging").code == 0
    return project


def names(number: int = 2) -> list[str]:
    return [f"{product}:{number}" for product in SKUS]


def live(project) -> list[int]:
    channels = project.run("status", as_json=True).json["channels"]
    return [c["release"]["number"] for c in channels if c["channel"] in STAGING]


def dies_at(project, write: int) -> str:
    """A mover that dies right after its write number `write`; the name of its set."""
    from engine_pipeline.cli.commands.promote import _wish
    from engine_pipeline.cli.wiring import Shell

    shell = Shell(
        registry_url=f"file://{project.root}/engines",
        channels_file=str(project.root / "channels.yaml"),
        cache_dir=None,
    )
    plan = FaultPlan(write, CrashMode.AFTER)
    desk = Desk(
        registry=Registry(faulty(project.registry.stores, plan), utc_now),
        actor=Actor(name="mover", proved_by="test"),
        clock=utc_now,
    )
    releases = [project.registry.resolve(name).release for name in names()]
    channels = [ChannelRef.parse(name) for name in STAGING]
    with pytest.raises(SimulatedCrash):
        promote_set(desk, [_wish(shell, r, c) for r, c in zip(releases, channels, strict=True)])
    events = project.registry.channels.events(channels[0])
    return next(e.change.set for e, _ in events if e.change.kind == "prepared")


def flat(text: str) -> str:
    """Without the breaks of lines that were wrapped."""
    return " ".join(text.split())


# Six writes reserve the three channels, the seventh decides, six more record it.
DECIDED = 7


def test_several_releases_go_live_with_one_command(matrix):
    moved = matrix.run("promote", *names(), "--to", "staging", "--reason", "the new model")
    assert moved.code == 0
    assert moved.out.startswith("ok 3 releases are live on staging (set-")
    assert "tiny-a/cpu-x86-64-v3:2: release 1 (engine" in moved.out
    assert live(matrix) == [2, 2, 2]
    history = matrix.run("history", STAGING[1]).out
    assert "prepared" in history
    assert "in set-" in history
    assert max(map(len, history.splitlines())) <= 100
    assert matrix.run("verify").code == 0


def test_the_same_again_changes_nothing_and_says_so(matrix):
    assert matrix.run("promote", *names(), "--to", "staging").code == 0
    again = matrix.run("promote", *names(), "--to", "staging", as_json=True)
    assert (again.code, again.json["changed"], again.json["set"]) == (0, False, None)
    assert [member["live"] for member in again.json["members"]] == [True] * 3


def test_what_each_release_lacks_is_listed_and_none_is_moved(matrix):
    failed = matrix.release("bad", Outcome.FAILED, product=SKUS[0]).name
    unjudged = matrix.release("unjudged", None, product=SKUS[2]).name
    asked = ("promote", failed, names()[1], unjudged, "--to", "staging")
    refused = matrix.run(*asked)
    assert refused.code == 3
    lines = refused.out.splitlines()
    assert lines[0] == "refused 3 releases to staging: 2 not ready, none was moved"
    assert lines[1] == f"  {failed} lacks"
    assert "gates: gate core: latest report" in lines[2]
    assert f"  {names()[1]}: ready; release 1 (engine" in refused.out
    assert f"  {unjudged} lacks" in refused.out
    assert "next: run `enginectl gate tiny-c" in refused.out
    assert max(map(len, lines)) <= 100
    assert live(matrix) == [1, 1, 1]
    document = matrix.run(*asked, as_json=True)
    assert document.code == 3
    assert document.json["error"]["reference"] == "rule-gates"
    assert [member["ready"] for member in document.json["members"]] == [False, True, False]


def test_a_check_moves_nothing_and_its_exit_code_says_whether_a_promotion_would(matrix):
    ready = matrix.run("promote", *names(), "--to", "staging", "--check")
    assert (ready.code, live(matrix)) == (0, [1, 1, 1])
    assert "ok 3 releases are ready for staging; nothing was moved" in ready.out
    one = matrix.run("promote", names()[0], "--to", "prod", "--check")
    assert one.code == 5
    assert "is not ready for prod" in one.out
    assert "upstream: release 2 was never live on" in one.out


def test_two_releases_of_one_product_are_refused(matrix):
    refused = matrix.run("promote", names(1)[0], names(2)[0], "--to", "staging")
    assert refused.code == 2
    assert "error[channel-named-twice]" in refused.err


def test_a_promotion_without_a_release_is_a_usage_error(matrix):
    assert matrix.run("promote", "--to", "staging").code == 2


# What people are told in every state that a set goes through.


def test_a_set_that_is_not_decided_is_shown_as_reserved_and_not_as_live(matrix):
    name = dies_at(matrix, DECIDED - 1)
    assert live(matrix) == [1, 1, 1]
    status = matrix.run("status", STAGING[0])
    assert "reserved" in status.out
    assert "is reserved for release 2 since" in flat(status.out)
    assert max(map(len, status.out.splitlines())) <= 100
    history = matrix.run("history", STAGING[0], as_json=True).json
    assert history["pending"] == {"set": name, "event": 2, "decision": None}
    was = matrix.run("whatwas", STAGING[0], "--at", "0s", as_json=True).json
    assert was["release"]["number"] == 1
    verified = matrix.run("verify", as_json=True)
    assert verified.code == 0
    assert {note["kind"] for note in verified.json["notes"]} == {"pending"}
    assert len(verified.json["notes"]) == 3
    assert "note, pending: channels/tiny-a" in matrix.run("verify").out


def test_another_persons_promotion_is_told_who_is_at_it(matrix):
    dies_at(matrix, 1)
    refused = matrix.run("promote", names()[0], "--to", "staging")
    assert refused.code == 7
    assert "error[set-pending]" in refused.err
    assert "by mover for release 2" in refused.err
    checked = matrix.run("promote", *names(), "--to", "staging", "--check")
    assert checked.code == 7
    assert "which moves with others" in flat(checked.out)


@pytest.mark.parametrize("write", range(DECIDED, DECIDED + 6))
def test_a_decided_set_is_live_for_every_reader_before_its_logs_say_so(matrix, write):
    dies_at(matrix, write)
    assert live(matrix) == [2, 2, 2]
    for product, channel in zip(SKUS, STAGING, strict=True):
        status = matrix.run("status", channel)
        assert "reserved" not in status.out
        was = matrix.run("whatwas", channel, "--at", "0s")
        assert f"release        {product}:2" in was.out
        others = [other for other in STAGING if other != channel]
        assert all(other in was.out for other in others)
    last = flat(matrix.run("history", STAGING[2]).out)
    is_recorded = write >= DECIDED + 5
    assert ("is live on tiny-c/cpu-x86-64-v3/staging; the next move records" in last) is not (
        is_recorded
    )
    verified = matrix.run("verify", as_json=True)
    assert verified.code == 0
    assert {note["kind"] for note in verified.json["notes"]} <= {"behind"}
    # The next command of anybody records what was decided.
    assert matrix.run("promote", *names(), "--to", "staging", as_json=True).json["changed"] is False
    assert matrix.run("history", STAGING[2], as_json=True).json["pending"] is None


def test_whatwas_knows_the_instant_of_the_decision_before_it_is_recorded(matrix):
    name = dies_at(matrix, DECIDED)
    decision = SetDecisions(matrix.registry.stores.documents).on(name)
    for at, number in (
        (decision.at - timedelta(microseconds=1), 1),
        (decision.at, 2),
    ):
        was = matrix.run("whatwas", STAGING[2], "--at", at.isoformat(), as_json=True).json
        assert was["release"]["number"] == number


def test_a_rollback_withdraws_a_set_and_everybody_is_told(matrix):
    dies_at(matrix, DECIDED - 1)
    # Staging has one release only: there is nothing to go back to, yet the set is withdrawn.
    back = matrix.run("rollback", STAGING[1], "--reason", "stop this")
    assert back.code == 8
    assert live(matrix) == [1, 1, 1]
    shown = matrix.run("history", STAGING[0])
    assert "was withdrawn at" in flat(shown.out)
    assert "release 2 did not go live" in flat(shown.out)
    assert "reserved" not in matrix.run("status").out
    verified = matrix.run("verify", as_json=True)
    assert (verified.code, verified.json["ok"]) == (0, True)
    assert matrix.run("promote", *names(), "--to", "staging").code == 0
    assert live(matrix) == [2, 2, 2]


def test_a_rollback_after_a_set_takes_back_one_channel_only(matrix):
    assert matrix.run("promote", *names(), "--to", "staging").code == 0
    assert matrix.run("rollback", STAGING[1], "--reason", "slow on b").code == 0
    assert live(matrix) == [2, 1, 2]


def test_a_decision_that_is_gone_or_says_something_else_is_reported(matrix):
    assert matrix.run("promote", *names(), "--to", "staging").code == 0
    (path,) = (matrix.root / "engines" / "sets").iterdir()
    good = path.read_bytes()
    path.unlink()
    gone = matrix.run("verify", as_json=True)
    assert gone.code == 11
    assert {m["kind"] for m in gone.json["mismatches"]} == {"missing"}
    path.write_bytes(good.replace(b"committed", b"withdrawn"))
    assert matrix.run("verify", as_json=True).json["mismatches"][0]["kind"] == "damaged"
