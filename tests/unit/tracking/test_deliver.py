"""What is due is delivered at least once, whatever fails, and nothing waits for what hangs."""

from __future__ import annotations

import os
import sqlite3
from datetime import timedelta
from pathlib import Path

import pytest

from engine_pipeline.tracking.deliver import LONGEST_REST, TRIES
from engine_pipeline.tracking.outbox import Outbox
from engine_pipeline.tracking.port import NotSent
from engine_registry.changes import Held
from engine_registry.errors import Conflict, Unavailable
from engine_registry.testing.samples import sample_engine, sample_event
from tests.unit.tracking.conftest import Notebook, World

BROKEN = NotSent(detail="500")


def happen(world: World, count: int = 1) -> list[str]:
    """Something happens; the ids of its facts."""
    for _ in range(count):
        world.clock.forward(seconds=1)
        sample_event(world.registry, Held(reason="look first"))
    return [fact.id for fact in world.feed().facts()][-count:]


def test_everything_is_delivered_once_in_order_of_time(world: World):
    ids = happen(world, 3)
    book = Notebook()
    run = world.run(book)
    assert book.told == ids
    assert (run.new_facts, run.tallies[0].sent, run.is_behind) == (3, 3, False)
    assert world.run(book).new_facts == 0
    assert len(book.got) == 3


def test_a_failure_is_tried_again_within_the_run_after_growing_pauses(world: World):
    (fact,) = happen(world)
    book = Notebook(answers={fact: [BROKEN, BROKEN]})
    run = world.run(book)
    assert [attempt for _, _, attempt in book.got] == [1, 2, 3]
    assert world.slept == [1.0, 2.0]
    assert run.tallies[0].sent == 1


def test_after_its_tries_a_delivery_waits_and_keeps_its_id_and_its_count(world: World):
    (fact,) = happen(world)
    book = Notebook(answers={fact: [BROKEN] * TRIES})
    run = world.run(book)
    assert run.is_behind
    assert (run.tallies[0].waiting, run.tallies[0].error) == (1, "500")
    world.run(book)
    assert len(book.got) == TRIES  # its back-off is not over
    world.clock.forward(seconds=15)
    assert world.run(book).tallies[0].sent == 1
    assert [attempt for _, _, attempt in book.got] == [1, 2, 3, 4]
    assert len({delivery for _, delivery, _ in book.got}) == 1


def test_a_destination_that_is_down_costs_one_delivery_a_run_and_rests_longer_each_time(
    world: World,
):
    happen(world, 5)
    book = Notebook(always=BROKEN)
    rests = []
    for _ in range(9):
        before = len(book.got)
        run = world.run(book)
        assert len(book.got) - before == TRIES
        rest = run.tallies[0].rests_until - world.clock()
        rests.append(rest.total_seconds())
        world.clock.forward(seconds=rest.total_seconds())
    assert rests[:5] == [15, 30, 60, 120, 240]
    assert rests[-1] == LONGEST_REST.total_seconds()


def test_one_delivery_that_is_always_refused_does_not_keep_the_others(world: World):
    poison, *others = happen(world, 3)
    book = Notebook(answers={poison: [BROKEN] * 100})
    world.run(book)
    world.clock.forward(seconds=15)
    world.run(book)
    assert set(book.told) == {poison, *others}
    assert world.outbox.standing(book.name).waiting == 1


def test_what_is_wrong_with_one_delivery_lets_the_others_go_in_the_same_run(world: World):
    bad, *others = happen(world, 3)
    refusal = NotSent(detail="name taken", is_final=True, is_about_this=True)
    book = Notebook(answers={bad: [refusal]})
    run = world.run(book)
    assert book.told == [bad, *others]
    assert (run.tallies[0].sent, run.tallies[0].waiting) == (2, 1)
    world.clock.forward(seconds=15)
    assert world.run(book).tallies[0].sent == 1


def test_a_wrong_setting_is_not_tried_three_times(world: World):
    happen(world, 2)
    book = Notebook(always=NotSent(detail="variable not set", is_final=True))
    world.run(book)
    assert len(book.got) == 1
    assert world.slept == []


def test_a_short_retry_after_is_waited_for_and_a_long_one_is_kept_for_later(world: World):
    first, second = happen(world, 2)
    short = NotSent(detail="429", retry_after=timedelta(seconds=4))
    long = NotSent(detail="429", retry_after=timedelta(minutes=10))
    book = Notebook(answers={first: [short], second: [long]})
    run = world.run(book)
    assert world.slept == [4.0]
    assert run.tallies[0].rests_until - world.clock() == timedelta(minutes=10)


def test_nobody_is_made_to_wait_for_days_by_a_retry_after(world: World):
    (fact,) = happen(world)
    book = Notebook(answers={fact: [NotSent(detail="429", retry_after=timedelta(days=30))]})
    run = world.run(book)
    assert run.tallies[0].rests_until - world.clock() == timedelta(hours=1)


def test_insisting_does_not_wait_for_the_end_of_a_back_off(world: World):
    (fact,) = happen(world)
    book = Notebook(answers={fact: [BROKEN] * TRIES})
    world.run(book)
    assert world.run(book, insist=True).tallies[0].sent == 1


def test_one_broken_destination_delays_no_other(world: World):
    happen(world, 2)
    broken, fine = Notebook(name="broken", always=BROKEN), Notebook(name="fine")
    run = world.run(broken, fine)
    assert [tally.sent for tally in run.tallies] == [0, 2]


def test_what_got_too_old_is_given_up_and_that_is_logged(world: World):
    happen(world)
    book = Notebook(always=BROKEN)
    world.run(book)
    world.clock.forward(days=4)
    run = world.run(book)
    assert (run.tallies[0].abandoned, run.tallies[0].waiting) == (1, 0)
    assert [entry.outcome for entry in world.outbox.log(None, 10)] == ["failed", "abandoned"]


def test_a_new_destination_starts_with_what_happens_next(world: World):
    happen(world)
    world.run(Notebook(name="old"))
    new = Notebook(name="new")
    world.run(new)
    (fact,) = happen(world)
    world.run(new)
    assert new.told == [fact]


def test_a_lost_outbox_sends_what_is_young_enough_again_under_the_same_ids(
    world: World, tmp_path: Path
):
    sample_event(world.registry, Held(reason="old"))
    world.clock.forward(days=5)
    happen(world, 2)
    before = Notebook()
    world.run(before)
    world.outbox = Outbox(tmp_path / "fresh" / "notify.sqlite", registry="0123")
    after = Notebook()
    world.run(after)
    world.outbox.close()
    assert [(f, d) for f, d, _ in after.got] == [(f, d) for f, d, _ in before.got]
    assert len(after.got) == 2


def test_a_mirror_hears_the_whole_history(world: World):
    happen(world)
    world.clock.forward(days=400)
    book = Notebook(max_age=None)
    world.run(book)
    assert len(book.got) == 1


def test_a_death_after_reading_and_before_sending_loses_nothing(world: World):
    (fact,) = happen(world)
    book = Notebook()
    world.outbox.register([book.name])
    feed = world.feed()
    world.outbox.take_in(list(feed.facts()), feed.positions)  # and dies
    world.run(book)
    assert book.told == [fact]


def test_a_death_before_the_positions_are_kept_repeats_nothing(world: World):
    happen(world, 2)
    book = Notebook()
    world.outbox.register([book.name])
    world.outbox.take_in(list(world.feed().facts()), {})  # and dies
    world.run(book)
    world.run(book)
    assert len(book.got) == 2


def test_what_is_due_is_delivered_while_the_registry_is_away(world: World, monkeypatch):
    (fact,) = happen(world)
    book = Notebook(answers={fact: [BROKEN] * TRIES})
    world.run(book)
    world.clock.forward(minutes=1)

    def away() -> None:
        raise Unavailable("the bucket does not answer", hint="wait")

    monkeypatch.setattr(world.registry, "info", away)
    run = world.run(book)
    assert run.tallies[0].sent == 1
    assert run.unreachable == "the bucket does not answer"


def test_only_one_process_delivers_from_an_outbox_at_a_time(world: World, tmp_path: Path):
    other = Outbox(tmp_path / "state" / "notify.sqlite", registry="0123")
    with (
        world.outbox.held(),
        pytest.raises(Conflict, match=f"process {os.getpid()} delivers from it now"),
        other.held(),
    ):
        pass
    with other.held():
        pass
    other.close()


def test_told_facts_keep_their_ids_and_lose_their_text(world: World, tmp_path: Path):
    happen(world, 3)
    sample_engine(world.registry)
    book = Notebook()
    world.run(book)
    with sqlite3.connect(tmp_path / "state" / "notify.sqlite") as db:
        assert db.execute("SELECT count(*), count(body) FROM fact").fetchone() == (4, 0)
    assert list(world.feed().facts()) == []


def test_an_outbox_is_for_its_owner_only(world: World, tmp_path: Path):
    path = tmp_path / "state" / "notify.sqlite"
    assert path.stat().st_mode & 0o077 == 0
    assert path.parent.stat().st_mode & 0o077 == 0


def test_a_damaged_outbox_is_an_error_that_says_what_to_do(tmp_path: Path):
    path = tmp_path / "notify.sqlite"
    path.write_bytes(b"no database at all, and long enough to be seen as one" * 20)
    with pytest.raises(Unavailable) as caught:
        Outbox(path, registry="0123")
    assert "may be deleted" in caught.value.hint
