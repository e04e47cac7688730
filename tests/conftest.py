"""In which order tests run, whether they may be skipped, and what is told at the end of a run.

What takes longest runs first, so that no worker is left alone with it. What the proofs counted is
told at the end: what they print is lost in workers. With `ENGINE_CI_REQUIRE_ALL=1`, as at night, a
test that skips itself because something is not installed fails: a proof that did not run is none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from functools import partial

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

_PROVED = "proved"
_REQUIRE_ALL = "ENGINE_CI_REQUIRE_ALL"

# Each is one worker's: its servers start once. Those of the first compute, those of the second
# mostly wait, so the two go together.
_FIRST = ("model", "docker", "s3", "s3-faults", "chromium")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    group = item.get_closest_marker("xdist_group")
    return _FIRST.index(group.args[0]) if group and group.args[0] in _FIRST else len(_FIRST)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    expected = hasattr(report, "wasxfail")
    if report.skipped and not expected and os.environ.get(_REQUIRE_ALL) == "1":
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{why} ({_REQUIRE_ALL}=1: nothing may be left out)"
    return report


@pytest.fixture
def proved(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Takes a line on what a proof went through and counted."""
    return partial(record_property, _PROVED)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print a line for each, passed or not; workers send them with their tests' outcomes."""
    lines = sorted(
        f"{report.nodeid.rpartition('::')[2].removeprefix('test_')}: {text}"
        for reports in terminalreporter.stats.values()
        for report in reports
        if isinstance(report, pytest.TestReport) and report.when == "call"
        for name, text in report.user_properties
        if name == _PROVED
    )
    if lines:
        terminalreporter.section("proved")
        for line in lines:
            terminalreporter.write_line(line)
