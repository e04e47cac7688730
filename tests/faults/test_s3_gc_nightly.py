"""The long runs of collectors over a bucket: every request, and many writers meanwhile."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine_registry.errors import Unavailable
from engine_registry.events import RolledBack
from engine_registry.gc import Collector
from engine_registry.refs import ReleaseRef
from engine_registry.registry import open_registry
from engine_registry.testing.samples import SAMPLE_CHANNEL, SAMPLE_PRODUCT, live, sample_event
from tests.faults.s3_collecting import (
    BucketWorld,
    assert_nothing_lost,
    bucket_world,
    cut_off_discard,
    dies_at,
    fast_bucket,
    race,
    stumbles_at,
)
from tests.faults.test_gc_crashes import fill
from tests.gc_world import assert_whole, numbers_of
from tests.servers.s3 import S3Server
from tests.servers.s3_faults import Fault

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = [
    pytest.mark.nightly,
    pytest.mark.xdist_group("s3"),
    pytest.mark.usefixtures("s3_credentials"),
]

LAST_WORDS = [Fault.RESET, Fault.LOST]
WRITERS = 8
ROUNDS = int(os.environ.get("ENGINE_CI_S3_GC_ROUNDS", "4"))


@pytest.fixture(scope="module")
def filled(s3_credentials: None) -> Iterator[BucketWorld]:
    """Three releases of which two may go, an engine without a release, half an upload."""
    with bucket_world() as world:
        fill(world)
        yield world


@pytest.fixture(scope="module")
def rolled_back(s3_credentials: None) -> Iterator[BucketWorld]:
    """As `filled`, and discarded; then the first release was named again, past all rescues.

    The purge has to put it back before it purges.
    """
    with bucket_world() as world:
        fill(world)
        first = world.registry().releases.release(ReleaseRef(SAMPLE_PRODUCT, 1))
        world.collector().discard()
        sample_event(world.registry(), RolledBack(to=live(first), reason="three is slow"))
        world.save()
        yield world


@pytest.mark.parametrize("last", LAST_WORDS)
def test_a_discard_cut_off_at_every_request(
    filled: BucketWorld, last: Fault, proved: Callable[[str], None]
) -> None:
    requests = total(filled, Collector.discard)
    filled.assert_only_third_is_left()
    for at in range(1, requests + 1):
        cut_off_discard(filled, last, at)
        if at % 2:
            filled.empty_trash()
    proved(f"cut off at each of {requests} requests, nothing lost")


@pytest.mark.parametrize("last", LAST_WORDS)
def test_a_purge_cut_off_at_every_request(
    rolled_back: BucketWorld, last: Fault, proved: Callable[[str], None]
) -> None:
    requests = total(rolled_back, Collector.purge)
    assert_put_back(rolled_back)
    for at in range(1, requests + 1):
        rolled_back.load()
        with pytest.raises(Unavailable):
            rolled_back.run(Collector.purge, dies_at(at, last))
        rolled_back.collector().purge()
        assert_put_back(rolled_back)
    proved(f"cut off at each of {requests} requests, nothing lost")


@pytest.mark.parametrize("fault", [Fault.ERROR, Fault.RESET, Fault.LOST, Fault.TRUNCATED])
def test_a_discard_does_not_notice_one_fault_at_every_fifth_request(
    filled: BucketWorld, fault: Fault, proved: Callable[[str], None]
) -> None:
    requests = total(filled, Collector.discard)
    places = range(1 + list(Fault).index(fault) % 5, requests + 1, 5)
    for at in places:
        filled.load()
        filled.run(Collector.discard, stumbles_at(at, fault))
        filled.assert_only_third_is_left()
    proved(f"{len(places)} discards, nothing noticed")


def test_eight_writers_and_two_collectors_of_a_real_store_lose_nothing(
    seaweed: S3Server, tmp_path: Path, proved: Callable[[str], None]
) -> None:
    url = seaweed.url()
    seaweed.founded(url)
    done = race(lambda: open_registry(url), WRITERS, 2, ROUNDS, tmp_path)
    assert_nothing_lost(open_registry(url), WRITERS)
    proved(f"{dict(done)}")


def test_eight_writers_and_two_collectors_that_purge_lose_nothing(
    tmp_path: Path, proved: Callable[[str], None]
) -> None:
    """Copies settle within half a minute, so that purges meet discards and restores."""
    with fast_bucket(times=120) as opened:
        done = race(opened, WRITERS, 2, 4 * ROUNDS, tmp_path)
        assert done["purged"] > 0
        assert_nothing_lost(opened(), WRITERS)
    proved(f"{dict(done)}")


def total(world: BucketWorld, act) -> int:
    """How many requests the act takes when nothing goes wrong."""
    world.load()
    requests = world.run(act, lambda *_: None)
    assert requests > 100
    return requests


def assert_put_back(world: BucketWorld) -> None:
    registry = world.seen()
    assert registry.channels.state(SAMPLE_CHANNEL).live.number == 1
    assert numbers_of(registry) == [1, 2, 3]  # on hold: the whole window is kept
    assert_whole(registry)
