"""A whole registry in a bucket: founding, the story, what goes wrong, and what it costs."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.backends.s3 import stores_in
from engine_registry.backends.s3.address import S3Address
from engine_registry.backends.s3.bucket import Bucket, Patience
from engine_registry.digest import Digest
from engine_registry.documents import seal
from engine_registry.errors import (
    DocumentConflict,
    EngineCIError,
    Incompatible,
    InvalidInput,
    NotFound,
    Unavailable,
)
from engine_registry.events import RolledBack
from engine_registry.record import RegistryInfo
from engine_registry.registry import Registry, open_registry
from engine_registry.store import Depth, Ownership
from engine_registry.testing.samples import (
    SAMPLE_AT,
    SAMPLE_CHANNEL,
    TickingClock,
    live,
    sample_engine,
    sample_event,
    sample_key,
    sample_promotion,
    sample_release,
    sample_report,
)
from engine_registry.verify import verify
from tests.servers.s3 import ACCESS_KEY, SECRET_KEY, S3Server
from tests.servers.s3_fake import FakeS3, Habits, serving
from tests.servers.s3_faults import Fault, proxied

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.usefixtures("s3_credentials")]

HEAD = "channels/m/t/prod/head.json"


@pytest.fixture
def fake() -> FakeS3:
    return FakeS3()


@pytest.fixture
def server(fake: FakeS3) -> Iterator[S3Server]:
    with serving(fake) as endpoint:
        yield S3Server(endpoint, patience=Patience(attempts=3, pause_s=0, connect_s=2, read_s=5))


def registry_at(server: S3Server, url: str) -> Registry:
    return Registry(server.stores(url), TickingClock(), url)


def test_the_whole_story_in_a_real_bucket(seaweed: S3Server, tmp_path: Path) -> None:
    url = seaweed.url()
    seaweed.founded(url)
    registry = open_registry(url, TickingClock())
    engines = [sample_engine(registry, name) for name in ("one", "two")]
    releases = [
        sample_release(registry, e, evidence=(sample_report(registry, e.digest),)) for e in engines
    ]
    for release in releases:
        sample_event(registry, sample_promotion(release))
    sample_event(registry, RolledBack(to=live(releases[0]), reason="slower"))
    again = open_registry(url)
    state = again.channels.state(SAMPLE_CHANNEL)
    assert state.live == live(releases[0])
    assert again.engines.find_by_key(sample_key("one")) == engines[0]
    again.engines.materialise(engines[0].digest, tmp_path / "out")
    assert (tmp_path / "out" / "model.gguf").exists()
    report = verify(again)
    assert report.mismatches == ()
    assert report.files > 30


READS: dict[str, Callable[[Registry], object]] = {
    "channel state": lambda r: r.channels.state(SAMPLE_CHANNEL),
    "channels": lambda r: r.channels.channels(),
    "products": lambda r: r.releases.products(),
    "engine": lambda r: r.engines.engine(Digest.of(b"")),
    "blob": lambda r: r.stores.blobs.check(Digest.of(b""), 0, Depth.FULL),
    "open": lambda r: r.stores.blobs.open(Digest.of(b"")),
    "exists": lambda r: r.stores.documents.exists("x.json"),
    "pointer": lambda r: r.stores.pointers.read("x.json"),
    "info": lambda r: r.info(),
    "inventory": lambda r: list(r.stores.inventory.files()),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_reading_where_there_is_no_registry_says_so(
    fake: FakeS3, server: S3Server, read: Callable[[Registry], object]
) -> None:
    with pytest.raises(NotFound) as caught:
        read(registry_at(server, server.url("nowhere")))
    assert caught.value.name == "registry-missing"
    assert "s3://engines/nowhere" in caught.value.message
    assert not fake.objects


def test_a_missing_bucket_is_named_with_the_way_to_make_it(server: S3Server) -> None:
    missing = S3Server(server.endpoint, "nobody-made-it")
    for act in (
        lambda s: s.documents.read("x.json"),
        lambda s: s.blobs.add_bytes(b"x"),
        lambda s: s.documents.create("x.json", b"x"),
    ):
        with pytest.raises(NotFound) as caught:
            act(missing.stores())
        assert caught.value.name == "bucket-missing"
        assert "aws s3 mb s3://nobody-made-it" in caught.value.hint


def test_a_prefix_that_holds_something_else_is_refused_and_left_alone(
    fake: FakeS3, server: S3Server
) -> None:
    url = server.url("p")
    server.put(url, "notes.txt", b"mine")
    with pytest.raises(InvalidInput) as caught:
        server.stores(url).blobs.add_bytes(b"x")
    assert caught.value.name == "not-a-registry"
    assert "notes.txt" in caught.value.message
    with pytest.raises(InvalidInput):
        server.stores(url).documents.read("x.json")
    assert list(fake.objects) == ["p/notes.txt"]


@pytest.mark.parametrize("first", ["blobs/sha256/" + "0" * 64, "channels/m/t/c/head.json"])
def test_a_copy_without_its_registry_file_says_how_to_bring_that_back(
    fake: FakeS3, server: S3Server, first: str
) -> None:
    url = server.url("p")
    server.put(url, first, b"copied")
    server.put(url, f"records/00/{'0' * 64}/{'1' * 64}.json", b"copied")
    with pytest.raises(InvalidInput) as caught:
        server.stores(url).documents.read("x.json")
    assert caught.value.name == "not-a-registry"
    assert "only registry.json is missing" in caught.value.hint
    assert "`aws s3 cp ORIGINAL/registry.json s3://" in caught.value.hint
    assert "/p/`" in caught.value.hint


def test_registries_beside_each_other_do_not_see_each_other(server: S3Server) -> None:
    outer, inner = server.founded(server.url("team")), server.founded(server.url("team-2"))
    outer.documents.create("records/one.json", b"one")
    assert not inner.documents.exists("records/one.json")
    assert "records/one.json" not in {file.name for file in inner.inventory.files()}


def test_a_newer_format_is_refused(server: S3Server) -> None:
    url = server.url()
    info = RegistryInfo(format="engine-registry/9", created_at=SAMPLE_AT)
    server.put(url, layout.REGISTRY, seal(info))
    with pytest.raises(Incompatible, match="engine-registry/9") as caught:
        server.stores(url).documents.read("x.json")
    assert caught.value.name == "registry-format-unknown"


def test_listings_of_many_pages_are_complete_and_sorted(fake: FakeS3, server: S3Server) -> None:
    fake.habits.page = 3
    stores = server.founded()
    names = [f"x/{number:02}.json" for number in range(8)] + ["x/a/b.json", "x/c/d.json"]
    for name in names:
        stores.documents.create(name, b"{}")
    expected = [f"{number:02}.json" for number in range(8)] + ["a/", "c/"]
    assert list(stores.documents.children("x")) == expected
    listed = [file.name for file in stores.inventory.files()]
    assert listed == sorted(listed)
    assert set(names) <= set(listed)


def test_folder_marks_caches_and_scratch_are_not_part_of_the_registry(server: S3Server) -> None:
    url = server.url()
    stores = server.founded(url)
    for name in ("cache/index.db", "tmp/left"):
        server.put(url, name, b"x")
    key = S3Address.parse(url).key("records")
    server.client.put_object(Bucket=server.bucket, Key=f"{key}/", Body=b"")
    assert {file.name.partition("/")[0] for file in stores.inventory.files()} == {
        "blobs",
        layout.REGISTRY,
    }
    assert list(stores.documents.children("records")) == []


@contextmanager
def one_fault(server: S3Server, url: str, method: str, words: str, fault: Fault) -> Iterator[str]:
    """The same registry behind a proxy at which one request goes wrong."""
    with proxied(server.endpoint) as (proxy, front):
        left = [fault]
        proxy.restart(lambda _n, m, p: left.pop() if left and m == method and words in p else None)
        yield S3Server(front).url(S3Address.parse(url).prefix.rstrip("/"))
        assert not left


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.TRUNCATED])
def test_a_create_whose_reply_was_lost_knows_its_own_document(
    server: S3Server, fault: Fault
) -> None:
    url = server.url()
    server.founded(url)
    with one_fault(server, url, "PUT", "records/", fault) as front:
        stores = S3Server(front.partition("endpoint=")[2].replace("%3A", ":")).stores(front)
        assert stores.documents.create("records/one.json", b"one") is True
        assert stores.documents.create("records/one.json", b"one") is False
        with pytest.raises(DocumentConflict):
            stores.documents.create("records/one.json", b"two")


def test_a_swap_whose_reply_was_lost_knows_its_own_value(server: S3Server) -> None:
    url = server.url()
    stores = server.founded(url)
    first = stores.pointers.swap(HEAD, None, b"1")
    with one_fault(server, url, "PUT", "head.json", Fault.LOST) as front:
        through = S3Server(front.partition("endpoint=")[2].replace("%3A", ":")).stores(front)
        second = through.pointers.swap(HEAD, first, b"2")
    value = stores.pointers.read(HEAD)
    assert value is not None
    assert (value.data, value.version) == (b"2", second)


def test_a_conflicting_request_is_tried_again(fake: FakeS3, server: S3Server) -> None:
    stores = server.founded()
    stores.documents.create("records/zero.json", b"0")
    fake.habits.conflicts = 2
    assert stores.documents.create("records/one.json", b"one")
    assert fake.habits.conflicts == 0


def test_conflicts_without_end_are_an_outage_not_a_loss(fake: FakeS3, server: S3Server) -> None:
    stores = server.founded()
    stores.documents.create("records/zero.json", b"0")
    fake.habits.conflicts = 1000
    with pytest.raises(Unavailable):
        stores.documents.create("records/one.json", b"one")


def test_missing_rights_are_named(fake: FakeS3, server: S3Server) -> None:
    url = server.url()
    server.founded(url)
    fake.habits.locked = True
    with pytest.raises(Unavailable, match="403 AccessDenied") as caught:
        server.stores(url).documents.read("x.json")
    assert caught.value.name == "store-access-denied"
    assert "docs/stores.md" in caught.value.hint


def test_wrong_credentials_are_named_by_a_real_store(
    seaweed: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = seaweed.url()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret-key")
    with pytest.raises(Unavailable) as caught:
        open_registry(url).info()
    assert caught.value.name == "store-access-denied"
    assert "AWS_PROFILE" in caught.value.hint


def test_missing_credentials_are_named(server: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    with pytest.raises(Unavailable) as caught:
        open_registry(server.url()).info()
    assert caught.value.name == "store-credentials-missing"


def test_a_store_that_is_not_there_is_an_outage(tmp_path: Path) -> None:
    patience = Patience(attempts=2, pause_s=0, connect_s=0.5)
    bucket = Bucket(S3Address.parse("s3://engines/p?endpoint=http://127.0.0.1:9"), patience)
    with pytest.raises(Unavailable) as caught:
        stores_in(bucket, TickingClock()).documents.read("x.json")
    assert caught.value.name == "store-unreachable"


def everything_said(error: BaseException) -> str:
    """What an error and all that caused it could print."""
    said = []
    chain: BaseException | None = error
    while chain is not None:
        said.append(f"{chain!r} {chain}")
        if isinstance(chain, EngineCIError):
            said.append(f"{chain.message} {chain.hint}")
        chain = chain.__cause__ or chain.__context__
    return " ".join(said)


def test_invariant_11_no_secret_reaches_an_error_or_a_log(
    fake: FakeS3,
    server: S3Server,
    seaweed: S3Server,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "planted-secret-key")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "planted-session-token")
    url = server.url("p")
    acts: list[Callable[[], object]] = [lambda: open_registry(seaweed.url()).info()]
    for fault in (Fault.ERROR, Fault.RESET, Fault.TRUNCATED, Fault.BUSY):

        def fail(fault: Fault = fault) -> None:
            with proxied(server.endpoint) as (proxy, front):
                proxy.restart(lambda *_: fault)
                through = S3Server(front, patience=Patience(attempts=2, pause_s=0))
                through.stores(through.url("p")).documents.create("x.json", b"x")

        acts.append(fail)

    def locked() -> None:
        fake.habits = Habits(locked=True)
        server.stores(url).blobs.add_bytes(b"x")

    acts.append(locked)
    for act in acts:
        with pytest.raises(EngineCIError) as caught:
            act()
        said = everything_said(caught.value) + caplog.text
        for secret in ("planted-secret-key", "planted-session-token", SECRET_KEY, ACCESS_KEY):
            assert secret not in said


def requests_of(fake: FakeS3, act: Callable[[], object]) -> list[str]:
    fake.requests.clear()
    act()
    return [request.split()[0] for request in fake.requests]


def test_the_least_requests_are_made(fake: FakeS3, server: S3Server, tmp_path: Path) -> None:
    """Each is a round trip; what an act adds up to is in docs/stores.md."""
    url = server.url()
    stores = server.founded(url)
    stores.documents.create("records/zero.json", b"0")
    assert requests_of(fake, lambda: stores.documents.create("a.json", b"a")) == ["PUT"]
    assert requests_of(fake, lambda: stores.documents.read("a.json")) == ["GET"]
    assert requests_of(fake, lambda: stores.documents.exists("a.json")) == ["HEAD"]
    assert requests_of(fake, lambda: list(stores.documents.children("records"))) == ["GET"]
    assert requests_of(fake, lambda: stores.pointers.swap(HEAD, None, b"1")) == ["PUT"]
    assert requests_of(fake, lambda: stores.pointers.read(HEAD)) == ["GET"]
    assert requests_of(fake, lambda: stores.blobs.add_bytes(b"new")) == ["PUT"]
    assert requests_of(fake, lambda: stores.blobs.add_bytes(b"new")) == ["PUT", "HEAD"]
    digest = Digest.of(b"new")
    assert requests_of(fake, lambda: stores.blobs.check(digest, 3, Depth.UNCHANGED)) == ["HEAD"]
    path = tmp_path / "small"
    path.write_bytes(b"file")
    assert requests_of(fake, lambda: stores.blobs.add_file(path, Ownership.KEPT)) == ["PUT"]
    # A new process asks for three things at once, before its first act.
    fresh = server.stores(url)
    assert requests_of(fake, lambda: fresh.documents.read("a.json")) == ["GET"] * 4
    assert requests_of(fake, lambda: fresh.documents.create("b.json", b"b")) == ["PUT"]
