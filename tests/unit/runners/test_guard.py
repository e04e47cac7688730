"""The guard: a command never outlives whoever wanted it, and its end is told truthfully."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import pytest

from engine_pipeline.runners import guard

LIMIT_S = 30


@pytest.fixture
def alive_pipe():
    """A pipe whose reading end gives end-of-file once every process that inherited it is gone."""
    read, write = os.pipe()
    os.set_inheritable(write, True)
    yield read, write
    for end in (read, write):
        with suppress(OSError):
            os.close(end)


def everybody_is_gone(read: int) -> bool:
    """Whether all holders of the pipe end within the limit; blocks on the pipe, not on a clock."""
    import select

    ready, _, _ = select.select([read], [], [], LIMIT_S)
    return bool(ready) and os.read(read, 1) == b""


def start(argv, *, write=None, report=None, grace_s=guard.GRACE_S, **options):
    return subprocess.Popen(
        guard.command(argv, report=report, grace_s=grace_s),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=(write,) if write is not None else (),
        **options,
    )


def finish(process):
    """What it wrote; the life line stays open, unlike with `communicate`."""
    written = process.stdout.read(), process.stderr.read()
    process.wait(LIMIT_S)
    return written


# A command with a child of its own, which both inherit the pipe and wait for ever.
HOLD = ["/bin/sh", "-c", "sleep 1000 & echo up; wait"]


def test_output_and_status_pass_through():
    process = start(["/bin/sh", "-c", "echo out; echo err >&2; exit 7"])
    out, err = finish(process)
    assert (out, err, process.returncode) == (b"out\n", b"err\n", 7)


def test_a_command_ended_by_a_signal_gives_128_and_its_number():
    process = start(["/bin/sh", "-c", "kill -9 $$"])
    finish(process)
    assert process.returncode == 137


def test_a_command_that_does_not_exist_gives_127_and_says_so():
    process = start(["/no/such/command"])
    _, err = finish(process)
    assert process.returncode == 127
    assert b"/no/such/command: No such file" in err


def test_a_command_that_may_not_run_gives_126(tmp_path):
    (tmp_path / "plain").write_text("no program")
    process = start([str(tmp_path / "plain")])
    finish(process)
    assert process.returncode == 126


def test_the_command_has_nothing_to_read():
    process = start(["/bin/cat"])
    out, _ = finish(process)
    assert (out, process.returncode) == (b"", 0)


def test_the_report_has_time_and_peak_memory(tmp_path):
    program = "b = bytearray(80_000_000); b[::4096] = b'x' * len(b[::4096])"
    process = start([sys.executable, "-S", "-c", program], report=tmp_path / "report.json")
    finish(process)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["exit_code"] == 0
    assert report["signal"] is None
    assert 80_000_000 < report["peak_rss_bytes"] < 160_000_000
    assert report["wall_s"] > 0


def test_the_report_names_the_signal(tmp_path):
    process = start(["/bin/sh", "-c", "kill -9 $$"], report=tmp_path / "report.json")
    finish(process)
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["exit_code"], report["signal"]) == (None, 9)


def test_closing_the_pipe_ends_the_command_and_everything_it_started(alive_pipe):
    read, write = alive_pipe
    process = start(HOLD, write=write)
    os.close(write)
    assert process.stdout.readline() == b"up\n"
    process.stdin.close()
    assert everybody_is_gone(read)
    assert process.wait(LIMIT_S) == 128 + signal.SIGTERM


def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(alive_pipe):
    read, write = alive_pipe
    stubborn = ["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 1000; done"]
    process = start(stubborn, write=write, grace_s=0.1)
    os.close(write)
    assert process.stdout.readline() == b"up\n"
    process.stdin.close()
    assert everybody_is_gone(read)
    assert process.wait(LIMIT_S) == 137


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_to_the_guard_ends_the_command(alive_pipe, number):
    read, write = alive_pipe
    process = start(HOLD, write=write)
    os.close(write)
    assert process.stdout.readline() == b"up\n"
    process.send_signal(number)
    assert everybody_is_gone(read)
    assert process.wait(LIMIT_S) == 128 + signal.SIGTERM


def test_killing_the_guard_kills_its_command(alive_pipe):
    read, write = alive_pipe
    process = start(["/bin/sleep", "1000"], write=write)
    os.close(write)
    process.kill()
    assert everybody_is_gone(read)


def test_what_a_command_leaves_running_ends_with_it(alive_pipe):
    read, write = alive_pipe
    process = start(["/bin/sh", "-c", "sleep 1000 & exit 3"], write=write)
    os.close(write)
    assert everybody_is_gone(read)
    assert process.wait(LIMIT_S) == 3


PARENT = """
import os, subprocess, sys
from engine_pipeline.runners import guard
stdin = subprocess.PIPE if sys.argv[2] == "pipe" else subprocess.DEVNULL
argv = ["/bin/sh", "-c", "sleep 1000 & echo up; wait"]
held = subprocess.Popen(guard.command(argv), stdin=stdin, pass_fds=(int(sys.argv[1]),))
held.wait()
"""


@pytest.mark.parametrize("stdin", ["pipe", "nothing"])
def test_killing_the_parent_with_kill_9_leaves_no_orphan(alive_pipe, stdin):
    read, write = alive_pipe
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(write), stdin],
        stdout=subprocess.PIPE,
        pass_fds=(write,),
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    os.close(write)
    assert parent.stdout.readline() == b"up\n"
    parent.kill()
    parent.wait()
    assert everybody_is_gone(read)


def test_the_end_of_the_thread_that_started_it_does_not_end_the_command():
    started = []
    thread = threading.Thread(
        target=lambda: started.append(start(["/bin/sh", "-c", "echo up; sleep 0.2; echo end"]))
    )
    thread.start()
    thread.join()
    process = started[0]
    assert process.stdout.read() == b"up\nend\n"
    assert process.wait(LIMIT_S) == 0


@pytest.mark.parametrize("arguments", [[], ["--"], ["--colour", "red", "--", "/bin/true"]])
def test_a_wrong_call_is_refused(arguments):
    process = subprocess.run(
        [sys.executable, guard.__file__, *arguments],
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert process.returncode == 1
    assert process.stderr.startswith(b"guard: ")


def test_it_runs_as_a_module_too():
    process = subprocess.run(
        [sys.executable, "-m", "engine_pipeline.runners.guard", "--", "/bin/echo", "hello"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT_S,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (process.stdout, process.returncode) == (b"hello\n", 0)
