"""Random histories of a product against a model: every act does what it should, or nothing."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.properties.registry_history import History, World

# Long enough for a collection to matter, short enough that a channel's log is read in no time.
STEPS = 200
# `make history` sets 50,000, for each change.
NIGHTLY_STEPS = int(os.environ.get("ENGINE_CI_HISTORY_STEPS", "1000000"))


def histories(folder: Path, first_seed: int, steps: int) -> tuple[Counter[str], float]:
    """So many steps in histories of their own; what was done, and the seconds it took."""
    world = World(folder)
    counts: Counter[str] = Counter()
    began = time.monotonic()
    seed = first_seed
    while counts["steps"] < steps:
        history = History(world, seed)
        try:
            history.run(STEPS)
        except BaseException as error:
            error.add_note(f"history {seed}, after {history.counts['steps']} steps")
            raise
        counts += history.counts
        seed += 1
    return counts, time.monotonic() - began


def test_in_any_history_the_registry_agrees_with_the_model(
    tmp_path: Path, proved: Callable[[str], None]
) -> None:
    counts, took_s = histories(tmp_path, 0, 2_000)
    for what in ("promoted", "rolled back", "refusals", "deaths", "collected", "releases removed"):
        assert counts[what] > 0, what
    proved(f"{dict(counts)}, {took_s:.1f} s")


@pytest.mark.nightly
@pytest.mark.parametrize("part", range(8))
def test_in_any_of_very_many_steps_the_registry_agrees_with_the_model(
    tmp_path: Path, part: int, proved: Callable[[str], None]
) -> None:
    counts, took_s = histories(tmp_path, 1_000_000 * (part + 1), NIGHTLY_STEPS // 8)
    proved(f"{dict(counts)}, {took_s:.0f} s")
