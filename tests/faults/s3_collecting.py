"""A registry in a bucket whose objects a test lets grow older, and a collector that can be cut off.

It is read without the store in between, from what lies in it: quicker than over HTTP. And races of
writers and collectors over any bucket.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from engine_registry.backends.memory import memory_stores
from engine_registry.backends.s3.bucket import Patience
from engine_registry.errors import Unavailable
from engine_registry.gc import Collector
from engine_registry.registry import Registry
from engine_registry.verify import verify
from tests.faults.collecting import PRODUCT, collect, write
from tests.faults.s3_story import stored
from tests.gc_world import COLLECTOR, DAY, TIGHT, assert_whole, engines_of, numbers_of
from tests.servers.s3 import S3Server
from tests.servers.s3_fake import FakeS3, Stored, serving
from tests.servers.s3_faults import Fault, FaultyProxy, Plan, proxied

# A fault is over with the next try, or never.
PATIENCE = Patience(attempts=3, pause_s=0, connect_s=5, read_s=1)
PREFIX = "p"


class BucketWorld:
    """What `tests.gc_world.World` is, for a bucket."""

    kind = "bucket"

    def __init__(self, fake: FakeS3, proxy: FaultyProxy, direct: S3Server, front: S3Server) -> None:
        self.fake = fake
        self.proxy = proxy
        self._direct = direct
        self._front = front
        self._saved: dict[str, Stored] = {}
        self.shift = timedelta(0)
        direct.founded(direct.url(PREFIX))

    def clock(self) -> datetime:
        return datetime.now(UTC) + self.shift

    def registry(self, *, through_proxy: bool = False) -> Registry:
        """As a new process sees it."""
        server = self._front if through_proxy else self._direct
        return Registry(server.stores(server.url(PREFIX)), self.clock)

    def collector(self, *, through_proxy: bool = False) -> Collector:
        registry = self.registry(through_proxy=through_proxy)
        return Collector(registry, lambda _: TIGHT, actor=COLLECTOR, grace=DAY)

    def contents(self) -> dict[str, bytes]:
        objects = self.fake.objects.copy()
        return stored({key.removeprefix(f"{PREFIX}/"): held.data for key, held in objects.items()})

    def seen(self) -> Registry:
        return Registry(memory_stores(self.clock, self.contents()), self.clock)

    def names(self, *, trash: bool = False) -> set[str]:
        return {name for name in self.contents() if name.startswith("trash/") == trash}

    def pass_time(self, span: timedelta) -> None:
        self.fake.age(span)
        self.shift += span

    def save(self) -> None:
        self._saved = {key: copy(held) for key, held in self.fake.objects.items()}

    def load(self) -> None:
        """The registry as it was saved, everything in it two days old."""
        self.proxy.restart(lambda *_: None)
        self.fake.objects.clear()
        self.fake.objects.update({key: copy(held) for key, held in self._saved.items()})
        self.shift = timedelta(0)
        self.pass_time(2 * DAY)

    def run(self, act: Callable[[Collector], object], plan: Plan) -> int:
        """One act of a collector whose requests go wrong as planned; how many there were."""
        self.proxy.restart(plan)
        try:
            act(self.collector(through_proxy=True))
        finally:
            requests = self.proxy.requests
            self.proxy.restart(lambda *_: None)
        return requests

    def empty_trash(self) -> None:
        """Collect and purge as the jobs of the next days would."""
        self.pass_time(2 * DAY)
        self.collector().discard()
        self.pass_time(2 * DAY)
        self.collector().purge()
        assert self.names(trash=True) == set()
        self.assert_only_third_is_left()

    def assert_only_third_is_left(self) -> None:
        assert numbers_of(self.seen()) == [3]
        assert len(engines_of(self.seen())) == 1
        assert_whole(self.seen())


@contextmanager
def bucket_world() -> Iterator[BucketWorld]:
    fake = FakeS3()
    with serving(fake) as endpoint, proxied(endpoint) as (proxy, front):
        direct = S3Server(endpoint, fake.bucket, PATIENCE)
        yield BucketWorld(fake, proxy, direct, S3Server(front, fake.bucket, PATIENCE))


def cut_off_discard(world: BucketWorld, last: Fault, at: int) -> None:
    """A discard that dies at this request, and one that finishes it."""
    world.load()
    with pytest.raises(Unavailable):
        world.run(Collector.discard, dies_at(at, last))
    assert_whole(world.seen())  # at once and without anybody's help
    world.collector().discard()
    world.assert_only_third_is_left()


def dies_at(at: int, last: Fault) -> Plan:
    """Nothing arrives any more from this request on: the same as a process that dies there."""

    def plan(number: int, _method: str, _path: str) -> Fault | None:
        return None if number < at else last if number == at else Fault.ERROR

    return plan


def stumbles_at(at: int, fault: Fault) -> Plan:
    """One request goes wrong."""
    return lambda number, _method, _path: fault if number == at else None


def race(
    opened: Callable[[], Registry], writers: int, collectors: int, rounds: int, folder: Path
) -> Counter[str]:
    """Writers and collectors at once, each as in a process of its own; what they did together."""
    stop = folder / "stop"
    with ThreadPoolExecutor(writers + collectors) as pool:
        collecting = [pool.submit(collect, opened(), n, stop) for n in range(collectors)]
        writing = [pool.submit(write, opened(), n, rounds) for n in range(writers)]
        try:
            promoted = [writer.result()["promotions"] for writer in writing]
        finally:
            stop.touch()
        done = Counter[str]()
        for one in (*writing, *collecting):
            done.update(one.result())
        for not_a_count in ("writer", "collector", "longest_wait_s"):
            del done[not_a_count]
    assert all(count >= rounds for count in promoted)
    assert done["discarded"] > 0
    return done


def assert_nothing_lost(registry: Registry, writers: int) -> None:
    """After a last collection everything that is reachable is in sight and whole."""
    last = Collector(registry, lambda _: TIGHT, actor=COLLECTOR, grace=timedelta(0))
    last.discard()
    assert_whole(registry)
    assert verify(registry).mismatches == ()
    channels = registry.channels.channels(PRODUCT)
    assert {f"{PRODUCT}/writer-{n}" for n in range(writers)} <= set(map(str, channels))
    for ref in channels:
        registry.engines.check_engine(registry.channels.state(ref).live.engine)
        assert registry.channels.replay(ref) == registry.channels.state(ref)


@contextmanager
def fast_bucket(times: int) -> Iterator[Callable[[], Registry]]:
    """Opens a registry in a store whose clock runs so many times too fast."""
    fake = FakeS3()
    began = time.time()
    fake.now = lambda: began + (time.time() - began) * times
    with serving(fake) as endpoint:
        server = S3Server(endpoint, fake.bucket)
        url = server.url(PREFIX)
        server.founded(url)
        yield lambda: Registry(server.stores(url), lambda: datetime.now(UTC))
