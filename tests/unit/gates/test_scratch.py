"""Scratch directories: private, gone afterwards, swept only when their owner is dead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from engine_pipeline.gates.scratch import scratch, sweep
from engine_registry.errors import Unavailable

KILLED_INSIDE = """
import os, signal, sys
from pathlib import Path
from engine_pipeline.gates.scratch import scratch
with scratch(Path(sys.argv[1])) as directory:
    (directory / "engine").mkdir()
    (directory / "engine" / "model.gguf").write_bytes(b"x")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def leave_one_behind(workdir: Path) -> None:
    subprocess.run([sys.executable, "-c", KILLED_INSIDE, str(workdir)], check=False)
    assert len(list(workdir.iterdir())) == 2


def test_a_directory_is_empty_at_first_and_gone_afterwards(tmp_path):
    with scratch(tmp_path / "work") as directory:
        assert list(directory.iterdir()) == []
        (directory / "file").write_text("x")
    assert list((tmp_path / "work").iterdir()) == []


def test_it_is_gone_after_an_error_too(tmp_path):
    with pytest.raises(KeyboardInterrupt), scratch(tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_run_left_is_swept_by_the_next(tmp_path):
    leave_one_behind(tmp_path)
    with scratch(tmp_path) as directory:
        assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [directory.name]
    assert list(tmp_path.iterdir()) == []


def test_sweeping_leaves_a_living_run_and_foreign_files_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "gate-reports").mkdir()
    with scratch(tmp_path) as first, scratch(tmp_path) as second:
        sweep(tmp_path)
        assert first.is_dir()
        assert second.is_dir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gate-reports", "notes.txt"]


def test_a_place_that_cannot_be_used_is_named(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(Unavailable, match="cannot make a directory in"), scratch(tmp_path / "file"):
        pass
