"""Collectors over a bucket that are cut off at a request, or meet writers; nothing is lost.

Here one request and few writers; at night (`test_s3_gc_nightly.py`) every request and many.
"""

from pathlib import Path

import pytest

from tests.faults.s3_collecting import (
    assert_nothing_lost,
    bucket_world,
    cut_off_discard,
    fast_bucket,
    race,
)
from tests.faults.test_gc_crashes import fill
from tests.servers.s3_faults import Fault

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = [pytest.mark.xdist_group("s3-faults"), pytest.mark.usefixtures("s3_credentials")]


def test_invariant_8_a_discard_cut_off_at_a_request_loses_nothing_and_a_rerun_finishes() -> None:
    with bucket_world() as world:
        fill(world)
        cut_off_discard(world, Fault.LOST, 150)
        world.empty_trash()


def test_invariant_8_writers_and_two_collectors_lose_nothing_in_a_bucket(tmp_path: Path) -> None:
    """Copies settle within a minute here: longer than any act of a writer takes."""
    with fast_bucket(times=60) as opened:
        race(opened, writers=2, collectors=2, rounds=3, folder=tmp_path)
        assert_nothing_lost(opened(), writers=2)
