"""Whose processor time it was, from the kernel's accounts."""

from __future__ import annotations

import os

import pytest

from engine_pipeline.gates.foreign import ProcessorTime, foreign_share, processor_time


def stat_line(pid: int, name: str, parent: int, user: int, system: int) -> str:
    rest = [str(parent), *["0"] * 9, str(user), str(system), "0"]
    return f"{pid} ({name}) S {' '.join(rest)}\n"


@pytest.fixture
def proc(tmp_path):
    """A machine on which this process, its grandchild and a stranger have been at work."""
    me = os.getpid()
    (tmp_path / "stat").write_text("cpu  100 20 30 800 50 0 0 0 7 7\ncpu0 1 2 3\n")
    for pid, name, parent, user in (
        (me, "pytest", 1, 10),
        (900001, "odd ) name", me, 5),
        (900002, "server", 900001, 40),
        (900003, "stranger", 1, 70),
    ):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(stat_line(pid, name, parent, user, 2))
    (tmp_path / "900004").mkdir()  # ended while it was looked at
    return tmp_path


def test_this_process_and_all_below_it_count_as_own(proc):
    assert processor_time(proc) == ProcessorTime(total=1000, busy=150, own=10 + 5 + 40 + 3 * 2)


def test_where_the_kernel_does_not_tell_nothing_is_said(tmp_path):
    assert processor_time(tmp_path) is None
    assert foreign_share(None, None) is None


def test_the_share_is_what_was_busy_and_not_ours():
    before = ProcessorTime(total=1000, busy=100, own=50)
    after = ProcessorTime(total=1200, busy=180, own=90)
    assert foreign_share(before, after) == 0.2
    assert foreign_share(after, after) is None
    # Ticks are rounded, so ours may come out above all that was busy.
    assert foreign_share(before, ProcessorTime(total=1200, busy=120, own=99)) == 0.0


def test_on_this_machine_the_accounts_only_grow():
    before = processor_time()
    if before is None:
        pytest.skip("no /proc here")
    total = sum(number * number for number in range(300_000))
    after = processor_time()
    assert total > 0
    assert after.own >= before.own
    assert after.busy <= after.total
