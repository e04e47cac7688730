"""Times as typed: what was lies behind, what ends lies ahead."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import click
import pytest

from engine_pipeline.cli.times import EXPIRY, PAST, Moment
from engine_registry.refs import ChannelRef

PROD = "tiny/cpu-x86-64-v3/prod"


@pytest.mark.parametrize(
    ("kind", "text", "from_now"),
    [
        (PAST, "7d", timedelta(days=-7)),
        (PAST, "-7d", timedelta(days=-7)),
        (PAST, "7d ago", timedelta(days=-7)),
        (PAST, "0s", timedelta(0)),
        (EXPIRY, "12h", timedelta(hours=12)),
        (EXPIRY, "-12h", timedelta(hours=-12)),
    ],
)
def test_a_span_goes_the_way_that_makes_sense(kind: Moment, text: str, from_now: timedelta) -> None:
    before = datetime.now(UTC)
    found = kind.convert(text, None, None) - from_now
    assert before <= found <= datetime.now(UTC)


@pytest.mark.parametrize("kind", [PAST, EXPIRY])
def test_a_time_that_is_written_out_is_that_time(kind: Moment) -> None:
    assert kind.convert("2026-01-02", None, None) == datetime(2026, 1, 2, tzinfo=UTC)
    assert kind.convert("2026-01-02T03:00+02:00", None, None).hour == 1
    with pytest.raises(click.BadParameter, match="is no time"):
        kind.convert("soon", None, None)


@pytest.mark.parametrize("words", [("whatwas", PROD, "--at"), ("list", "--since")])
def test_nothing_is_said_of_times_to_come(project, words):
    project.release("one")
    refused = project.run(*words, "2099-01-01")
    assert refused.code == 2
    assert "2099-01-01 00:00Z is yet to come; it is 20" in refused.err
    assert len(refused.err.splitlines()) == 2


def test_a_freeze_may_end_in_a_hundred_years(project):
    project.release("one")
    for until in ("2099-01-01", "2h"):
        assert project.run("freeze", PROD, "--reason", "feast", "--until", until).code == 0
        freeze = project.registry.channels.state(ChannelRef.parse(PROD)).freeze
        assert freeze.until > datetime.now(UTC)
