"""How files get into a directory registry, and what a quick check notices."""

import fcntl
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine_registry.backends.filesystem import ingest
from engine_registry.backends.filesystem.stamps import SETTLED_AFTER_NS
from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError, InvalidInput
from engine_registry.registry import Registry
from engine_registry.store import Depth, Ownership, StoredBlob

MIB = 1 << 20


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A real disk beside the sources: large files, links, direct writes."""
    return tmp_path / "registry"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "engine.bin"
    path.write_bytes(os.urandom(3 * MIB + 17))
    return path


@pytest.fixture
def stored(on_disk: Registry, source: Path) -> StoredBlob:
    return on_disk.stores.blobs.add_file(source, Ownership.KEPT)


@pytest.fixture
def blob(root: Path, stored: StoredBlob) -> Path:
    return root / "blobs" / "sha256" / stored.digest.hex


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Grows by one each time a stored file is hashed."""
    calls: list[int] = []
    real = ingest.hash_file

    def counting(fd: int) -> Digest:
        calls.append(fd)
        return real(fd)

    monkeypatch.setattr(ingest, "hash_file", counting)
    return calls


def _flip(path: Path, offset: int = 100) -> None:
    with os.fdopen(os.open(path, os.O_RDWR), "r+b") as stream:
        stream.seek(offset)
        byte = stream.read(1)[0]
        stream.seek(offset)
        stream.write(bytes([byte ^ 1]))


def test_a_given_file_is_linked_and_becomes_read_only(
    on_disk: Registry, root: Path, source: Path
) -> None:
    stored = on_disk.stores.blobs.add_file(source, Ownership.GIVEN)
    blob = root / "blobs" / "sha256" / stored.digest.hex
    assert blob.samefile(source)
    assert source.stat().st_mode & 0o777 == 0o444


def test_a_kept_file_shares_nothing_with_the_store_and_stays_writable(
    source: Path, blob: Path
) -> None:
    assert not blob.samefile(source)
    assert source.stat().st_mode & 0o200
    assert blob.stat().st_mode & 0o777 == 0o444


def test_a_given_file_on_another_file_system_is_copied(
    on_disk: Registry, root: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.link

    def across(src, dst, **options) -> None:
        if Path(src) == source:
            raise OSError(18, "Invalid cross-device link")
        real(src, dst, **options)

    monkeypatch.setattr(os, "link", across)
    stored = on_disk.stores.blobs.add_file(source, Ownership.GIVEN)
    assert not (root / "blobs" / "sha256" / stored.digest.hex).samefile(source)
    on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.FULL)


def test_a_large_kept_file_is_copied_right_where_direct_writes_are_not_supported(
    on_disk: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(ingest.RING_FROM_BYTES + 4097)
    path = tmp_path / "large.bin"
    path.write_bytes(data)
    real = os.pwrite

    def picky(fd: int, piece: memoryview, offset: int) -> int:
        if fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_DIRECT:
            raise OSError(22, "Invalid argument")
        return real(fd, piece, offset)

    monkeypatch.setattr(os, "pwrite", picky)
    assert on_disk.stores.blobs.add_file(path, Ownership.KEPT).digest == Digest.of(data)


def test_a_failed_write_of_a_large_file_leaves_nothing_and_the_buffers_usable(
    on_disk: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = os.urandom(ingest.RING_FROM_BYTES * 3)
    path = tmp_path / "large.bin"
    path.write_bytes(data)
    before = list(on_disk.stores.inventory.files())
    with monkeypatch.context() as patch:

        def broken(fd: int, piece: memoryview, offset: int) -> int:
            raise OSError(5, "Input/output error")

        patch.setattr(os, "pwrite", broken)
        with pytest.raises(Exception, match="Input/output error") as caught:
            on_disk.stores.blobs.add_file(path, Ownership.KEPT)
        assert getattr(caught.value, "name", None) == "store-io"
    assert list(on_disk.stores.inventory.files()) == before
    assert on_disk.stores.blobs.add_file(path, Ownership.KEPT).digest == Digest.of(data)


def test_a_file_system_that_clones_is_asked_to_and_the_clone_is_hashed(
    on_disk: Registry, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clone(origin: int, target: int) -> bool:
        os.write(target, os.pread(origin, 10 * MIB, 0))
        return True

    monkeypatch.setattr(ingest, "clone", clone)
    stored = on_disk.stores.blobs.add_file(source, Ownership.KEPT)
    assert stored.digest == Digest.of(source.read_bytes())
    on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.FULL)


def test_a_kept_file_that_grows_while_it_is_read_is_refused(
    on_disk: Registry, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ingest.copy

    def growing(*arguments):
        answer = real(*arguments)
        with source.open("ab") as stream:
            stream.write(b"more")
        return answer

    monkeypatch.setattr(ingest, "copy", growing)
    before = list(on_disk.stores.inventory.files())
    with pytest.raises(InvalidInput, match="size changed") as caught:
        on_disk.stores.blobs.add_file(source, Ownership.KEPT)
    assert caught.value.name == "source-file-changed"
    assert list(on_disk.stores.inventory.files()) == before


def test_a_given_file_that_is_written_to_while_it_is_hashed_is_refused(
    on_disk: Registry, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ingest.hash_and_sync
    still_open = os.open(source, os.O_RDWR)

    def written(*arguments):
        answer = real(*arguments)
        os.pwrite(still_open, b"!", 0)
        return answer

    monkeypatch.setattr(ingest, "hash_and_sync", written)
    before = list(on_disk.stores.inventory.files())
    with pytest.raises(InvalidInput, match="written to"):
        on_disk.stores.blobs.add_file(source, Ownership.GIVEN)
    os.close(still_open)
    assert list(on_disk.stores.inventory.files()) == before


def test_a_file_given_twice_at_once_is_not_taken_for_one_that_is_written_to(
    on_disk: Registry, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second dates the file, by what it saw before the first did, while the first hashes it."""
    both_looked = threading.Barrier(2)
    first_hashes, second_dated = threading.Event(), threading.Event()
    turn = threading.Lock()
    date, hashing = os.utime, ingest.hash_and_sync

    def dates(*args: object, **kwargs: object) -> None:
        both_looked.wait(10)
        if not turn.acquire(blocking=False):
            assert first_hashes.wait(10)
        date(*args, **kwargs)  # type: ignore[arg-type]

    def hashes(fd: int, size_bytes: int) -> Digest:
        digest = hashing(fd, size_bytes)
        if first_hashes.is_set():
            second_dated.set()
        first_hashes.set()
        assert second_dated.wait(10)
        return digest

    monkeypatch.setattr(os, "utime", dates)
    monkeypatch.setattr(ingest, "hash_and_sync", hashes)
    with ThreadPoolExecutor(2) as pool:
        added = [
            pool.submit(on_disk.stores.blobs.add_file, source, Ownership.GIVEN) for _ in range(2)
        ]
        assert len({blob.result() for blob in added}) == 1


def test_a_blob_that_was_just_stored_is_checked_without_hashing(
    on_disk: Registry, stored: StoredBlob, hashed: list[int]
) -> None:
    on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)
    assert hashed == []
    on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.FULL)
    assert len(hashed) == 1


def test_deploying_by_link_and_removing_the_deployment_costs_no_hash(
    on_disk: Registry, stored: StoredBlob, blob: Path, tmp_path: Path, hashed: list[int]
) -> None:
    on_disk.stores.blobs.materialise(stored.digest, tmp_path / "deployed")
    assert (tmp_path / "deployed").samefile(blob)
    on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)
    (tmp_path / "deployed").unlink()
    on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)
    assert hashed == []


@pytest.mark.parametrize("depth", list(Depth))
def test_check_finds_a_byte_flipped_in_place(
    on_disk: Registry, stored: StoredBlob, blob: Path, depth: Depth
) -> None:
    _flip(blob)
    with pytest.raises(IntegrityError) as caught:
        on_disk.stores.blobs.check(stored.digest, stored.size_bytes, depth)
    assert str(stored.digest) in caught.value.message
    assert str(Digest.of(blob.read_bytes())) in caught.value.message


def test_check_finds_a_flip_even_if_the_modification_time_was_put_back(
    on_disk: Registry, stored: StoredBlob, blob: Path
) -> None:
    before = blob.stat()
    _flip(blob)
    os.utime(blob, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(IntegrityError):
        on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)


def test_check_finds_a_flip_through_a_deployed_link(
    on_disk: Registry, stored: StoredBlob, tmp_path: Path
) -> None:
    on_disk.stores.blobs.materialise(stored.digest, tmp_path / "deployed")
    _flip(tmp_path / "deployed")
    with pytest.raises(IntegrityError):
        on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)


@pytest.mark.parametrize("depth", list(Depth))
def test_check_finds_a_truncated_blob(
    on_disk: Registry, stored: StoredBlob, blob: Path, depth: Depth
) -> None:
    os.truncate(blob, stored.size_bytes - 1)
    with pytest.raises(IntegrityError, match=r"3,145,744 bytes, want 3,145,745"):
        on_disk.stores.blobs.check(stored.digest, stored.size_bytes, depth)


def test_check_finds_a_blob_replaced_by_another_file(
    on_disk: Registry, stored: StoredBlob, blob: Path
) -> None:
    before = blob.stat()
    other = blob.with_name("other")
    other.write_bytes(bytes(stored.size_bytes))
    os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
    other.replace(blob)
    with pytest.raises(IntegrityError):
        on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)


def test_a_full_check_that_fails_ends_the_trust_in_an_unchanged_look(
    on_disk: Registry, stored: StoredBlob, blob: Path
) -> None:
    # Bytes that decay on the disk change no time: as if the stamp had been taken on wrong bytes.
    _flip(blob)
    os.utime(blob, ns=(0, 0))
    on_disk.stores.blobs._stamps.write(stored.digest, blob.stat())
    on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)
    with pytest.raises(IntegrityError):
        on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.FULL)
    with pytest.raises(IntegrityError):
        on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)


@pytest.mark.parametrize("left", [b"", b"garbage", b"[1,2]", b'["a",2,3,4,5]', b"{}"])
def test_a_damaged_stamp_costs_a_hash_and_nothing_else(
    on_disk: Registry, root: Path, stored: StoredBlob, hashed: list[int], left: bytes
) -> None:
    stamp = root / "cache" / "verified" / stored.digest.hex
    stamp.write_bytes(left)
    on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)
    assert len(hashed) == 1
    on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)
    assert len(hashed) == 1


def test_a_file_changed_moments_ago_is_not_stamped(
    on_disk: Registry, root: Path, stored: StoredBlob, blob: Path, hashed: list[int]
) -> None:
    os.utime(blob)
    for _ in range(2):
        on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)
    assert len(hashed) == 2


def test_a_stored_file_is_dated_before_any_later_write(stored: StoredBlob, blob: Path) -> None:
    stat = blob.stat()
    assert stat.st_ctime_ns - stat.st_mtime_ns >= SETTLED_AFTER_NS


@pytest.mark.parametrize("ownership", list(Ownership))
def test_adding_the_good_bytes_again_heals_a_damaged_blob(
    on_disk: Registry, stored: StoredBlob, blob: Path, source: Path, ownership: Ownership
) -> None:
    _flip(blob)
    assert on_disk.stores.blobs.add_file(source, ownership) == stored
    on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.FULL)


def test_adding_good_bytes_again_heals_a_damaged_blob(
    on_disk: Registry, stored: StoredBlob, blob: Path, source: Path
) -> None:
    _flip(blob)
    assert on_disk.stores.blobs.add_bytes(source.read_bytes()) == stored
    on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.FULL)


def test_adding_again_a_given_file_that_is_the_blob_keeps_it_and_its_stamp(
    on_disk: Registry, source: Path, hashed: list[int]
) -> None:
    stored = on_disk.stores.blobs.add_file(source, Ownership.GIVEN)
    assert on_disk.stores.blobs.add_file(source, Ownership.GIVEN) == stored
    hashed.clear()
    on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)
    assert hashed == []


def test_materialising_where_links_are_impossible_copies(
    on_disk: Registry, stored: StoredBlob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", no_links)
    target = tmp_path / "deployed"
    on_disk.stores.blobs.materialise(stored.digest, target)
    assert Digest.of(target.read_bytes()) == stored.digest
    assert target.stat().st_mode & 0o777 == 0o444
    assert target.stat().st_nlink == 1


def test_a_missing_cache_directory_is_no_obstacle(
    on_disk: Registry, root: Path, stored: StoredBlob
) -> None:
    for stamp in (root / "cache" / "verified").iterdir():
        stamp.unlink()
    (root / "cache" / "verified").rmdir()
    (root / "cache").rmdir()
    (root / "cache").write_text("in the way")
    on_disk.stores.blobs.check(stored.digest, stored.size_bytes, Depth.UNCHANGED)


def test_copies_on_several_threads_use_their_own_buffers(on_disk: Registry, tmp_path: Path) -> None:
    large = [os.urandom(ingest.RING_FROM_BYTES + 1000 + number) for number in range(3)]
    paths = []
    for number, data in enumerate(large):
        paths.append(tmp_path / f"{number}.bin")
        paths[-1].write_bytes(data)
    found: dict[int, Digest] = {}

    def add(number: int) -> None:
        found[number] = on_disk.stores.blobs.add_file(paths[number], Ownership.KEPT).digest

    threads = [threading.Thread(target=add, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: Digest.of(data) for number, data in enumerate(large)}
