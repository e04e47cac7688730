"""The invariants that the registry alone keeps; those that need crashes or races are in faults."""

import dataclasses
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.digest import Digest
from engine_registry.documents import Document, seal
from engine_registry.errors import ChannelMoved, DocumentConflict, IntegrityError
from engine_registry.events import Held
from engine_registry.record import KeyLink
from engine_registry.refs import ReleaseRef
from engine_registry.registry import Registry
from engine_registry.store import BlobStore, DocumentStore, PointerStore
from engine_registry.testing.samples import (
    SAMPLE_ACTOR,
    SAMPLE_CHANNEL,
    SAMPLE_PRODUCT,
    TickingClock,
    sample_draft,
    sample_engine,
    sample_event,
    sample_promotion,
    sample_release,
    sample_report,
)


class _Journal:
    """Passes everything on and notes the names of what is written, in order."""

    def __init__(self, inner: BlobStore | DocumentStore | PointerStore, names: list[str]) -> None:
        self._inner = inner
        self._names = names

    def __getattr__(self, method: str):
        real = getattr(self._inner, method)
        if method not in {"add_file", "add_bytes", "create", "swap"}:
            return real

        def noted(*arguments):
            answer = real(*arguments)
            is_blob = method.startswith("add_")
            self._names.append(layout.blob(answer.digest) if is_blob else arguments[0])
            return answer

        return noted


def test_invariant_1_everything_is_written_before_what_names_it(
    registry: Registry, tmp_path: Path
) -> None:
    names: list[str] = []
    stores = registry.stores
    noted = Registry(
        dataclasses.replace(
            stores,
            blobs=_Journal(stores.blobs, names),
            documents=_Journal(stores.documents, names),
            pointers=_Journal(stores.pointers, names),
        ),
        TickingClock(),
    )
    engine = noted.engines.put_engine(sample_draft(tmp_path))
    report = sample_report(noted, engine.digest)
    release = sample_release(noted, engine, evidence=(report,))
    sample_event(noted, sample_promotion(release))

    def first(name: str) -> int:
        return names.index(name)

    record = engine.records[0]
    manifest = first(layout.blob(engine.digest))
    for part in (engine.manifest.config, *engine.manifest.layers):
        assert first(layout.blob(part.digest)) < manifest
    record_at = first(layout.record(engine.digest, record.build_key))
    for link in noted.engines.referrers(engine.digest):
        attached = noted.engines.manifest(link.manifest)
        link_at = first(layout.referrer(engine.digest, link.manifest))
        assert manifest < first(layout.blob(link.manifest)) < link_at
        for layer in attached.layers:
            assert first(layout.blob(layer.digest)) < first(layout.blob(link.manifest))
        if link.manifest != report:
            assert link_at < record_at
    assert names[record_at + 1] == layout.key(record.build_key, engine.digest)
    assert names[-3:] == [
        layout.release(ReleaseRef(SAMPLE_PRODUCT, 1)),
        layout.event(SAMPLE_CHANNEL, 1),
        layout.head(SAMPLE_CHANNEL),
    ]


def test_invariant_2_every_read_that_leaves_the_registry_is_checked(
    on_disk: Registry, root: Path, tmp_path: Path
) -> None:
    engine = sample_engine(on_disk)
    report = sample_report(on_disk, engine.digest)
    release = sample_release(on_disk, engine, evidence=(report,))
    sample_event(on_disk, sample_promotion(release))
    key = engine.records[0].build_key
    layer = engine.manifest.layers[0]
    attached = on_disk.engines.manifest(report)
    reads = {
        layout.blob(engine.digest): lambda: on_disk.engines.engine(engine.digest),
        layout.blob(layer.digest): lambda: on_disk.engines.materialise(
            engine.digest, tmp_path / "out"
        ),
        layout.blob(report): lambda: on_disk.engines.read_attachment(report),
        layout.blob(attached.layers[0].digest): lambda: on_disk.engines.read_attachment(report),
        layout.record(engine.digest, key): lambda: on_disk.engines.records(engine.digest),
        layout.referrer(engine.digest, report): lambda: on_disk.engines.referrers(engine.digest),
        layout.release(ReleaseRef(SAMPLE_PRODUCT, 1)): lambda: on_disk.resolve("tiny/cpu:1"),
        layout.event(SAMPLE_CHANNEL, 1): lambda: on_disk.channels.state(SAMPLE_CHANNEL),
        "registry.json": on_disk.info,
    }
    for name, read in reads.items():
        path = root / name
        before = path.read_bytes()
        path.chmod(0o644)
        path.write_bytes(before[:-5] + bytes([before[-5] ^ 1]) + before[-4:])
        with pytest.raises(IntegrityError):
            read()
        path.write_bytes(before)
    assert not (tmp_path / "out").exists()


def test_invariant_3_what_is_stored_once_never_changes(registry: Registry) -> None:
    engine = sample_engine(registry)
    report = sample_report(registry, engine.digest)
    release = sample_release(registry, engine, evidence=(report,))
    sample_event(registry, sample_promotion(release))
    other: Document = KeyLink(build_key=Digest.of(b"k"), engine=Digest.of(b"e"))
    key = engine.records[0].build_key
    names = [
        layout.record(engine.digest, key),
        layout.key(key, engine.digest),
        layout.referrer(engine.digest, report),
        layout.release(ReleaseRef(SAMPLE_PRODUCT, 1)),
        layout.event(SAMPLE_CHANNEL, 1),
        "registry.json",
    ]
    for name in names:
        before = registry.stores.documents.read(name)
        assert registry.stores.documents.create(name, before) is False
        with pytest.raises(DocumentConflict):
            registry.stores.documents.create(name, seal(other))
        assert registry.stores.documents.read(name) == before


def test_invariant_4_a_log_only_grows_without_gaps_each_event_carrying_the_one_before(
    registry: Registry,
) -> None:
    seen: list[tuple[int, Digest]] = []
    for number in range(1, 6):
        sample_event(registry, Held(reason=f"reason {number}"))
        events = registry.channels.events(SAMPLE_CHANNEL)
        assert [(event.number, digest) for event, digest in events[:-1]] == seen
        newest, digest = events[-1]
        assert newest.number == number
        assert newest.previous == (seen[-1][1] if seen else None)
        seen.append((number, digest))


def test_invariant_5_whoever_decided_on_an_older_event_sees_channel_moved_and_nothing_happened(
    registry: Registry,
) -> None:
    sample_event(registry, Held(reason="first"))
    sample_event(registry, Held(reason="second"))
    before = list(registry.stores.inventory.files())
    for stale in (0, 1, 3):
        with pytest.raises(ChannelMoved):
            registry.channels.append(
                SAMPLE_CHANNEL,
                decided_on=stale,
                change=Held(reason="third"),
                actor=SAMPLE_ACTOR,
                at=registry.clock(),
                operation="third",
            )
    assert list(registry.stores.inventory.files()) == before
