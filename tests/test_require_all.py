"""At night nothing may be left out: a test that skips itself fails there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TESTS = """
import pytest

def test_good():
    pass

def test_without_a_database():
    pytest.skip("no database here")

@pytest.mark.skipif(True, reason="no browser here")
def test_without_a_browser():
    pass

@pytest.mark.xfail
def test_that_is_known_to_fail():
    assert False
"""


@pytest.mark.parametrize(
    ("required", "counts"),
    [("1", "1 failed, 1 passed, 1 xfailed, 1 error"), ("", "1 passed, 2 skipped, 1 xfailed")],
)
def test_what_is_skipped_fails_where_everything_is_required(tmp_path, required, counts):
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "tests.conftest", str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "ENGINE_CI_REQUIRE_ALL": required},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert counts in ran.stdout
    assert ("no database here (ENGINE_CI_REQUIRE_ALL=1: nothing may" in ran.stdout) is bool(
        required
    )
    assert "no browser here" in ran.stdout
