"""What is printed where: no arguments, outputs that take nothing, words that a terminal obeys."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from engine_pipeline.cli.app import run
from engine_registry.errors import ExitCode

MAIN = "from engine_pipeline.cli import main; main()"
LOST = "error[output-unwritable]: standard output: "


def enginectl(project, words: str, ends: str, **environment: str) -> subprocess.CompletedProcess:
    """One command line in a process of its own, its outputs sent to where `ends` says."""
    line = f'"{sys.executable}" -c "{MAIN}" {words} {ends}'
    return subprocess.run(
        ["bash", "-c", line],
        check=False,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
    )


def test_no_arguments_print_the_help(capsys):
    assert run([]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("Usage: enginectl ")
    assert shown.err == ""


def test_a_word_that_is_near_no_command_is_not_taken_for_an_option(capsys):
    assert run(["bogus"]) == ExitCode.INVALID
    said = capsys.readouterr().err
    assert said == "error[usage]: no command 'bogus'\n  next: see `enginectl --help`\n"


@pytest.mark.parametrize("words", ["status", "status -o json", "history $C", "--help", "--version"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_behind_standard_output_is_one_line(project, words, unbuffered):
    project.release("one")
    words = words.replace("$C", "tiny/cpu-x86-64-v3/staging")
    ran = enginectl(project, words, ">/dev/full", PYTHONUNBUFFERED=unbuffered)
    assert ran.returncode == ExitCode.UNAVAILABLE
    first, second = ran.stderr.splitlines()
    assert first == LOST + "No space left on device"
    assert second.startswith("  next: ")


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        (">&-", LOST + "Bad file descriptor"),
        (">&- 2>&-", ""),
        (">/dev/full 2>/dev/full", ""),
    ],
)
def test_a_closed_standard_output_is_an_error_that_the_exit_code_tells(project, ends, says):
    project.release("one")
    ran = enginectl(project, "status", ends)
    assert (ran.returncode, ran.stderr.split("\n")[0]) == (ExitCode.UNAVAILABLE, says)


def test_a_closed_standard_error_keeps_nothing_from_the_answer(project):
    project.release("one")
    ran = enginectl(project, "status", "2>&-")
    assert (ran.returncode, ran.stdout.split(" in ")[0]) == (0, "no channels yet")


def test_an_event_that_cannot_be_printed_has_happened(project):
    release = project.release("one")
    ran = enginectl(project, f"promote {release.name} --to staging", ">/dev/full")
    assert ran.returncode == ExitCode.UNAVAILABLE
    assert project.run("status", as_json=True).json["channels"][0]["release"]["number"] == 1


REASON = "x\x1b]0;owned\x07\x1b[2J\x9b1m\u202etxt"
SHOWN = r"x\x1b]0;owned\x07\x1b[2J\x9b1m\u202etxt"


@pytest.mark.parametrize("words", [["status"], ["history", "tiny/cpu-x86-64-v3/staging"]])
def test_what_a_terminal_would_obey_is_shown_and_not_sent(project, words):
    release = project.release("one")
    project.run("promote", release.name, "--to", "staging")
    _held(project)
    out = project.run(*words).out
    assert not set(out) & set("\x1b\x07\x9b\u202e")
    assert SHOWN.replace(" ", "") in "".join(out.split())


def test_machines_get_what_was_written(project):
    release = project.release("one")
    project.run("promote", release.name, "--to", "staging")
    _held(project)
    (staging,) = project.run("status", as_json=True).json["channels"]
    assert staging["hold"]["reason"] == REASON


def _held(project) -> None:
    """As an older version, or another program, may have written it."""
    from datetime import UTC, datetime

    from engine_registry.events import Held
    from engine_registry.record import Actor
    from engine_registry.refs import ChannelRef

    ref = ChannelRef.parse("tiny/cpu-x86-64-v3/staging")
    state = project.registry.channels.state(ref)
    project.registry.channels.append(
        ref,
        decided_on=state.number,
        change=Held(reason=REASON),
        actor=Actor(name="mira", proved_by="claimed"),
        at=datetime.now(UTC),
        operation="0" * 32,
        seen=state,
    )
