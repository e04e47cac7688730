"""What the trash over a bucket does where a copy and a delete meet others between the two."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from threading import Lock

import pytest

from engine_registry import layout
from engine_registry.backends.s3 import stores_in
from engine_registry.backends.s3.address import S3Address
from engine_registry.backends.s3.blobs import S3Blobs
from engine_registry.backends.s3.bucket import Bucket
from engine_registry.backends.s3.copies import Copies
from engine_registry.backends.s3.objects import Objects
from engine_registry.backends.s3.root import S3Root
from engine_registry.backends.s3.trash import MOVES_WITHIN, REPLACEABLE, SETTLED, S3Trash
from engine_registry.digest import Digest
from engine_registry.errors import Incompatible, Unavailable
from engine_registry.store import Depth, Ownership, Stores
from engine_registry.testing.samples import TickingClock
from tests.servers.s3 import S3Server
from tests.servers.s3_fake import FakeS3, Habits, serving
from tests.servers.s3_faults import Fault, proxied

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.usefixtures("s3_credentials")]

AT_ONCE = timedelta(0)
DAY = timedelta(days=1)
DOCUMENT = "records/aa/engine/key.json"
DATA = b"engine bytes " * 100
BLOB = layout.blob(Digest.of(DATA))
NAMES = pytest.mark.parametrize("name", [DOCUMENT, BLOB])


@dataclass
class Place:
    """A registry with a document and a blob, a day old, in a fake store."""

    fake: FakeS3
    server: S3Server
    url: str

    @property
    def prefix(self) -> str:
        return S3Address.parse(self.url).prefix

    def stores(self) -> Stores:
        """As a process of its own would see them."""
        return self.server.stores(self.url)

    def trash(self, **options: object) -> S3Trash:
        root = S3Root(Objects(self.server.bucket_at(self.url)), TickingClock())
        return S3Trash(root, **options)

    def data(self, name: str) -> bytes | None:
        held = self.fake.objects.get(f"{self.prefix}{name}")
        return held.data if held else None

    def once_before(self, method: str, name: str, act: Callable[[], object]) -> None:
        """Do something when this request is about to be looked at, the first time."""
        lock = Lock()
        armed = [act]

        def before(asked: str, key: str) -> None:
            with lock:
                due = (
                    armed.pop() if (asked, key) == (method, self.prefix + name) and armed else None
                )
            if due is not None:
                due()

        self.fake.before = before


@contextmanager
def place(habits: Habits | None = None) -> Iterator[Place]:
    fake = FakeS3(habits)
    with serving(fake) as endpoint:
        server = S3Server(endpoint)
        url = server.url()
        stores = server.founded(url)
        stores.documents.create(DOCUMENT, b"one")
        stores.blobs.add_bytes(DATA)
        fake.age(DAY)
        yield Place(fake, server, url)


@pytest.fixture
def here() -> Iterator[Place]:
    with place() as found:
        yield found


@NAMES
def test_what_is_restored_at_once_stays_in_the_trash_until_it_settled(here, name):
    trash = here.trash()
    before = here.data(name)
    assert trash.discard(name, DAY / 2)
    assert trash.restore(name)
    assert here.data(name) == here.data(layout.trash(name)) == before
    assert not trash.restore(name)
    assert not trash.purge(name, AT_ONCE)
    here.fake.age(SETTLED + timedelta(seconds=2))
    assert trash.purge(name, AT_ONCE)
    assert here.data(name) == before
    assert here.data(layout.trash(name)) is None


@NAMES
def test_what_settled_before_it_is_restored_leaves_the_trash(here, name):
    trash = here.trash()
    before = here.data(name)
    assert trash.discard(name, DAY / 2)
    here.fake.age(SETTLED + timedelta(seconds=2))
    assert trash.restore(name)
    assert here.data(name) == before
    assert here.data(layout.trash(name)) is None
    assert not trash.discard(name, timedelta(minutes=1))  # restored just now


@NAMES
@pytest.mark.parametrize("back", ["restored", "written again"])
def test_a_delete_that_comes_late_never_takes_the_last_bytes(here, name, back):
    """Another collector discards between our last look and our delete, and the name is back."""
    before = here.data(name)

    def others() -> None:
        assert here.trash().discard(name, AT_ONCE)
        if back == "restored":
            assert here.trash().restore(name)
        else:
            stores = here.stores()
            stores.documents.create(DOCUMENT, b"one")
            stores.blobs.add_bytes(DATA)

    here.once_before("DELETE", name, others)
    assert here.trash().discard(name, AT_ONCE)  # equal bytes have an equal ETag: nothing objects
    assert here.data(name) is None
    assert not here.trash().purge(name, AT_ONCE)
    assert here.data(layout.trash(name)) == before
    assert here.trash().restore(name)
    assert here.data(name) == before


@pytest.mark.parametrize(
    ("habits", "when"),
    [
        (Habits(), "DELETE"),
        # Without a condition only what is there at the second look is safe.
        (Habits(deletes_anything=True), "HEAD"),
        (Habits(opaque_etags=True), "DELETE"),
    ],
)
def test_another_document_written_meanwhile_stays(habits, when):
    with place(habits) as here:
        key = here.prefix + DOCUMENT

        def others() -> None:
            del here.fake.objects[key]
            assert here.stores().documents.create(DOCUMENT, b"two")

        if when == "HEAD":
            here.once_before(
                "PUT", layout.trash(DOCUMENT), lambda: here.once_before("HEAD", DOCUMENT, others)
            )
        else:
            here.once_before("DELETE", DOCUMENT, others)
        assert not here.trash().discard(DOCUMENT, DAY / 2)
        assert here.data(DOCUMENT) == b"two"


def test_what_is_replaced_before_it_is_copied_is_not_discarded(here):
    def others() -> None:
        del here.fake.objects[here.prefix + DOCUMENT]
        here.stores().documents.create(DOCUMENT, b"two")

    here.once_before("PUT", layout.trash(DOCUMENT), others)
    assert not here.trash().discard(DOCUMENT, DAY / 2)
    assert here.data(DOCUMENT) == b"two"
    assert here.data(layout.trash(DOCUMENT)) is None


def test_a_document_created_while_another_is_restored_stays(here):
    trash = here.trash()
    trash.discard(DOCUMENT, AT_ONCE)
    here.once_before("PUT", DOCUMENT, lambda: here.stores().documents.create(DOCUMENT, b"two"))
    assert not trash.restore(DOCUMENT)
    assert here.data(DOCUMENT) == b"two"
    assert here.data(layout.trash(DOCUMENT)) == b"one"


@NAMES
def test_a_collector_that_was_suspended_over_its_copy_leaves_the_original(here, name):
    before = here.data(name)

    def fall_asleep() -> None:
        here.fake.now = lambda: time.time() + MOVES_WITHIN.total_seconds() + 2

    here.once_before("PUT", layout.trash(name), fall_asleep)
    assert not here.trash().discard(name, DAY / 2)
    assert here.data(name) == before
    assert here.trash().discard(name, DAY / 2)
    assert here.data(name) is None
    assert MOVES_WITHIN + timedelta(minutes=15) < SETTLED


@NAMES
def test_a_purge_of_an_older_copy_never_meets_that_of_another_collector(here, name):
    """It was discarded and put back long ago; now one purges the old copy, one discards again."""
    before = here.data(name)
    assert here.trash().discard(name, AT_ONCE)
    assert here.trash().restore(name)
    here.fake.age(DAY)
    others = []
    here.once_before(
        "DELETE",
        layout.trash(name),
        lambda: others.append(here.trash().discard(name, DAY / 2)),
    )
    assert here.trash().purge(name, DAY / 2)
    assert others == [False]
    assert here.data(name) == before
    assert here.trash().discard(name, DAY / 2)
    assert here.data(layout.trash(name)) == before
    assert REPLACEABLE + MOVES_WITHIN <= SETTLED


def test_a_delete_whose_reply_was_lost_counts_and_is_not_sent_again_unseen(here):
    with proxied(here.server.endpoint) as (proxy, front):
        there = Place(here.fake, S3Server(front), S3Server(front).url(here.prefix.rstrip("/")))
        trash = there.trash()

        def lose_first_delete(_number: int, method: str, path: str) -> Fault | None:
            lost = method == "DELETE" and path.endswith((DOCUMENT, BLOB)) and not proxy.faults
            return Fault.LOST if lost else None

        proxy.restart(lose_first_delete)
        assert trash.discard(BLOB, DAY / 2)
        assert here.data(BLOB) is None

        # The second time somebody writes another document before we look again.
        proxy.faults = 0
        key = here.prefix + DOCUMENT
        looks = []

        def write_before_third_look(method: str, asked: str) -> None:
            if (method, asked) == ("HEAD", key):
                looks.append(asked)
                if len(looks) == 3:
                    here.fake.before = lambda _method, _key: None
                    here.stores().documents.create(DOCUMENT, b"two")

        here.fake.before = write_before_third_look
        trash.discard(DOCUMENT, DAY / 2)
        assert len(looks) >= 3
        assert here.data(DOCUMENT) == b"two"
        assert here.data(layout.trash(DOCUMENT)) == b"one"


def test_a_store_that_deletes_under_any_condition_is_found_out_and_collected_without():
    with place(Habits(deletes_anything=True)) as here:
        trash = here.trash()
        assert trash.discard(BLOB, DAY / 2)
        assert not trash.discard(BLOB, DAY / 2)
        here.fake.age(DAY)
        assert trash.purge(BLOB, DAY / 2)
        assert not [key for key in here.fake.objects if "/tmp/" in key]


def test_a_store_that_tells_no_time_is_not_collected():
    with place(Habits(tells_no_time=True)) as here:
        trash = here.trash()
        for act in (
            lambda: list(trash.aged()),
            lambda: trash.discard(BLOB, AT_ONCE),
        ):
            with pytest.raises(Incompatible) as refused:
                act()
            assert refused.value.name == "store-tells-no-time"
        assert here.data(BLOB) == DATA


def test_who_may_not_delete_is_told_so_and_nothing_is_gone(here):
    here.fake.forbidden = (BLOB,)
    with pytest.raises(Unavailable) as refused:
        here.trash().discard(BLOB, DAY / 2)
    assert refused.value.name == "store-access-denied"
    assert here.data(BLOB) == DATA


@pytest.mark.parametrize("mode", ["crc32", "sha256", "md5"])
def test_a_large_blob_is_copied_in_parts_and_needs_no_hashing_afterwards(tmp_path, mode):
    fake = FakeS3()
    with serving(fake) as endpoint, proxied(endpoint) as (proxy, front):
        server = S3Server(front)
        url = server.url(checksum=mode)
        server.founded(url)
        bucket = server.bucket_at(url)
        root = S3Root(Objects(bucket), TickingClock())
        path = tmp_path / "rank0.engine"
        path.write_bytes(bytes(range(256)) * 40)
        blobs = S3Blobs(root, 2000)
        stored = blobs.add_file(path, Ownership.KEPT)
        name = layout.blob(stored.digest)
        trash = S3Trash(root, Copies(root.objects, 5000, 2000))
        # The reply to each completion is lost; the copy is recognised as our own.
        proxy.restart(
            lambda _n, method, path: (
                Fault.LOST
                if method == "POST" and "uploadId" in path and proxy.faults < proxy.requests / 9
                else None
            )
        )
        assert trash.discard(name, AT_ONCE)
        assert trash.restore(name)
        assert proxy.faults
        proxy.restart(lambda *_: None)
        before = len(fake.requests)
        blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)
        assert len(fake.requests) == before + 1
        blobs.check(stored.digest, stored.size_bytes, Depth.FULL)
        assert not fake.uploads


def test_a_large_blob_goes_through_the_trash_of_a_real_store_in_parts(seaweed, tmp_path):
    url = seaweed.url()
    seaweed.founded(url)
    root = S3Root(Objects(seaweed.bucket_at(url)), TickingClock())
    path = tmp_path / "rank0.engine"
    path.write_bytes(bytes(range(256)) * (11 << 12))
    blobs = S3Blobs(root, 5 << 20)
    stored = blobs.add_file(path, Ownership.KEPT)
    name = layout.blob(stored.digest)
    trash = S3Trash(root, Copies(root.objects, 5 << 20, 5 << 20))
    assert trash.discard(name, AT_ONCE)
    assert root.objects.head(name) is None
    assert trash.restore(name)
    head = root.objects.head(name)
    assert head is not None
    assert head.vouches(stored.digest)
    blobs.check(stored.digest, stored.size_bytes, Depth.FULL)


def test_every_name_is_listed_once_however_the_names_are_cut(here):
    stores = here.stores()
    for number in range(60):
        stores.documents.create(f"records/{Digest.of(b'%d' % number).hex}.json", b"r")
    for name in ("blobs/sha256/5", "blobs/zz", "keys/0", "trash/records/f", "touched/x/y", "zz"):
        here.server.put(here.url, name, b"foreign")
    stores.trash.discard(DOCUMENT, AT_ONCE)
    whole = sorted(file.name for file in stores.trash.aged())
    stored = [name for name in whole if not name.startswith("trash/")]
    assert stored == [file.name for file in stores.inventory.files()]
    assert layout.trash(DOCUMENT) in whole
    here.fake.habits.page = 7
    assert sorted(file.name for file in stores.trash.aged()) == whole


def test_requests_are_as_documented(here):
    trash = here.trash()

    def cost(act: Callable[[], bool]) -> int:
        before = len(here.fake.requests)
        assert act()
        return len(here.fake.requests) - before

    assert list(trash.aged())  # opens the registry
    assert cost(lambda: trash.discard(DOCUMENT, AT_ONCE)) == 5 + 4  # the first of a process asks
    assert cost(lambda: trash.discard(BLOB, AT_ONCE)) == 5
    assert cost(lambda: trash.restore(BLOB)) == 4
    here.fake.age(DAY)
    assert cost(lambda: trash.restore(DOCUMENT)) == 6
    assert cost(lambda: trash.purge(BLOB, AT_ONCE)) == 2
    assert cost(lambda: bool(list(trash.aged()))) == 1


def test_a_bucket_has_a_trash_by_default(here):
    assert isinstance(stores_in(Bucket(S3Address.parse(here.url)), TickingClock()).trash, S3Trash)
