"""Endings: what a server's exit status and its last word say of the engine."""

from __future__ import annotations

import pytest

from engine_pipeline.gates.ending import (
    CouldNotServe,
    DidNotLoad,
    before_it_was_ready,
    ending,
    last_lines,
    last_word,
)
from engine_pipeline.runners.protocol import error_line
from engine_registry.errors import EngineCIError, Incompatible, InvalidInput, Unavailable


@pytest.mark.parametrize(
    ("status", "words", "by_itself"),
    [
        (0, "exited with code 0", True),
        (1, "exited with code 1", True),
        (255, "exited with code 255", True),
        (128 + 11, "crashed with SIGSEGV", True),
        (-6, "crashed with SIGABRT", True),
        (128 + 9, "was killed by SIGKILL", False),
        (-9, "was killed by SIGKILL", False),
        (128 + 15, "was killed by SIGTERM", False),
        (127, "could not be started (exit code 127)", False),
    ],
)
def test_a_crash_is_the_engines_and_a_kill_is_not(status, words, by_itself):
    found = ending(status)
    assert (found.words, found.by_itself) == (words, by_itself)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (
            InvalidInput("bad magic", hint="rebuild", reference="engine-does-not-load"),
            2,
            DidNotLoad,
        ),
        (Incompatible("wants 1.0", hint="install it"), 6, CouldNotServe),
        (Unavailable("port taken", hint="again", reference="port-taken"), 9, CouldNotServe),
        (EngineCIError("KeyError", hint="report it"), 1, CouldNotServe),
    ],
)
def test_the_last_word_of_a_server_decides_and_is_passed_on(tmp_path, error, status, kind):
    log = tmp_path / "log"
    log.write_text(f"loading\n{error_line(error)}\n")
    found = before_it_was_ready(status, log)
    assert type(found) is kind
    assert (found.message, found.hint, found.name) == (error.message, error.hint, error.name)
    assert found.log[0] == "loading"


def test_without_a_last_word_the_status_decides(tmp_path):
    assert type(before_it_was_ready(1, tmp_path / "none")) is DidNotLoad
    assert type(before_it_was_ready(137, tmp_path / "none")) is CouldNotServe
    assert last_word(tmp_path / "none") is None


def test_a_killed_server_is_not_judged_by_what_it_said_before(tmp_path):
    log = tmp_path / "log"
    log.write_text(error_line(InvalidInput("bad magic", hint="x")) + "\n")
    assert type(before_it_was_ready(137, log)) is CouldNotServe


def test_the_last_lines_are_few_short_and_printable(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(
        b"early\n" * 9000 + b"\x1b[31mred\x1b[0m\n\n" + b"\xff" * 4 + b"y" * 900 + b"\n"
    )
    lines = last_lines(log)
    assert len(lines) == 20
    assert lines[-2] == "[31mred[0m"
    assert len(lines[-1]) == 300
