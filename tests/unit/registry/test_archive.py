"""Archives: written the same every time, readable by any tar, and never trusted."""

import hashlib
import io
import random
import subprocess
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine_registry import archive_reader, layout
from engine_registry.archive import import_archive, read_archive, write_archive
from engine_registry.archive_header import BLOCK, END, RECORD, header, padded
from engine_registry.backends.memory import memory_stores
from engine_registry.digest import Digest
from engine_registry.errors import EngineCIError, IntegrityError, InvalidInput
from engine_registry.refs import ReleaseRef
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import (
    SAMPLE_ACTOR,
    SAMPLE_PRODUCT,
    TickingClock,
    sample_engine,
    sample_release,
    sample_report,
)
from engine_registry.transfer import Arrival
from engine_registry.transfer_plan import ReleaseStep
from engine_registry.verify import verify

ONE = ReleaseRef(SAMPLE_PRODUCT, 1)
FILES = {"model.gguf": bytes(range(256)) * 6000, "config.json": b"{}"}
Members = list[tuple[str, bytes]]


def in_memory() -> Registry:
    clock = TickingClock()
    return Registry(memory_stores(clock), clock)


def filled() -> Registry:
    registry = in_memory()
    sample_engine(registry, "other")
    engine = sample_engine(registry, files=FILES)
    sample_release(registry, engine, evidence=(sample_report(registry, engine.digest),))
    return registry


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    write_archive(filled(), ONE, tmp_path / "one.tar")
    return tmp_path / "one.tar"


def take(archive: Path, to: Registry) -> Arrival:
    return import_archive(archive, to, actor=SAMPLE_ACTOR)


def members(archive: Path) -> Members:
    with tarfile.open(archive) as tar:
        return [(info.name, tar.extractfile(info).read()) for info in tar]  # type: ignore[union-attr]


def packed(entries: Members) -> bytes:
    """An archive as ours are, of anything."""
    data = b"".join(
        header(name, len(body)) + body + bytes(padded(len(body)) - len(body))
        for name, body in entries
    )
    return (data + END).ljust(padded(len(data + END), RECORD), b"\0")


def refuse(data: bytes, tmp_path: Path) -> EngineCIError:
    """Import must fail in one line and leave nothing that a reader could see."""
    path = tmp_path / "bad.tar"
    path.write_bytes(data)
    to = in_memory()
    with pytest.raises(EngineCIError) as refused:
        take(path, to)
    assert "\n" not in refused.value.message
    seen = [f.name for f in to.stores.inventory.files() if not f.name.startswith(layout.BLOBS)]
    assert set(seen) <= {layout.REGISTRY}
    return refused.value


@pytest.mark.parametrize("kind", ["memory", "filesystem"])
def test_a_release_comes_out_of_an_archive_as_it_went_in(
    archive: Path, kind: str, tmp_path: Path
) -> None:
    to = in_memory()
    if kind == "filesystem":
        to = open_registry(f"file://{tmp_path / 'there'}", TickingClock())
    arrival = take(archive, to)
    assert arrival.step is ReleaseStep.CREATE
    assert to.releases.release(ONE) == filled().releases.release(ONE)
    assert verify(to).is_whole
    again = take(archive, to)
    assert (again.step, again.sent) == (ReleaseStep.KEEP, 0)
    if kind == "filesystem":
        assert list((tmp_path / "there" / "tmp").iterdir()) == []


def test_the_same_content_gives_the_same_bytes(archive: Path, tmp_path: Path) -> None:
    to = in_memory()
    take(archive, to)
    _, digest = write_archive(to, ONE, tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == archive.read_bytes()
    assert digest == Digest.of(archive.read_bytes())


def test_any_tar_unpacks_it_to_a_registry_that_verifies(archive: Path, tmp_path: Path) -> None:
    out = tmp_path / "unpacked"
    out.mkdir()
    subprocess.run(["tar", "-xf", str(archive), "-C", str(out)], check=True)
    registry = open_registry(f"file://{out}", TickingClock())
    assert verify(registry).is_whole
    assert registry.releases.release(ONE) == filled().releases.release(ONE)
    for blob in (out / layout.BLOBS).iterdir():
        assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name


def test_an_archive_holds_nothing_of_other_engines(archive: Path) -> None:
    names = [name for name, _ in members(archive)]
    assert names == sorted(names)
    assert sum(name.startswith(layout.RECORDS) for name in names) == 1


def test_an_engine_can_go_without_a_release(tmp_path: Path) -> None:
    source, to = filled(), in_memory()
    engine = source.releases.release(ONE).content.engine
    write_archive(source, engine, tmp_path / "engine.tar")
    assert take(tmp_path / "engine.tar", to).release is None
    assert to.engines.check_engine(engine).digest == engine


def test_an_existing_file_is_never_written_over(archive: Path) -> None:
    before = archive.read_bytes()
    with pytest.raises(InvalidInput):
        write_archive(filled(), ONE, archive)
    assert archive.read_bytes() == before


def test_a_failed_export_leaves_no_file(tmp_path: Path) -> None:
    source = open_registry(f"file://{tmp_path / 'source'}", TickingClock())
    sample_release(source, sample_engine(source, files=FILES))
    blob = tmp_path / "source" / layout.blob(Digest.of(FILES["model.gguf"]))
    blob.chmod(0o644)
    blob.write_bytes(FILES["model.gguf"][:-1] + b"X")
    with pytest.raises(IntegrityError):
        write_archive(source, ONE, tmp_path / "out.tar")
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_files_of_8_gib_and_more_have_a_size_that_every_tar_reads() -> None:
    name, size_bytes = f"blobs/sha256/{'0' * 64}", 9 << 30
    block = header(name, size_bytes)
    assert tarfile.TarInfo.frombuf(block, "ascii", "strict").size == size_bytes
    assert archive_reader.read_header(block, 0) == (name, size_bytes)


def test_long_names_are_read_by_every_tar() -> None:
    name = f"releases/{'m' * 64}/{'t' * 64}/0000000001.json"
    assert tarfile.TarInfo.frombuf(header(name, 1), "ascii", "strict").name == name


def foreign(change: Callable[[tarfile.TarInfo], None], archive: Path) -> bytes:
    """The archive with one entry more, written by a library that writes anything."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in [*members(archive), ("zzz", b"")]:
            info = tarfile.TarInfo(name)
            info.size, info.mode = len(data), 0o444
            if name == "zzz":
                change(info)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../escaped", tarfile.REGTYPE),
        ("/etc/passwd", tarfile.REGTYPE),
        ("blobs/sha256/../../x", tarfile.REGTYPE),
        ("blobs/sha256/short", tarfile.REGTYPE),
        ("channels/tiny/cpu/prod/head.json", tarfile.REGTYPE),
        ("tmp/x", tarfile.REGTYPE),
        ("zzz", tarfile.SYMTYPE),
        ("zzz", tarfile.LNKTYPE),
        ("zzz", tarfile.CHRTYPE),
        ("zzz", tarfile.FIFOTYPE),
        ("zzz", tarfile.DIRTYPE),
        ("zzz", tarfile.GNUTYPE_SPARSE),
        ("zzz", tarfile.XHDTYPE),
    ],
)
def test_names_that_climb_links_and_devices_are_refused(
    name: str, kind: bytes, archive: Path, tmp_path: Path
) -> None:
    def change(info: tarfile.TarInfo) -> None:
        info.name, info.type, info.linkname = name, kind, "/etc/passwd"

    error = refuse(foreign(change, archive), tmp_path)
    assert error.name == "archive-damaged"


def test_an_archive_that_another_tar_wrote_again_says_so(archive: Path, tmp_path: Path) -> None:
    out = tmp_path / "unpacked"
    out.mkdir()
    subprocess.run(["tar", "-xf", str(archive), "-C", str(out)], check=True)
    again = tmp_path / "again.tar"
    subprocess.run(["tar", "-cf", str(again), "-C", str(out), "."], check=True)
    assert "another tar" in refuse(again.read_bytes(), tmp_path).message


@pytest.mark.parametrize("where", [0, 1, 511, 512, 5000, -1, -1024, -10240])
def test_a_truncated_archive_is_refused(where: int, archive: Path, tmp_path: Path) -> None:
    refuse(archive.read_bytes()[:where], tmp_path)


def test_an_archive_with_something_after_its_end_is_refused(archive: Path, tmp_path: Path) -> None:
    refuse(archive.read_bytes() + bytes(RECORD), tmp_path)
    refuse(archive.read_bytes()[:-1] + b"x", tmp_path)


def doubled(entries: Members) -> Members:
    return [entries[0], *entries]


def unordered(entries: Members) -> Members:
    return [entries[1], entries[0], *entries[2:]]


def with_a_blob_too_many(entries: Members) -> Members:
    data = b"smuggled"
    return sorted([*entries, (layout.blob(Digest.of(data)), data)])


def without_a_blob(entries: Members) -> Members:
    return [e for e in entries if e[0] != layout.blob(Digest.of(FILES["model.gguf"]))]


def without_the_record(entries: Members) -> Members:
    return [e for e in entries if not e[0].startswith(layout.RECORDS)]


def without_the_key(entries: Members) -> Members:
    return [e for e in entries if not e[0].startswith(layout.KEYS)]


def without_registry_json(entries: Members) -> Members:
    return [e for e in entries if e[0] != layout.REGISTRY]


def without_a_link(entries: Members) -> Members:
    links = [e for e in entries if e[0].startswith(layout.REFERRERS)]
    return [e for e in entries if e != links[0]]


def with_two_releases(entries: Members) -> Members:
    data = dict(entries)[layout.release(ONE)]
    return sorted([*entries, (layout.release(ReleaseRef(SAMPLE_PRODUCT, 2)), data)])


def with_a_renamed_release(entries: Members) -> Members:
    return [(n.replace("0000000001.json", "0000000002.json"), d) for n, d in entries]


def with_a_longer_blob(entries: Members) -> Members:
    weights = layout.blob(Digest.of(FILES["model.gguf"]))
    return [(n, d + b"x" if n == weights else d) for n, d in entries]


def with_other_bytes(entries: Members) -> Members:
    weights = layout.blob(Digest.of(FILES["model.gguf"]))
    return [(n, b"X" + d[1:] if n == weights else d) for n, d in entries]


def of_two_engines(entries: Members) -> Members:
    extra = f"{layout.RECORDS}/00/{'0' * 64}/{'0' * 64}.json"
    return sorted([*entries, (extra, b"{}")])


@pytest.mark.parametrize(
    "change",
    [
        doubled,
        unordered,
        with_a_blob_too_many,
        without_a_blob,
        without_the_record,
        without_the_key,
        without_registry_json,
        without_a_link,
        with_two_releases,
        with_a_renamed_release,
        with_a_longer_blob,
        with_other_bytes,
        of_two_engines,
        lambda _: [],
    ],
)
def test_an_archive_with_something_wrong_missing_or_to_spare_is_refused(
    change: Callable[[Members], Members], archive: Path, tmp_path: Path
) -> None:
    entries = members(archive)
    assert packed(entries) == archive.read_bytes()
    refuse(packed(change(entries)), tmp_path)


def test_a_huge_count_is_refused_before_anything_is_read(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_reader, "MAX_MEMBERS", 5)
    assert "more than 5 files" in refuse(archive.read_bytes(), tmp_path).message


def test_something_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput):
        read_archive(tmp_path)
    with pytest.raises(InvalidInput):
        read_archive(tmp_path / "missing")


@pytest.fixture(scope="module")
def good() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        source = in_memory()
        sample_release(source, sample_engine(source))
        write_archive(source, ONE, Path(folder) / "good.tar")
        return (Path(folder) / "good.tar").read_bytes()


def mutations(count: int) -> settings:
    return settings(
        max_examples=count,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture],
        database=None,
    )


@mutations(150)
@given(st.randoms(use_true_random=False))
def test_no_mutation_of_an_archive_gets_in(good: bytes, tmp_path: Path, rng: random.Random) -> None:
    data = mutated(good, rng)
    if data != good:
        refuse(data, tmp_path)


@pytest.mark.nightly
@mutations(20_000)
@given(st.randoms(use_true_random=False))
def test_none_of_many_mutations_of_an_archive_gets_in(
    good: bytes, tmp_path: Path, rng: random.Random
) -> None:
    data = mutated(good, rng)
    if data != good:
        refuse(data, tmp_path)


def mutated(good: bytes, rng: random.Random) -> bytes:
    """Flip, cut, double, swap or overwrite; mostly at the edges of blocks, where it hurts."""
    data = bytearray(good)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(max(len(data), 1))
        if rng.random() < 0.7:
            at = at // BLOCK * BLOCK + rng.choice([0, 100, 124, 135, 148, 156, 157, 257, 345])
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at : at + rng.choice([1, BLOCK, 4 * BLOCK])]
        elif kind == 2:
            data[at:at] = data[at : at + BLOCK]
        elif kind == 3:
            data[at:at] = bytes(rng.choice([1, BLOCK, RECORD]))
        elif kind == 4:
            other = rng.randrange(max(len(data) // BLOCK, 1)) * BLOCK
            block = at // BLOCK * BLOCK
            data[block : block + BLOCK], data[other : other + BLOCK] = (
                data[other : other + BLOCK],
                data[block : block + BLOCK],
            )
        else:
            data[at : at + 12] = rng.choice([b"\x80" + b"\xff" * 11, b"77777777777\0", bytes(12)])
    return bytes(data)
