"""`--reason`: one line for ever in the event log; what cannot be one is refused in one line."""

from __future__ import annotations

import pytest

from engine_registry.refs import ChannelRef

STAGING = "tiny/cpu-x86-64-v3/staging"
BAD = {
    "empty": ("", "reason-missing", "is empty"),
    "blank": (" \t\n ", "reason-missing", "is empty"),
    "very long": ("x" * 100_000, "reason-unusable", "100,000 characters, at most 400"),
    "one too long": ("x" * 401, "reason-unusable", "401 characters, at most 400"),
    "not UTF-8": ("\udcff\udcfe", "reason-unusable", "is not UTF-8"),
    "an escape": ("red \x1b[31m", "reason-unusable", "control character U+001B"),
    "NUL": ("a\x00b", "reason-unusable", "control character U+0000"),
    "turned text": ("a\u202eb", "reason-unusable", "control character U+202E"),
}
COMMANDS = {
    "rollback": ("rollback", STAGING, "--to", "1"),
    "freeze": ("freeze", STAGING),
    "freeze --lift": ("freeze", STAGING, "--lift"),
    "hold": ("hold", STAGING),
    "hold --lift": ("hold", STAGING, "--lift"),
    "hold of a release": ("hold", "tiny/cpu-x86-64-v3:1"),
    "approve": ("approve", "tiny/cpu-x86-64-v3:1", "--on", "staging"),
    "promote": ("promote", "tiny/cpu-x86-64-v3:2", "--to", "staging"),
}


@pytest.fixture
def two(project):
    for name in ("one", "two"):
        assert project.run("promote", project.release(name).name, "--to", "staging").code == 0
    return project


@pytest.mark.parametrize("kind", BAD)
@pytest.mark.parametrize("command", COMMANDS)
def test_an_unusable_reason_is_one_line_and_changes_nothing(two, command, kind):
    text, reference, says = BAD[kind]
    refused = two.run(*COMMANDS[command], "--reason", text)
    assert refused.code == 2
    first, then = refused.err.splitlines()
    assert first.startswith(f"error[{reference}]: --reason ")
    assert says in first
    assert "--reason 'p95 doubled" in then
    assert two.registry.channels.state(ChannelRef.parse(STAGING)).number == 2


def test_a_reason_of_several_lines_is_recorded_as_one(two):
    assert two.run("rollback", STAGING, "--reason", " p95\n\tdoubled\r\nsince  8 ").code == 0
    hold = two.registry.channels.state(ChannelRef.parse(STAGING)).hold
    assert hold is not None
    assert hold.reason == "p95 doubled since 8"


@pytest.mark.parametrize("text", ["größer, schlechter \U0001f525", "x" * 400])
def test_any_other_text_is_recorded_as_it_is(two, text):
    assert two.run("rollback", STAGING, "--reason", text).code == 0
    hold = two.registry.channels.state(ChannelRef.parse(STAGING)).hold
    assert hold is not None
    assert hold.reason == text


def test_the_longest_reason_keeps_nobody_from_overriding_its_mark(two):
    assert two.run("rollback", STAGING, "--reason", "x" * 400).code == 0
    again = ("rollback", STAGING, "--to", "2", "--override", "bad", "--reason", "y" * 400)
    assert two.run(*again).code == 0
    live = two.registry.channels.state(ChannelRef.parse(STAGING)).live
    assert live is not None
    assert live.number == 2
