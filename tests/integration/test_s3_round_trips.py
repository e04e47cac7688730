"""Moves in a bucket: few requests however long the log, and as careful as on a disk."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from engine_pipeline.promote.moves import Desk
from engine_pipeline.promote.promote import promote
from engine_pipeline.promote.rollback import roll_back
from engine_pipeline.promote.say import hold, lift_hold
from engine_registry import layout
from engine_registry.backends.s3.address import S3Address
from engine_registry.digest import Digest
from engine_registry.documents import seal, unseal
from engine_registry.errors import IntegrityError, NotFound
from engine_registry.events import ChannelState
from engine_registry.foresight import EngineNote, Note, Part
from engine_registry.manifest import REPORT_ARTIFACT
from engine_registry.refs import ReleaseRef
from engine_registry.registry import Registry
from engine_registry.verify import verify
from tests.servers.s3 import S3Server
from tests.servers.s3_fake import FakeS3, serving
from tests.set_world import ALICE, CHANNELS, POLICY, PRODUCTS, WANTED, Clock, released

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = pytest.mark.usefixtures("s3_credentials")
PROD = CHANNELS[0]
# See docs/stores.md: four round trips, in which a file more is a request more.
ROLLBACK_REQUESTS = 19


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


class Turnstile:
    """Lets requests in by the turn: each waits until all of its turn have come.

    A turn that never fills, because one of its requests waits for the answer to another, fails.
    """

    def __init__(self, *turns: set[str]) -> None:
        self.turns = [threading.Barrier(len(turn)) for turn in turns]
        self.turn_of = {key: number for number, turn in enumerate(turns) for key in turn}

    def __call__(self, method: str, key: str) -> None:
        # A folder is listed below no key of its own.
        number = self.turn_of.pop(f"{method} {key}", None)
        if number is not None:
            self.turns[number].wait(timeout=20)

    @property
    def all_came(self) -> bool:
        return not self.turn_of and not any(turn.broken for turn in self.turns)


def rollback_turns(bucket: Bucket, first: Digest) -> list[set[str]]:
    """What a rollback to this engine reads in its first and in its second round trip."""
    registry = bucket.desk().registry
    state, engine = registry.channels.state(PROD), registry.engines.engine(first)
    number = state.number
    place = S3Address.parse(bucket.url).key
    release = ReleaseRef(PROD.product, state.history[1].live.number)
    parts = (engine.manifest.config, *engine.manifest.layers)
    read = [
        *(layout.event(PROD, n) for n in (number - 1, number, number + 1)),
        layout.release(release),
        layout.blob(first),
        *(layout.record(first, record.build_key) for record in engine.records),
    ]
    return [
        {f"GET {place(name)}" for name in (layout.head(PROD), layout.note(PROD))},
        {
            *(f"GET {place(name)}" for name in read),
            *(f"HEAD {place(layout.blob(part.digest))}" for part in parts),
        },
    ]


def test_a_rollback_reads_everything_in_two_round_trips_and_then_commits(bucket: Bucket) -> None:
    first = bucket.desk().registry.channels.state(PROD).history[1].live.engine
    turnstile = Turnstile(*rollback_turns(bucket, first))
    desk = bucket.desk()
    desk.registry.info()
    bucket.fake.requests.clear()
    bucket.fake.before = turnstile
    assert roll_back(desk, PROD, reason="slow").after.live.engine == first
    assert turnstile.all_came
    committed = [r.startswith("PUT") and "/events/" in r for r in bucket.fake.requests].index(True)
    assert not [r for r in bucket.fake.requests[committed:] if not r.startswith("PUT")]


def test_the_first_act_of_a_process_does_not_wait_until_it_knows_the_registry(
    bucket: Bucket,
) -> None:
    first = bucket.desk().registry.channels.state(PROD).history[1].live.engine
    pointer, rest = rollback_turns(bucket, first)
    place = S3Address.parse(bucket.url).key
    turnstile = Turnstile(pointer | {f"GET {place(layout.REGISTRY)}"}, rest)
    desk = bucket.desk()
    bucket.fake.before = turnstile
    assert roll_back(desk, PROD, reason="slow").after.live.engine == first
    assert turnstile.all_came


def without(bucket: Bucket) -> None:
    del bucket.fake.objects[bucket.key(layout.note(PROD))]


def damaged(bucket: Bucket) -> None:
    bucket.fake.objects[bucket.key(layout.note(PROD))].data = b"no note at all"


def forged(bucket: Bucket) -> None:
    """It says that the target consists of a file that is there and of one that is not."""
    registry = bucket.desk().registry
    state = registry.channels.state(PROD)
    there = registry.engines.manifest(state.history[0].live.engine).layers[0]
    parts = [Part(digest=there.digest, size=there.size), Part(digest=Digest.of(b"no"), size=2)]
    engine = state.history[1].live.engine
    note = Note(engines=(EngineNote(engine=engine, parts=tuple(parts), records=()),))
    bucket.fake.objects[bucket.key(layout.note(PROD))].data = seal(note)


def refused(bucket: Bucket) -> None:
    bucket.fake.forbidden = ("cache/rollback",)


SPOILT = pytest.mark.parametrize("spoil", [without, damaged, forged, refused])


@SPOILT
def test_a_rollback_needs_no_note_and_believes_none(
    bucket: Bucket, spoil: Callable[[Bucket], None]
) -> None:
    spoil(bucket)
    desk = bucket.desk()
    assert roll_back(desk, PROD, reason="slow").after.live.number == 1
    assert desk.registry.channels.replay(PROD).live == desk.registry.channels.state(PROD).live


@SPOILT
def test_whatever_the_note_says_a_missing_file_stops_the_rollback(
    bucket: Bucket, spoil: Callable[[Bucket], None]
) -> None:
    spoil(bucket)
    desk = bucket.desk()
    first = desk.registry.channels.state(PROD).history[1].live.engine
    layer = desk.registry.engines.manifest(first).layers[0]
    del bucket.fake.objects[bucket.key(layout.blob(layer.digest))]
    with pytest.raises(NotFound, match="not in the store"):
        roll_back(desk, PROD, reason="slow")


def test_a_file_that_vanishes_after_the_note_was_read_stops_the_rollback(bucket: Bucket) -> None:
    desk = bucket.desk()
    first = desk.registry.channels.state(PROD).history[1].live.engine
    layer = bucket.key(layout.blob(desk.registry.engines.manifest(first).layers[0].digest))

    def vanish(_: str, key: str) -> None:
        if key.endswith(layout.release(ReleaseRef(PROD.product, 1))):
            bucket.fake.objects.pop(layer, None)
        elif key == layer:
            gone.wait(20)
        if layer not in bucket.fake.objects:
            gone.set()

    gone = threading.Event()
    bucket.fake.before = vanish
    with pytest.raises(NotFound, match="not in the store"):
        roll_back(desk, PROD, reason="slow")
    bucket.fake.before = lambda *_: None
    assert desk.registry.channels.state(PROD).live.number == 2


def test_a_channel_that_moves_after_its_pointer_was_read_is_rolled_back_as_it_is(
    bucket: Bucket,
) -> None:
    """What was begun for the old state helps nobody, and harms nobody."""
    other = bucket.desk()
    third = released(other.registry, PRODUCTS[0], "three")

    def overtake(_: str, key: str) -> None:
        if key.endswith(layout.event(PROD, 3)):
            bucket.fake.before = lambda *_: None
            promote(other, third, PROD, policy=POLICY, wanted=WANTED)

    bucket.fake.before = overtake
    moved = roll_back(bucket.desk(), PROD, reason="slow")
    assert moved.before.live.number == 3
    assert moved.after.live.number == 2


def test_notes_are_no_part_of_the_registry(bucket: Bucket) -> None:
    registry = bucket.desk().registry
    assert bucket.key(layout.note(PROD))
    assert verify(registry).mismatches == ()
    listed = {file.name for file in registry.stores.inventory.files()}
    listed |= {file.name for file in registry.stores.trash.aged()}
    assert listed
    assert not [name for name in listed if name.startswith(layout.CACHE)]


@pytest.mark.parametrize("reports", [1, 6])
def test_a_promotion_asks_for_what_it_judges_at_once(bucket: Bucket, reports: int) -> None:
    """Every report is a request; none of them is a round trip."""
    desk = bucket.desk()
    third = released(desk.registry, PRODUCTS[0], "three")
    engine = third.content.engine
    (report,) = desk.registry.engines.referrers(engine, REPORT_ARTIFACT)
    for number in range(1, reports):
        desk.registry.engines.attach(
            engine, REPORT_ARTIFACT, [("report.json", b"%d" % number, "application/json")]
        )
    place = S3Address.parse(bucket.url).key
    links = [link.manifest for link in desk.registry.engines.referrers(engine, REPORT_ARTIFACT)]
    assert report.manifest in links
    turnstile = Turnstile(
        {f"GET {place(layout.head(PROD))}", f"GET {place(layout.blob(engine))}"},
        {f"GET {place(layout.referrer(engine, link))}" for link in links},
    )
    bucket.fake.before = turnstile
    assert promote(desk, third, PROD, policy=POLICY, wanted=WANTED).after.live.number == 3
    assert turnstile.all_came


def test_a_gap_in_the_log_stops_what_can_wait_and_no_rollback(bucket: Bucket) -> None:
    bucket.lengthen(bucket.desk(), 20)
    del bucket.fake.objects[bucket.key(layout.event(PROD, 5))]
    with pytest.raises(IntegrityError, match="events 5 missing"):
        bucket.desk().registry.channels.checked_state(PROD)
    moved = roll_back(bucket.desk(), PROD, reason="slow")
    assert bucket.desk().registry.channels.state(PROD) == moved.after


def damage_event(bucket: Bucket, number: int) -> None:
    stored = bucket.fake.objects[bucket.key(layout.event(PROD, number))]
    stored.data = stored.data.replace(b"look", b"100k").replace(b"over", b"0ver")


def test_a_damaged_event_near_the_end_of_the_log_stops_what_can_wait_and_no_rollback(
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    bucket.lengthen(bucket.desk(), 20)
    number = bucket.desk().registry.channels.state(PROD).number
    damage_event(bucket, number - 2)
    with pytest.raises(IntegrityError):
        bucket.desk().registry.channels.checked_state(PROD)
    moved = roll_back(bucket.desk(), PROD, reason="slow")
    assert bucket.desk().registry.channels.state(PROD) == moved.after
    assert layout.event(PROD, number - 2) in caplog.text


def test_a_damaged_newest_event_is_found_before_a_rollback(bucket: Bucket) -> None:
    bucket.lengthen(bucket.desk(), 20)
    damage_event(bucket, bucket.desk().registry.channels.state(PROD).number)
    before = dict(bucket.fake.objects)
    with pytest.raises(IntegrityError):
        roll_back(bucket.desk(), PROD, reason="slow")
    assert bucket.fake.objects.keys() == before.keys()


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
