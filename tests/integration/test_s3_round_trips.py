"""Moves in a bucket: few requests however long the log, and as careful as on a disk."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from engine_pipeline.promote.moves import Desk
from engine_pipeline.promote.promote import promote
from engine_pipeline.promote.rollback import roll_back
from engine_pipeline.promote.say import hold, lift_hold
from engine_registry import layout
from engine_registry.documents import unseal
from engine_registry.errors import IntegrityError, NotFound
from engine_registry.events import ChannelState
from engine_registry.registry import Registry
from tests.servers.s3 import S3Server
from tests.servers.s3_fake import FakeS3, serving
from tests.set_world import ALICE, CHANNELS, POLICY, PRODUCTS, WANTED, Clock, released

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = pytest.mark.usefixtures("s3_credentials")
PROD = CHANNELS[0]
# See docs/benchmarks.md: six round trips, in which a file more is a request more.
ROLLBACK_REQUESTS = 17


@dataclass
class Bucket:
    """A registry in a bucket whose requests are told, with two releases that were live."""

    fake: FakeS3
    server: S3Server
    url: str
    clock: Clock

    def desk(self) -> Desk:
        """As a process of its own has it."""
        registry = Registry(self.server.stores(self.url), self.clock, self.url)
        return Desk(registry=registry, actor=ALICE, clock=self.clock)

    def key(self, name: str) -> str:
        (key,) = [key for key in self.fake.objects if key.endswith(name)]
        return key

    def lengthen(self, desk: Desk, moves: int) -> None:
        for _ in range(moves // 2):
            hold(desk, PROD, reason="look")
            lift_hold(desk, PROD, reason="over")


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    fake = FakeS3()
    with serving(fake) as endpoint:
        server = S3Server(endpoint)
        url = server.url()
        server.founded(url)
        made = Bucket(fake, server, url, Clock())
        desk = made.desk()
        for name in ("one", "two"):
            release = released(desk.registry, PRODUCTS[0], name)
            promote(desk, release, PROD, policy=POLICY, wanted=WANTED)
        yield made


@pytest.mark.parametrize("moves", [0, 40])
def test_a_rollback_takes_as_many_requests_on_a_long_log_as_on_a_short_one(
    bucket: Bucket, moves: int
) -> None:
    desk = bucket.desk()
    bucket.lengthen(desk, 4 + moves)
    bucket.fake.requests.clear()
    assert roll_back(desk, PROD, reason="slow").after.live.number == 1
    assert len(bucket.fake.requests) <= ROLLBACK_REQUESTS, bucket.fake.requests


def test_a_gap_in_the_log_is_found_before_a_move(bucket: Bucket) -> None:
    bucket.lengthen(bucket.desk(), 20)
    del bucket.fake.objects[bucket.key(layout.event(PROD, 5))]
    before = dict(bucket.fake.objects)
    with pytest.raises(IntegrityError, match="events 5 missing"):
        roll_back(bucket.desk(), PROD, reason="slow")
    assert bucket.fake.objects.keys() == before.keys()


def test_a_damaged_event_at_the_end_of_the_log_is_found_before_a_move(bucket: Bucket) -> None:
    bucket.lengthen(bucket.desk(), 20)
    number = bucket.desk().registry.channels.state(PROD).number
    stored = bucket.fake.objects[bucket.key(layout.event(PROD, number - 2))]
    stored.data = stored.data.replace(b"look", b"100k").replace(b"over", b"0ver")
    with pytest.raises(IntegrityError):
        roll_back(bucket.desk(), PROD, reason="slow")


def test_a_missing_file_of_the_target_is_found_before_the_move(bucket: Bucket) -> None:
    desk = bucket.desk()
    first = desk.registry.channels.state(PROD).history[1].live.engine
    layer = desk.registry.engines.manifest(first).layers[0]
    del bucket.fake.objects[bucket.key(layout.blob(layer.digest))]
    number = desk.registry.channels.state(PROD).number
    with pytest.raises(NotFound, match="not in the store"):
        roll_back(desk, PROD, reason="slow")
    assert desk.registry.channels.state(PROD).number == number


def test_processes_that_move_in_turn_keep_the_pointer_at_the_end_of_the_log(
    bucket: Bucket,
) -> None:
    desks = [bucket.desk(), bucket.desk()]
    for turn in range(8):
        act = lift_hold if turn % 2 else hold
        act(desks[turn // 3 % 2], PROD, reason="in turn")
    head = bucket.fake.objects[bucket.key(layout.head(PROD))].data
    pointed, _ = unseal(head, ChannelState, "head")
    assert pointed == bucket.desk().registry.channels.replay(PROD)
