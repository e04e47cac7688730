from __future__ import annotations

import errno
import io
import json

import pytest

from engine_pipeline.runners.protocol import (
    ChildProgress,
    error_line,
    parse_error,
    relay,
    run_child,
)
from engine_registry.errors import (
    ChannelMoved,
    EngineCIError,
    ExitCode,
    Incompatible,
    IntegrityError,
    InvalidInput,
    NotFound,
    Unavailable,
)


class Recorder:
    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def phase(self, name: str, detail: str = "") -> None:
        self.calls.append(("phase", name, detail))

    def update(self, done: float, total: float | None, unit: str) -> None:
        self.calls.append(("update", done, total, unit))

    def note(self, text: str) -> None:
        self.calls.append(("note", text))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def relayed(text: str) -> list[tuple[object, ...]]:
    recorder = Recorder()
    assert all(relay(line, recorder) for line in text.splitlines(keepends=True))
    return recorder.calls


def test_what_the_child_reports_reaches_the_parents_progress() -> None:
    stream = io.StringIO()
    child = ChildProgress(stream, clock=Clock())
    child.phase("fetch", "model.gguf")
    child.update(5, 10, "bytes")
    child.update(10, 10, "bytes")
    child.note("2 files,\n verified")
    child.phase("count")
    child.update(1.5, None, "cases")
    assert relayed(stream.getvalue()) == [
        ("phase", "fetch", "model.gguf"),
        ("update", 5.0, 10.0, "bytes"),
        ("update", 10.0, 10.0, "bytes"),
        ("note", "2 files, verified"),
        ("phase", "count", ""),
        ("update", 1.5, None, "cases"),
    ]


def test_updates_within_a_tick_are_dropped_and_the_last_one_is_not() -> None:
    stream, clock = io.StringIO(), Clock()
    child = ChildProgress(stream, clock=clock, tick_s=0.5)
    for done in range(100):
        clock.now = done / 100
        child.update(done, 100, "bytes")
    child.update(100, 100, "bytes")
    child.update(100, 100, "bytes")
    assert stream.getvalue().splitlines() == [
        "::progress 0 100 bytes",
        "::progress 50 100 bytes",
        "::progress 100 100 bytes",
    ]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "loading model",
        "::progress",
        "::progress x 1 bytes",
        "::progress 1 2 bytes; rm",
        "::note ",
    ],
)
def test_other_lines_are_log_text(line: str) -> None:
    recorder = Recorder()
    assert not relay(line, recorder)
    assert recorder.calls == []


@pytest.mark.parametrize(
    "error",
    [
        InvalidInput("spec.yaml:3: model: 'x'\nis wrong", hint="look", reference="spec-invalid"),
        Incompatible("fp8 on a100", hint="use h100"),
        NotFound("no such répo", hint="check the name", reference="hub-repo-missing"),
        Unavailable("timed out", hint="again"),
        IntegrityError("a is b", hint="verify"),
        EngineCIError("bug", hint="report"),
    ],
)
def test_an_error_survives_the_trip_to_the_parent(error: EngineCIError) -> None:
    line = error_line(error)
    assert line.isascii()
    assert "\n" not in line
    back = parse_error(line)
    assert back is not None
    assert type(back) is type(error)
    assert (back.message, back.hint, back.name) == (
        " ".join(error.message.split()),
        error.hint,
        error.name,
    )


def test_a_subclass_comes_back_with_the_exit_code_and_reference_it_had() -> None:
    back = parse_error(error_line(ChannelMoved("moved", hint="again")))
    assert back is not None
    assert (back.exit_code, back.name) == (ExitCode.CONFLICT, "channel-moved")


@pytest.mark.parametrize(
    "line",
    [
        "error",
        "::error",
        "::error {",
        "::error []",
        "::error 7",
        '::error {"reference":"a","message":"b","hint":"c"}',
        '::error {"reference":"a","message":"b","hint":"c","exit_code":99}',
        '::error {"reference":"a","message":["b"],"hint":"c","exit_code":2}',
        '::error {"reference":"a","message":"b","hint":"c","exit_code":0}',
        "::error " + "[" * 100_000,
    ],
)
def test_a_line_that_only_looks_like_an_error_is_log_text(line: str) -> None:
    assert parse_error(line) is None


def ending(error: Exception | None) -> tuple[int, str]:
    def act(progress: object) -> None:
        if error is not None:
            raise error

    err = io.StringIO()
    code = run_child(act, stdout=io.StringIO(), stderr=err)
    return code, err.getvalue()


def test_a_child_that_finishes_exits_with_zero_and_says_nothing() -> None:
    assert ending(None) == (0, "")


def test_a_domain_error_ends_the_child_with_its_exit_code_and_one_line() -> None:
    code, text = ending(NotFound("gone", hint="look"))
    assert code == ExitCode.NOT_FOUND
    before, line, after = text.split("\n")
    # It begins a line, whatever a library's log wrote before it.
    assert (before, after) == ("", "")
    assert json.loads(line.removeprefix("::error "))["message"] == "gone"


def test_somebody_at_a_terminal_reads_what_happened_and_what_to_do_next() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def act(progress: object) -> None:
        raise NotFound("gone", hint="look", reference="file-gone")

    err = Terminal()
    assert run_child(act, stdout=io.StringIO(), stderr=err) == ExitCode.NOT_FOUND
    assert err.getvalue() == "\nerror[file-gone]: gone\n  next: look\n"


@pytest.mark.parametrize(
    ("error", "reference"),
    [
        (OSError(errno.ENOSPC, "full", "/x/y"), "disk-full"),
        (MemoryError(), "host-memory-exhausted"),
    ],
)
def test_a_full_machine_is_not_a_bug(error: Exception, reference: str) -> None:
    code, text = ending(error)
    assert code == ExitCode.UNAVAILABLE
    back = parse_error(text.splitlines()[-1])
    assert back is not None
    assert back.name == reference
    assert "Traceback" not in text


def test_a_bug_leaves_its_traceback_above_the_error_line() -> None:
    code, text = ending(ZeroDivisionError("by zero"))
    assert code == ExitCode.BUG
    assert text.startswith("Traceback")
    back = parse_error(text.splitlines()[-1])
    assert back is not None
    assert back.message == "ZeroDivisionError: by zero"
