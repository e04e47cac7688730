"""What a killed writer leaves is removed by whoever writes the same name next, and nothing else."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from engine_registry.partial import partial_directory, partial_file

KINDS = pytest.mark.parametrize("make", [partial_file, partial_directory])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def killed(make: str, path: Path) -> None:
    code = f"""
import os, signal, sys, pathlib
from engine_registry.partial import {make}
with {make}(pathlib.Path(sys.argv[1])) as made:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    ran = subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    assert ran.returncode == -signal.SIGKILL


@KINDS
def test_it_is_hidden_named_after_what_it_becomes_and_gone_at_the_end(make, tmp_path):
    with make(tmp_path / "engine.tar") as made:
        assert made.parent == tmp_path
        assert made.name.startswith(".engine.tar.")
        assert names(tmp_path) == [made.name]
    assert names(tmp_path) == []


@KINDS
def test_what_was_renamed_stays(make, tmp_path):
    with make(tmp_path / "whole") as made:
        made.rename(tmp_path / "whole")
    assert names(tmp_path) == ["whole"]


@KINDS
def test_the_next_writer_of_the_name_removes_what_a_killed_one_left(make, tmp_path):
    killed(make.__name__, tmp_path / "engine.tar")
    [left] = names(tmp_path)
    with make(tmp_path / "other.tar"):
        assert left in names(tmp_path)
    with make(tmp_path / "engine.tar") as made:
        assert names(tmp_path) == [made.name] != [left]


@KINDS
def test_a_writer_at_work_and_files_of_others_are_left_alone(make, tmp_path):
    for name in (".engine.tar.partial", ".engine.tar.0123.partial", "engine.tar"):
        (tmp_path / name).write_text("mine")
    before = names(tmp_path)
    with make(tmp_path / "engine.tar") as first, make(tmp_path / "engine.tar") as second:
        assert names(tmp_path) == sorted([*before, first.name, second.name])
    assert names(tmp_path) == before


@KINDS
def test_the_longest_name_that_fits_can_be_written(make, tmp_path):
    with make(tmp_path / ("ä" * 127)) as made:
        assert made.exists()


@KINDS
def test_a_directory_that_is_not_there_is_an_error_of_the_system(make, tmp_path):
    with pytest.raises(FileNotFoundError), make(tmp_path / "nowhere" / "x"):
        pass
