"""Founding a registry in a directory, and refusing what is none."""

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_registry.backends.filesystem import blobs
from engine_registry.backends.filesystem.durable import writing
from engine_registry.backends.filesystem.root import StoreRoot
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.errors import Incompatible, InvalidInput, NotFound, Unavailable
from engine_registry.registry import Registry, open_registry
from engine_registry.store import Depth, Ownership
from engine_registry.testing.samples import SAMPLE_CHANNEL, TickingClock, sample_engine, sample_key

READS = {
    "channel state": lambda r: r.channels.state(SAMPLE_CHANNEL),
    "channels": lambda r: r.channels.channels(),
    "products": lambda r: r.releases.products(),
    "engine": lambda r: r.engines.engine(Digest.of(b"")),
    "resolve": lambda r: r.resolve("0123456789abcdef"),
    "release": lambda r: r.resolve("m/t:1"),
    "blob": lambda r: r.stores.blobs.check(Digest.of(b""), 0, Depth.FULL),
    "info": lambda r: r.info(),
    "inventory": lambda r: list(r.stores.inventory.files()),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS.keys())
def test_reading_where_there_is_no_registry_says_so(tmp_path: Path, read) -> None:
    with pytest.raises(NotFound) as caught:
        read(open_registry(str(tmp_path / "nowhere")))
    assert caught.value.name == "registry-missing"
    assert str(tmp_path / "nowhere") in caught.value.message
    assert "ENGINECTL_REGISTRY" in caught.value.hint
    assert not (tmp_path / "nowhere").exists()


def test_a_build_key_is_no_hit_where_there_is_no_registry_yet(tmp_path: Path) -> None:
    assert open_registry(str(tmp_path / "new")).engines.find_by_key(sample_key("tiny")) is None


def test_the_first_write_founds_the_registry(tmp_path: Path) -> None:
    registry = open_registry(str(tmp_path / "deep" / "new"), TickingClock())
    engine = sample_engine(registry)
    assert registry.info().format == "engine-registry/1"
    again = open_registry(str(tmp_path / "deep" / "new"))
    assert again.engines.engine(engine.digest) == engine


@pytest.mark.parametrize("held", ["notes.txt", "blobs"])
def test_a_directory_that_holds_something_else_is_refused_and_left_alone(
    tmp_path: Path, held: str
) -> None:
    (tmp_path / held).mkdir()
    registry = open_registry(str(tmp_path))
    with pytest.raises(InvalidInput) as caught:
        registry.stores.blobs.add_bytes(b"x")
    assert caught.value.name == "not-a-registry"
    with pytest.raises(InvalidInput):
        registry.channels.channels()
    assert [path.name for path in tmp_path.iterdir()] == [held]


def test_an_empty_volume_with_lost_and_found_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()
    open_registry(str(tmp_path)).stores.blobs.add_bytes(b"x")
    assert (tmp_path / "registry.json").exists()


def test_a_file_in_place_of_the_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidInput, match="not a registry"):
        open_registry(str(tmp_path / "file")).stores.blobs.add_bytes(b"x")


def test_a_registry_of_a_later_format_is_refused_by_name(root: Path, on_disk: Registry) -> None:
    body = canonical_json({"schema_version": 2, "format": "engine-registry/2", "extra": True})
    envelope = b'{"digest":"%s","document":%s}\n' % (str(Digest.of(body)).encode(), body)
    (root / "registry.json").unlink()
    (root / "registry.json").write_bytes(envelope)
    for act in (
        lambda r: r.stores.blobs.add_bytes(b"x"),
        lambda r: r.channels.channels(),
    ):
        with pytest.raises(Incompatible, match="engine-registry/2") as caught:
            act(open_registry(str(root)))
        assert caught.value.name == "registry-format-unknown"


@pytest.mark.parametrize("name", ["../escape", "/etc/passwd", "a/../../b", ""])
def test_a_name_that_would_leave_the_root_is_refused(on_disk: Registry, name: str) -> None:
    with pytest.raises(InvalidInput):
        on_disk.stores.documents.create(name, b"x")
    with pytest.raises(InvalidInput):
        on_disk.stores.documents.read(name)


def test_an_abandoned_temporary_file_is_swept_and_a_live_one_is_not(tmp_path: Path) -> None:
    root = StoreRoot(tmp_path / "registry", TickingClock())
    root.prepare()
    dead = root.temp_path()
    dead.write_bytes(b"half of a blo")
    with root.temporary() as (_, live):
        assert root.sweep(older_than_s=0) == [dead]
        assert live.exists()
        assert not dead.exists()
    assert root.sweep(older_than_s=0) == []


def test_a_young_temporary_file_is_left_alone_since_its_writer_may_not_have_locked_it(
    tmp_path: Path,
) -> None:
    root = StoreRoot(tmp_path / "registry", TickingClock())
    root.prepare()
    young = root.temp_path()
    young.write_bytes(b"")
    assert root.sweep() == []
    assert young.exists()


def _as_nobody(act) -> str:
    """What `act` raises when an unprivileged user does it: class and reference."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            act()
            answer = "nothing"
        except Exception as error:
            answer = f"{type(error).__name__} {getattr(error, 'name', error)}"
        os.write(write_end, answer.encode())
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as stream:
        answer = stream.read()
    os.waitpid(child, 0)
    return answer


@pytest.fixture
def readable() -> Iterator[Path]:
    """A registry that everybody may read and nobody but root may write."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        root = Path(folder) / "registry"
        sample_engine(open_registry(str(root), TickingClock()))
        closed = [root, *(path for path in root.rglob("*") if path.is_dir())]
        for path in closed:
            path.chmod(0o555)
        yield root
        for path in closed:
            path.chmod(0o755)


def test_a_store_that_may_not_be_written_says_so_and_how_to_choose_another(readable: Path) -> None:
    registry = open_registry(str(readable))
    writes = {
        "blob": lambda: registry.stores.blobs.add_bytes(b"new"),
        "document": lambda: registry.stores.documents.create("records/new.json", b"new"),
        "pointer": lambda: registry.stores.pointers.swap("channels/head.json", None, b"new"),
        "file": lambda: registry.stores.blobs.add_file(readable / "registry.json", Ownership.KEPT),
    }
    for what, write in writes.items():
        assert _as_nobody(write) == "Unavailable store-not-writable", what
    before = sorted(readable.rglob("*"))
    with pytest.raises(Unavailable) as caught, writing(readable, "create x"):
        raise PermissionError(errno.EROFS, "Read-only file system")
    assert "ENGINECTL_REGISTRY=file://DIR" in caught.value.hint
    assert sorted(readable.rglob("*")) == before


def test_a_founding_that_may_not_be_written_says_so(readable: Path) -> None:
    fresh = open_registry(str(readable / "inside"))
    answer = _as_nobody(lambda: fresh.stores.blobs.add_bytes(b"new"))
    assert answer == "Unavailable store-not-writable"


def test_a_store_that_may_only_be_read_serves_every_read_and_check(readable: Path) -> None:
    for stamp in (readable / "cache" / "verified").iterdir():
        stamp.unlink()
    registry = open_registry(str(readable))
    engine = next(iter(registry.engines.all_engines()))
    assert _as_nobody(lambda: registry.engines.check_engine(engine)) == "nothing"
    assert _as_nobody(registry.channels.channels) == "nothing"


def test_a_store_that_may_not_be_read_says_so(readable: Path) -> None:
    (readable / "records").chmod(0o700)
    registry = open_registry(str(readable))
    assert _as_nobody(lambda: list(registry.engines.all_engines())) == (
        "Unavailable store-not-readable"
    )


def test_a_full_store_says_how_much_is_needed_and_how_much_is_free(
    tmp_path: Path, root: Path, on_disk: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "engine.bin"
    source.write_bytes(bytes(3_000_000))
    before = list(on_disk.stores.inventory.files())

    def full(fd: int, data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(
            Unavailable, match=r"need 3,000,000 bytes, [0-9,]+ bytes are free"
        ) as caught:
            on_disk.stores.blobs.add_file(source, Ownership.KEPT)
    assert caught.value.name == "store-full"
    assert list(on_disk.stores.inventory.files()) == before
    assert not list((root / "tmp").glob("*-*"))


def test_a_file_larger_than_what_is_free_is_refused_before_it_is_copied(
    tmp_path: Path, on_disk: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "engine.bin"
    source.write_bytes(b"x" * 1000)
    monkeypatch.setattr(blobs, "free_bytes", lambda _: 999)
    with pytest.raises(Unavailable, match="need 1,000 bytes") as caught:
        on_disk.stores.blobs.add_file(source, Ownership.KEPT)
    assert caught.value.name == "store-full"
