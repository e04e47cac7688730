"""Many promoters on one channel over S3: a total order without gaps, and nobody told a lie."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from threading import Barrier

import pytest

from engine_registry.errors import ChannelMoved
from engine_registry.events import Promoted
from engine_registry.registry import Registry
from engine_registry.testing.samples import (
    SAMPLE_ACTOR,
    SAMPLE_AT,
    SAMPLE_CHANNEL,
    sample_engine,
    sample_promotion,
    sample_release,
)
from engine_registry.verify import verify
from tests.servers.s3 import S3Server

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.usefixtures("s3_credentials")]


def race(server: S3Server, promoters: int) -> tuple[float, int]:
    """Each promotes once, deciding again whenever it was overtaken; seconds and requests taken."""
    url = server.url()
    server.founded(url)
    registry = Registry(server.stores(url), lambda: SAMPLE_AT)
    release = sample_release(registry, sample_engine(registry))
    start = Barrier(promoters)
    requests: list[str] = []
    server.client.meta.events.register("before-send.s3", lambda **kw: requests.append("1"))

    def promote(number: int) -> int:
        mine = Registry(server.stores(url), lambda: SAMPLE_AT)
        start.wait()
        while True:
            seen = mine.channels.state(SAMPLE_CHANNEL).number
            try:
                event, _ = mine.channels.append(
                    SAMPLE_CHANNEL,
                    decided_on=seen,
                    change=sample_promotion(release),
                    actor=SAMPLE_ACTOR,
                    at=SAMPLE_AT,
                    operation=f"promoter {number}",
                )
            except ChannelMoved:
                continue
            assert event.operation == f"promoter {number}"
            return event.number

    began = time.monotonic()
    with ThreadPoolExecutor(promoters) as pool:
        numbers = list(pool.map(promote, range(promoters)))
    took_s = time.monotonic() - began

    assert sorted(numbers) == list(range(1, promoters + 1))
    told = dict(zip(numbers, range(promoters), strict=True))
    events = registry.channels.events(SAMPLE_CHANNEL)
    assert [event.number for event, _ in events] == list(range(1, promoters + 1))
    for event, _ in events:
        assert event.operation == f"promoter {told[event.number]}"
        assert isinstance(event.change, Promoted)
    for (_, before), (event, _) in pairwise(events):
        assert event.previous == before
    assert verify(registry).mismatches == ()
    return took_s, len(requests)


def test_invariant_5_of_8_promoters_over_s3_each_gets_its_own_place_in_one_order(
    seaweed: S3Server, proved: Callable[[str], None]
) -> None:
    took_s, requests = race(seaweed, promoters=8)
    proved(f"8 events in order without a gap: {took_s:.1f} s, {requests} requests")
