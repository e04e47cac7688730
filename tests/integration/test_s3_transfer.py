"""Blobs on their way to and from a bucket: parts, resuming, damage, and what is looked at."""

import errno
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from engine_registry import layout
from engine_registry.backends.s3.address import ChecksumMode, S3Address
from engine_registry.backends.s3.blobs import S3Blobs
from engine_registry.backends.s3.bucket import Patience
from engine_registry.backends.s3.objects import Objects
from engine_registry.backends.s3.root import S3Root
from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError, InvalidInput, NotFound, Unavailable
from engine_registry.store import Depth, Ownership
from engine_registry.testing.samples import TickingClock
from tests.servers.s3 import S3Server
from tests.servers.s3_fake import FakeS3, Habits, Upload, serving
from tests.servers.s3_faults import Fault, FaultyProxy, proxied, throttled

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.usefixtures("s3_credentials")]

# The least that SeaweedFS and AWS take for a part that is not the last.
REAL_PART_BYTES = 5 << 20
PART_BYTES = 64 << 10
# No pauses: a fault is over with the next try, or stays for the whole test.
NO_PAUSE = Patience(attempts=3, pause_s=0, connect_s=2, read_s=5)
MODES = pytest.mark.parametrize("mode", list(ChecksumMode))


def blobs_at(server: S3Server, url: str, part_bytes: int = PART_BYTES) -> S3Blobs:
    """The blob port as `s3_stores` makes it, with parts small enough for a test."""
    root = S3Root(Objects(server.bucket_at(url)), TickingClock())
    return S3Blobs(root, part_bytes=part_bytes, range_bytes=max(part_bytes // 3, 1000))


class World:
    """A fake store behind a proxy, and one registry there."""

    def __init__(self, fake: FakeS3, proxy: FaultyProxy, server: S3Server, mode: str) -> None:
        self.fake = fake
        self.proxy = proxy
        self.server = server
        self.url = server.url(checksum=mode)
        server.founded(self.url)
        self.blobs = blobs_at(server, self.url)
        self.blobs.add_bytes(b"opens it")

    def key(self, digest: Digest) -> str:
        return S3Address.parse(self.url).key(layout.blob(digest))

    def upload(self) -> Upload:
        (upload,) = self.fake.uploads.values()
        return upload

    def fail(self, method: str, words: str, fault: Fault = Fault.ERROR, after: int = 0) -> None:
        """Requests of this kind go wrong, all but the first `after`."""
        seen = 0

        def plan(_: int, sent: str, path: str) -> Fault | None:
            nonlocal seen
            if sent == method and words in path:
                seen += 1
                return fault if seen > after else None
            return None

        self.proxy.restart(plan)

    def fail_once(self, method: str, words: str, fault: Fault) -> None:
        done = False

        def plan(_: int, sent: str, path: str) -> Fault | None:
            nonlocal done
            if done or sent != method or words not in path:
                return None
            done = True
            return fault

        self.proxy.restart(plan)

    def heal(self) -> None:
        self.proxy.restart(lambda *_: None)
        self.fake.requests.clear()

    def sent_parts(self) -> int:
        return sum(r.startswith("PUT") and "/blobs/" in r for r in self.fake.requests)


@contextmanager
def world(mode: str = "crc32", **habits: bool) -> Iterator[World]:
    fake = FakeS3(Habits(**habits))
    with serving(fake) as endpoint, proxied(endpoint) as (proxy, front):
        yield World(fake, proxy, S3Server(front, patience=NO_PAUSE), mode)


def source(folder: Path, parts: float = 4.5, part_bytes: int = PART_BYTES) -> tuple[Path, Digest]:
    data = os.urandom(int(parts * part_bytes))
    path = folder / "rank0.engine"
    path.write_bytes(data)
    return path, Digest.of(data)


@MODES
def test_a_large_file_goes_to_a_real_store_in_parts_and_comes_back_whole(
    seaweed: S3Server, tmp_path: Path, mode: ChecksumMode
) -> None:
    url = seaweed.url(checksum=mode)
    seaweed.founded(url)
    blobs = blobs_at(seaweed, url, REAL_PART_BYTES)
    path, digest = source(tmp_path, 2.3, REAL_PART_BYTES)
    stored = blobs.add_file(path, Ownership.KEPT)
    assert stored.digest == digest
    blobs.materialise(digest, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == path.read_bytes()
    blobs.check(digest, stored.size_bytes, Depth.UNCHANGED)
    blobs.check(digest, stored.size_bytes, Depth.FULL)
    with blobs.open(digest) as stream:
        assert Digest.of_stream(stream) == digest


def test_an_upload_to_a_real_store_resumes_and_replaces_a_wrong_part(
    seaweed: S3Server, tmp_path: Path
) -> None:
    path, digest = source(tmp_path, 3.5, REAL_PART_BYTES)
    with proxied(seaweed.endpoint) as (proxy, front):
        server = S3Server(front, patience=NO_PAUSE)
        url = server.url()
        server.founded(url)
        blobs = blobs_at(server, url, REAL_PART_BYTES)
        proxy.restart(lambda _n, _m, p: Fault.ERROR if "partNumber=3" in p else None)
        with pytest.raises(Unavailable):
            blobs.add_file(path, Ownership.KEPT)
        key = S3Address.parse(url).key(layout.blob(digest))
        listed = seaweed.client.list_multipart_uploads(Bucket=seaweed.bucket, Prefix=key)
        (upload,) = listed["Uploads"]
        seaweed.client.upload_part(
            Bucket=seaweed.bucket,
            Key=key,
            UploadId=upload["UploadId"],
            PartNumber=2,
            Body=b"x" * REAL_PART_BYTES,
        )
        sent: list[str] = []
        proxy.restart(lambda _n, m, p: sent.append(p) if m == "PUT" else None)
        blobs.add_file(path, Ownership.KEPT)
    numbers = {p.partition("partNumber=")[2][0] for p in sent}
    # SeaweedFS keeps both writes of part 2, lists both, and takes the one that completing names.
    assert {"3"} <= numbers <= {"2", "3"}
    seaweed.stores(url).blobs.check(digest, path.stat().st_size, Depth.FULL)


@pytest.mark.parametrize(
    ("habits", "kept"),
    [
        ({}, 3),  # the store lists checksums
        ({"opaque_etags": True}, 3),
        ({"keeps_checksums": False}, 3),  # ETags that are MD5s are as good
        ({"keeps_checksums": False, "opaque_etags": True}, 0),  # nothing is provable
    ],
    ids=["checksums", "checksums, opaque ETags", "MD5 ETags", "no evidence"],
)
@pytest.mark.parametrize("mode", ["crc32", "sha256"])
def test_an_interrupted_upload_keeps_the_parts_that_are_provably_right(
    tmp_path: Path, habits: dict[str, bool], kept: int, mode: str
) -> None:
    path, digest = source(tmp_path)
    with world(mode, **habits) as here:
        here.fail("PUT", "partNumber", after=3)
        with pytest.raises(Unavailable) as caught:
            here.blobs.add_file(path, Ownership.KEPT)
        assert caught.value.name == "store-unreachable"
        assert here.key(digest) not in here.fake.objects
        there = len(here.upload().parts)
        assert there == 3
        here.heal()
        blobs_at(here.server, here.url).add_file(path, Ownership.KEPT)
        assert here.sent_parts() == 5 - kept
        assert here.fake.objects[here.key(digest)].data == path.read_bytes()


def test_a_part_that_was_stored_wrong_is_sent_again(tmp_path: Path) -> None:
    path, digest = source(tmp_path)
    with world(keeps_checksums=False) as here:
        here.fail("PUT", "partNumber", after=4)
        with pytest.raises(Unavailable):
            here.blobs.add_file(path, Ownership.KEPT)
        spoilt = here.upload().parts[min(here.upload().parts)]
        spoilt.data = bytes(len(spoilt.data))
        spoilt.etag = f'"{"0" * 32}"'
        here.heal()
        here.blobs.add_file(path, Ownership.KEPT)
        assert here.fake.objects[here.key(digest)].data == path.read_bytes()
        assert here.sent_parts() == 2


def test_an_unfinished_upload_of_another_making_is_not_built_upon(tmp_path: Path) -> None:
    path, digest = source(tmp_path)
    with world("sha256") as here:
        here.fail("PUT", "partNumber", after=3)
        with pytest.raises(Unavailable):
            here.blobs.add_file(path, Ownership.KEPT)
        here.heal()
        other = here.url.replace("sha256", "crc32")
        blobs_at(here.server, other).add_file(path, Ownership.KEPT)
        assert here.sent_parts() == 5
        here.blobs.check(digest, path.stat().st_size, Depth.UNCHANGED)


def test_a_blob_that_is_there_is_not_sent_again(tmp_path: Path) -> None:
    path, _ = source(tmp_path)
    with world() as here:
        here.blobs.add_file(path, Ownership.KEPT)
        here.heal()
        here.blobs.add_file(path, Ownership.KEPT)
        assert [request.split()[0] for request in here.fake.requests] == ["HEAD"]


def test_two_writers_of_one_blob_at_once_leave_it_whole(tmp_path: Path) -> None:
    path, digest = source(tmp_path, 12)
    with world() as here:
        writers = [blobs_at(here.server, here.url) for _ in range(4)]
        with ThreadPoolExecutor(4) as pool:
            stored = set(pool.map(lambda blobs: blobs.add_file(path, Ownership.KEPT), writers))
        assert len(stored) == 1
        here.blobs.check(digest, path.stat().st_size, Depth.FULL)


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.TRUNCATED, Fault.ERROR, Fault.RESET])
def test_a_lost_reply_to_the_completion_is_no_failure(tmp_path: Path, fault: Fault) -> None:
    path, digest = source(tmp_path)
    with world() as here:
        here.fail_once("POST", "uploadId", fault)
        here.blobs.add_file(path, Ownership.KEPT)
        assert here.proxy.faults == 1
        here.blobs.check(digest, path.stat().st_size, Depth.FULL)
        assert not here.fake.uploads


def test_an_upload_that_is_swept_away_under_us_is_begun_again(tmp_path: Path) -> None:
    path, digest = source(tmp_path)
    with world() as here:

        def plan(_: int, method: str, request: str) -> None:
            if method == "PUT" and "partNumber=4" in request and not here.fake.objects.get("swept"):
                here.fake.objects["swept"] = next(iter(here.upload().parts.values()))
                here.fake.uploads.clear()

        here.proxy.restart(plan)
        here.blobs.add_file(path, Ownership.KEPT)
        assert "swept" in here.fake.objects
        here.blobs.check(digest, path.stat().st_size, Depth.FULL)


def test_an_upload_that_is_always_swept_away_is_given_up_with_a_reason(tmp_path: Path) -> None:
    path, _ = source(tmp_path)
    with world() as here:
        here.proxy.restart(
            lambda _n, m, p: here.fake.uploads.clear() if "partNumber" in p else None
        )
        with pytest.raises(Unavailable) as caught:
            here.blobs.add_file(path, Ownership.KEPT)
        assert caught.value.name == "store-upload-ended"


def test_orphaned_uploads_are_aborted_and_young_ones_kept(tmp_path: Path) -> None:
    with world() as here:
        for number, days in enumerate((8, 6)):
            key = here.key(Digest.of(b"%d" % number))
            here.fake.uploads[str(number)] = Upload(key, {}, at=time.time() - days * 86400)
        here.fake.uploads["foreign"] = Upload("elsewhere/x", {}, at=0)
        path, _ = source(tmp_path)
        here.blobs.add_file(path, Ownership.KEPT)
        assert set(here.fake.uploads) == {"1", "foreign"}
        assert here.blobs.sweep_uploads(timedelta(days=1)) == [layout.blob(Digest.of(b"1"))]


def test_without_the_right_to_list_uploads_nothing_resumes_but_all_works(tmp_path: Path) -> None:
    path, digest = source(tmp_path)
    with world() as here:
        here.fail("GET", "uploads")
        here.blobs.add_file(path, Ownership.KEPT)
        here.blobs.check(digest, path.stat().st_size, Depth.FULL)


@MODES
def test_bytes_damaged_on_the_way_are_noticed_by_the_store_and_sent_again(
    tmp_path: Path, mode: ChecksumMode
) -> None:
    path, digest = source(tmp_path)
    with world(mode) as here:
        here.fail_once("PUT", "partNumber=2", Fault.DAMAGED)
        here.blobs.add_file(path, Ownership.KEPT)
        here.fail_once("PUT", "blobs/", Fault.DAMAGED)
        small = here.blobs.add_bytes(b"a report")
        assert here.proxy.faults == 2
        here.blobs.check(digest, path.stat().st_size, Depth.FULL)
        here.blobs.check(small.digest, small.size_bytes, Depth.FULL)


def test_bytes_damaged_on_every_way_name_the_network(tmp_path: Path) -> None:
    path, digest = source(tmp_path)
    with world() as here:
        here.fail("PUT", "partNumber=2", Fault.DAMAGED)
        with pytest.raises(Unavailable) as caught:
            here.blobs.add_file(path, Ownership.KEPT)
        assert caught.value.name == "store-transfer-damaged"
        assert here.key(digest) not in here.fake.objects


@pytest.mark.parametrize("change", ["written", "truncated", "grown"])
def test_a_file_that_changes_while_it_is_sent_is_refused_and_not_visible(
    tmp_path: Path, change: str
) -> None:
    path, digest = source(tmp_path)
    with world() as here:

        def plan(_: int, method: str, request: str) -> None:
            if method != "POST" or "uploads" not in request:
                return
            if change == "written":
                with path.open("r+b") as stream:
                    stream.seek(-10, os.SEEK_END)
                    stream.write(b"0123456789")
            else:
                os.truncate(path, 1000 if change == "truncated" else path.stat().st_size + 1)

        here.proxy.restart(plan)
        with pytest.raises(InvalidInput) as caught:
            here.blobs.add_file(path, Ownership.KEPT)
        assert caught.value.name == "source-file-changed"
        if change != "grown":
            assert here.key(digest) not in here.fake.objects


def test_parts_are_guarded_by_a_signed_checksum_and_small_bodies_by_the_signature_itself(
    tmp_path: Path,
) -> None:
    path, _ = source(tmp_path)
    sent: list[Any] = []
    with world() as here:
        here.server.client.meta.events.register(
            "before-send.s3", lambda request, **_: sent.append(request)
        )
        here.blobs.add_file(path, Ownership.KEPT)
        small = here.blobs.add_bytes(b"a report")
    puts = [request for request in sent if request.method == "PUT"]
    parts = [request.headers for request in puts if "partNumber" in request.url]
    assert len(parts) == 5
    for headers in parts:
        assert headers["X-Amz-Content-SHA256"] == b"UNSIGNED-PAYLOAD"
        signed = headers["Authorization"].decode().partition("SignedHeaders=")[2].split(",")[0]
        assert "x-amz-checksum-crc32" in signed.split(";")
    (body,) = [r for r in puts if small.digest.hex in r.url]
    assert body.headers["X-Amz-Content-SHA256"].decode() == small.digest.hex


def test_a_disk_that_fails_while_a_part_is_sent_is_named_and_not_taken_for_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, digest = source(tmp_path)

    def fails(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with world() as here:
        here.proxy.restart(
            lambda _n, m, p: (
                monkeypatch.setattr(os, "preadv", fails) if m == "POST" and "uploads" in p else None
            )
        )
        with pytest.raises(Unavailable) as caught:
            here.blobs.add_file(path, Ownership.KEPT)
        monkeypatch.undo()
        assert caught.value.name == "source-file-unreadable"
        assert here.key(digest) not in here.fake.objects


def test_a_quick_check_is_one_look_at_the_head(tmp_path: Path) -> None:
    path, digest = source(tmp_path)
    with world() as here:
        here.blobs.add_file(path, Ownership.KEPT)
        here.heal()
        here.blobs.check(digest, path.stat().st_size, Depth.UNCHANGED)
        assert [request.split()[0] for request in here.fake.requests] == ["HEAD"]


@pytest.mark.parametrize("parts", [0.5, 4.5], ids=["in one", "in parts"])
@pytest.mark.parametrize("keeps_metadata", [True, False])
def test_right_size_but_other_bytes_are_noticed_without_hashing_everything_each_time(
    tmp_path: Path, parts: float, keeps_metadata: bool
) -> None:
    path, digest = source(tmp_path, parts)
    size_bytes = path.stat().st_size
    with world() as here:
        here.blobs.add_file(path, Ownership.KEPT)
        old = here.fake.objects[here.key(digest)]
        metadata = {"sha256": old.headers["x-amz-meta-sha256"]}
        if "x-amz-meta-checksums" in old.headers:
            metadata["checksums"] = old.headers["x-amz-meta-checksums"]
        here.server.put(
            here.url,
            layout.blob(digest),
            bytes(size_bytes),
            Metadata=metadata if keeps_metadata else {},
            ChecksumAlgorithm="CRC32",
        )
        with pytest.raises(IntegrityError) as caught:
            here.blobs.check(digest, size_bytes, Depth.UNCHANGED)
        assert str(Digest.of(bytes(size_bytes))) in caught.value.message
        with pytest.raises(IntegrityError):
            here.blobs.materialise(digest, tmp_path / "out")
        assert not list(tmp_path.glob("*out*")) + list(tmp_path.glob(".*"))
        here.blobs.add_file(path, Ownership.KEPT)
        here.blobs.check(digest, size_bytes, Depth.FULL)


def test_damage_below_an_intact_head_is_remembered_once_it_was_found(tmp_path: Path) -> None:
    """A disk that rots below the store: its head goes on to state the old checksum."""
    path, digest = source(tmp_path)
    size_bytes = path.stat().st_size
    with world() as here:
        here.blobs.add_file(path, Ownership.KEPT)
        here.fake.objects[here.key(digest)].data = bytes(size_bytes)
        here.fake.objects[here.key(digest)].at -= 86400
        here.blobs.check(digest, size_bytes, Depth.UNCHANGED)
        with pytest.raises(IntegrityError):
            here.blobs.check(digest, size_bytes, Depth.FULL)
        elsewhere = blobs_at(here.server, here.url)
        with pytest.raises(IntegrityError):
            elsewhere.check(digest, size_bytes, Depth.UNCHANGED)
        blobs_at(here.server, here.url).add_file(path, Ownership.KEPT)
        assert here.fake.objects[here.key(digest)].data == path.read_bytes()
        blobs_at(here.server, here.url).check(digest, size_bytes, Depth.UNCHANGED)


def test_a_blob_that_another_tool_copied_in_is_hashed_once_and_then_known(tmp_path: Path) -> None:
    data = os.urandom(100_000)
    digest = Digest.of(data)
    with world() as here:
        here.server.put(here.url, layout.blob(digest), data)
        here.blobs.check(digest, len(data), Depth.UNCHANGED)
        here.heal()
        blobs_at(here.server, here.url).check(digest, len(data), Depth.UNCHANGED)
        assert not [r for r in here.fake.requests if r.startswith("GET") and "blobs/" in r]


def test_a_blob_of_another_size_is_named_with_both(tmp_path: Path) -> None:
    with world() as here:
        stored = here.blobs.add_bytes(b"engine")
        with pytest.raises(IntegrityError, match="holds 6 bytes, want 7"):
            here.blobs.check(stored.digest, 7, Depth.UNCHANGED)


@pytest.mark.parametrize("fault", [Fault.TRUNCATED, Fault.RESET, Fault.LOST, Fault.BUSY])
def test_a_broken_connection_does_not_break_a_stream(tmp_path: Path, fault: Fault) -> None:
    path, digest = source(tmp_path)
    with world() as here:
        here.blobs.add_file(path, Ownership.KEPT)
        here.fail_once("GET", "blobs/", fault)
        with here.blobs.open(digest) as stream:
            assert stream.read() == path.read_bytes()
        here.fail_once("GET", "blobs/", fault)
        here.blobs.materialise(digest, tmp_path / "out")
        assert (tmp_path / "out").read_bytes() == path.read_bytes()
        assert here.proxy.faults == 2


def test_an_object_replaced_while_it_is_read_is_noticed(tmp_path: Path) -> None:
    path, digest = source(tmp_path)
    with world() as here:
        here.blobs.add_file(path, Ownership.KEPT)

        def plan(_: int, method: str, request: str) -> None:
            if method == "GET" and "blobs/" in request:
                here.fake.objects[here.key(digest)].etag = '"another"'

        here.proxy.restart(plan)
        with pytest.raises(Unavailable) as caught:
            here.blobs.materialise(digest, tmp_path / "out")
        assert caught.value.name == "store-object-replaced"
        assert not (tmp_path / "out").exists()


def test_a_full_disk_is_found_before_the_first_byte_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, digest = source(tmp_path)
    with world() as here:
        here.blobs.add_file(path, Ownership.KEPT)
        here.heal()

        def full(*_: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "posix_fallocate", full)
        with pytest.raises(Unavailable) as caught:
            here.blobs.materialise(digest, tmp_path / "out")
        assert caught.value.name == "disk-full"
        assert not [r for r in here.fake.requests if r.startswith("GET")]
        assert sorted(p.name for p in tmp_path.iterdir()) == ["rank0.engine"]


def test_encrypted_objects_whose_etag_is_no_md5_work_with_a_key_service(
    moto: S3Server, tmp_path: Path
) -> None:
    bucket = "encrypted"
    moto.client.create_bucket(Bucket=bucket)
    rule = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "aws:kms"}}
    moto.client.put_bucket_encryption(
        Bucket=bucket, ServerSideEncryptionConfiguration={"Rules": [rule]}
    )
    moto.client.put_bucket_versioning(Bucket=bucket, VersioningConfiguration={"Status": "Enabled"})
    server = S3Server(moto.endpoint, bucket)
    url = server.url()
    server.founded(url)
    blobs = blobs_at(server, url, REAL_PART_BYTES)
    path, digest = source(tmp_path, 2.1, REAL_PART_BYTES)
    blobs.add_file(path, Ownership.KEPT)
    blobs.check(digest, path.stat().st_size, Depth.FULL)
    blobs.materialise(digest, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == path.read_bytes()


def test_a_blob_removed_meanwhile_is_missing_not_broken(tmp_path: Path) -> None:
    with world() as here:
        stored = here.blobs.add_bytes(b"engine")
        del here.fake.objects[here.key(stored.digest)]
        with pytest.raises(NotFound):
            here.blobs.check(stored.digest, 6, Depth.UNCHANGED)
        with pytest.raises(NotFound):
            cast("S3Blobs", here.blobs).materialise(stored.digest, tmp_path / "out")


def test_a_slow_link_is_slow_and_no_failure(tmp_path: Path) -> None:
    """Sending may take much longer than the store may be silent."""
    # The sender's socket buffer (4 MiB at most) drains within `read_s` at this rate.
    data = os.urandom(20 << 20)
    patience = Patience(attempts=1, read_s=1.5)
    fake = FakeS3()
    with serving(fake) as endpoint, throttled(endpoint, 4 << 20) as slow:
        quick, server = S3Server(endpoint), S3Server(slow, patience=patience)
        url = server.url("p")
        quick.founded(quick.url("p"))
        began = time.monotonic()
        stored = server.stores(url).blobs.add_bytes(data)
        assert time.monotonic() - began > 2 * patience.read_s
    assert stored.digest == Digest.of(data)
