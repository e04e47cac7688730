"""What a proof counted is printed at the end of a run, however many workers ran it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CONFTEST = Path(__file__).parents[1] / "conftest.py"
PROOFS = """
import pytest

@pytest.mark.parametrize("many", [7, 12])
def test_it_holds_everywhere(many, proved):
    print("lost in a worker")
    proved(f"{many} times")

def test_it_breaks(proved):
    proved("3 times")
    raise AssertionError

def test_of_nothing_to_count():
    pass
"""


def test_each_proof_says_in_a_line_of_its_own_what_it_counted_in_a_worker(tmp_path: Path):
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text())
    (tmp_path / "test_proofs.py").write_text(PROOFS)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "xdist", "-n", "1"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # starts in half the time
        capture_output=True,
        text=True,
        check=False,
    )
    told = done.stdout.partition(" proved ")[2].splitlines()
    assert told[1:4] == [
        "it_breaks: 3 times",
        "it_holds_everywhere[12]: 12 times",
        "it_holds_everywhere[7]: 7 times",
    ]
    assert "of_nothing_to_count:" not in done.stdout
