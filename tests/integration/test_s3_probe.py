"""Stores that cannot decide between writers are found out before anything rests on them."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pytest

from engine_registry import layout
from engine_registry.backends.s3 import stores_in
from engine_registry.digest import Digest
from engine_registry.errors import Incompatible, Unavailable
from engine_registry.store import Depth, Stores
from engine_registry.testing.samples import SAMPLE_AT, TickingClock
from tests.servers.s3 import S3Server
from tests.servers.s3_fake import FakeS3, Habits, serving

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.usefixtures("s3_credentials")]


@contextmanager
def store(habits: Habits) -> Iterator[tuple[FakeS3, S3Server]]:
    fake = FakeS3(habits)
    with serving(fake) as endpoint:
        yield fake, S3Server(endpoint)


@pytest.mark.parametrize(
    ("habits", "named"),
    [
        (Habits(ignores_if_none_match=True), "If-None-Match: \\* let 8 of 8 writers create"),
        (Habits(ignores_if_match=True), "If-Match with another ETag replaced"),
        (Habits(ignores_if_none_match=True, ignores_if_match=True), "If-None-Match"),
        (Habits(racy=True), "let [2-8] of 8 writers (create|replace)"),
    ],
    ids=["no If-None-Match", "no If-Match", "neither, as s3rver", "racy"],
)
def test_a_store_that_ignores_conditions_is_refused_and_left_as_it_was(habits, named):
    with store(habits) as (fake, server):
        stores = server.stores()
        for write in (
            lambda: stores.documents.create("records/one.json", b"one"),
            lambda: stores.pointers.swap("channels/m/t/prod/head.json", None, b"one"),
            lambda: stores.blobs.add_bytes(b"one"),
        ):
            with pytest.raises(Incompatible, match=named) as caught:
                write()
            assert caught.value.name == "store-ignores-conditions"
            assert "file://" in caught.value.hint
        assert not fake.objects


def test_an_existing_registry_on_such_a_store_can_be_read_but_not_moved():
    with store(Habits()) as (fake, server):
        url = server.url()
        stores = server.founded(url)
        stored = stores.blobs.add_bytes(b"engine")
        fake.habits = Habits(ignores_if_match=True)
        for name in [key for key in fake.objects if "conditional-writes" in key]:
            del fake.objects[name]
        reopened = server.stores(url)
        reopened.blobs.check(stored.digest, 6, Depth.FULL)
        with pytest.raises(Incompatible):
            reopened.documents.create("records/one.json", b"one")
        with pytest.raises(Incompatible):
            reopened.pointers.swap("channels/m/t/prod/head.json", None, b"one")
        assert not [key for key in fake.objects if "one.json" in key or "head.json" in key]


def test_a_store_that_wants_bare_etags_works():
    with store(Habits(bare_etags=True)) as (_, server):
        stores = server.stores()
        first = stores.pointers.swap("channels/m/t/prod/head.json", None, b"1")
        stores.pointers.swap("channels/m/t/prod/head.json", first, b"2")
        value = stores.pointers.read("channels/m/t/prod/head.json")
        assert value is not None
        assert value.data == b"2"


def test_a_busy_store_is_not_taken_for_a_bad_one():
    with store(Habits(conflicts=12)) as (fake, server):
        server.stores().documents.create("records/one.json", b"one")
        assert fake.habits.conflicts == 0


def test_the_proof_is_remembered_in_the_bucket():
    with store(Habits()) as (fake, server):
        url = server.url()
        server.stores(url).documents.create("records/one.json", b"one")
        fake.requests.clear()
        server.stores(url).documents.create("records/two.json", b"two")
        assert not [request for request in fake.requests if "tmp/probe" in request]
        assert not [key for key in fake.objects if "tmp/" in key]


def test_another_endpoint_needs_a_proof_of_its_own():
    """A gateway in between may drop the headers that the store behind it honours."""
    with store(Habits()) as (fake, server):
        server.stores(server.url("p")).documents.create("records/one.json", b"one")
        fake.requests.clear()
        other = S3Server(server.endpoint.replace("127.0.0.1", "localhost"))
        other.stores(other.url("p")).documents.create("records/two.json", b"two")
        assert [request for request in fake.requests if "tmp/probe" in request]


def aged(server: S3Server, url: str, days: int) -> Stores:
    """The registry as seen so many days after it was founded."""
    clock = TickingClock(SAMPLE_AT + timedelta(days=days))
    return stores_in(server.bucket_at(url), clock)


def test_an_old_proof_is_renewed():
    with store(Habits()) as (fake, server):
        url = server.url()
        server.stores(url).documents.create("records/one.json", b"one")
        aged(server, url, 29).documents.create("records/two.json", b"two")
        fake.requests.clear()
        aged(server, url, 31).documents.create("records/three.json", b"three")
        assert [request for request in fake.requests if "tmp/probe" in request]
        fake.habits = Habits(ignores_if_none_match=True)
        with pytest.raises(Incompatible):
            aged(server, url, 62).documents.create("records/four.json", b"four")


def test_an_old_proof_that_cannot_be_renewed_still_counts():
    """Somebody with rights to one channel only must not be kept from rolling it back."""
    with store(Habits()) as (fake, server):
        url = server.url()
        server.stores(url).documents.create("records/one.json", b"one")
        fake.forbidden = ("/tmp/", "/cache/")
        assert aged(server, url, 31).documents.create("records/two.json", b"two")


def test_without_any_proof_missing_rights_are_named():
    with store(Habits()) as (fake, server):
        fake.forbidden = ("/tmp/",)
        with pytest.raises(Unavailable) as caught:
            server.stores().documents.create("records/one.json", b"one")
        assert caught.value.name == "store-access-denied"


def test_a_real_store_passes(seaweed: S3Server):
    stores = seaweed.stores()
    assert stores.documents.create("records/one.json", b"one")
    assert stores.documents.read(layout.REGISTRY)
    assert stores.blobs.add_bytes(b"x").digest == Digest.of(b"x")
