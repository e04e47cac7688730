"""What a verification says of each way a registry can be wrong."""

import json
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.affected import affected
from engine_registry.digest import Digest
from engine_registry.documents import Document, canonical_json, seal
from engine_registry.errors import NotFound, Unavailable
from engine_registry.events import ChannelState
from engine_registry.manifest import REPORT_ARTIFACT
from engine_registry.mismatch import Mismatch, MismatchKind, VerifyReport
from engine_registry.record import KeyLink, ReferrerLink
from engine_registry.refs import ReleaseRef
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.samples import (
    SAMPLE_CHANNEL,
    SAMPLE_PRODUCT,
    sample_engine,
    sample_event,
    sample_key,
    sample_promotion,
    sample_release,
    sample_report,
)
from engine_registry.verify import verify


@pytest.fixture
def filled(on_disk: Registry) -> Registry:
    for name in ("one", "two"):
        engine = sample_engine(on_disk, name)
        report = sample_report(on_disk, engine.digest)
        sample_event(on_disk, sample_promotion(sample_release(on_disk, engine, evidence=(report,))))
    return on_disk


def overwrite(root: Path, name: str, data: bytes) -> None:
    path = root / name
    if path.exists():
        path.chmod(0o644)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def change(root: Path, name: str, **fields: object) -> None:
    """Rewrite fields of a stored document under a right envelope."""
    body = canonical_json(json.loads((root / name).read_bytes())["document"] | fields)
    overwrite(
        root, name, b'{"digest":"%s","document":%s}\n' % (str(Digest.of(body)).encode(), body)
    )


def only(report: VerifyReport) -> Mismatch:
    assert len(report.mismatches) == 1, report.mismatches
    return report.mismatches[0]


def test_a_whole_registry_has_no_mismatch_and_every_byte_was_looked_at(
    filled: Registry, root: Path
) -> None:
    seen: list[tuple[int, int]] = []
    report = verify(filled, progress=lambda done, total: seen.append((done, total)))
    assert report.is_whole
    assert report.notes == ()
    stored = list(filled.stores.inventory.files())
    assert report.files == len(stored)
    assert report.size_bytes == sum(file.size_bytes for file in stored)
    assert seen[-1] == (report.size_bytes, report.size_bytes)
    assert seen == sorted(seen)


def test_verifying_changes_nothing(filled: Registry, root: Path) -> None:
    def everything() -> dict[Path, tuple[int, int]]:
        return {p: (p.lstat().st_mtime_ns, p.lstat().st_size) for p in root.rglob("*")}

    overwrite(root, "releases/tiny/cpu/stray.txt", b"?")
    before = everything()
    verify(filled)
    assert everything() == before


def test_there_must_be_a_registry_to_verify(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        verify(open_registry(str(tmp_path / "nowhere")))


def test_a_damaged_blob_is_named_with_both_digests_and_loses_its_stamp(
    filled: Registry, root: Path
) -> None:
    digest = filled.engines.engine(next(filled.engines.all_engines())).manifest.layers[0].digest
    changed = (root / layout.blob(digest)).read_bytes().replace(b"o", b"0")
    overwrite(root, layout.blob(digest), changed)
    assert only(verify(filled)) == Mismatch(
        name=layout.blob(digest),
        kind=MismatchKind.DAMAGED,
        expected=str(digest),
        found=str(Digest.of(changed)),
    )
    assert not (root / "cache" / "verified" / digest.hex).exists()


def test_a_truncated_blob_is_named_with_both_sizes(filled: Registry, root: Path) -> None:
    layer = filled.engines.engine(next(filled.engines.all_engines())).manifest.layers[0]
    overwrite(root, layout.blob(layer.digest), b"short")
    found = [m for m in verify(filled).mismatches if m.kind is MismatchKind.INCONSISTENT]
    assert found[0].expected.startswith(f"{layer.size:,} bytes")
    assert found[0].found == "5 bytes"


@pytest.mark.parametrize("part", ["manifest", "config", "layer", "lock", "provenance"])
def test_a_missing_blob_is_named_with_what_names_it(
    filled: Registry, root: Path, part: str
) -> None:
    engine = filled.engines.engine(next(filled.engines.all_engines()))
    digest = {
        "manifest": engine.digest,
        "config": engine.manifest.config.digest,
        "layer": engine.manifest.layers[0].digest,
        "lock": engine.records[0].lock,
        "provenance": engine.records[0].provenance,
    }[part]
    (root / layout.blob(digest)).unlink()
    found = [m for m in verify(filled).mismatches if m.name == layout.blob(digest)]
    assert found
    assert {m.kind for m in found} == {MismatchKind.MISSING}


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "releases/tiny/cpu/7.json",
        "blobs/sha256/short",
        "channels/tiny/cpu/prod/x.json",
        "channels/tiny/cpu/prod/events/1.json",
        "records/stray.json",
    ],
)
def test_a_foreign_file_is_reported(filled: Registry, root: Path, name: str) -> None:
    overwrite(root, name, b"not ours")
    assert only(verify(filled)).name == name


@pytest.mark.parametrize("number", [1, 2])
def test_a_missing_event_is_reported(filled: Registry, root: Path, number: int) -> None:
    (root / layout.event(SAMPLE_CHANNEL, number)).unlink()
    report = verify(filled)
    assert not report.is_whole
    names = {mismatch.name for mismatch in report.mismatches}
    # The last one is missed by the pointer alone.
    assert names == {
        layout.event(SAMPLE_CHANNEL, 1) if number == 1 else layout.head(SAMPLE_CHANNEL)
    }


def test_a_rewritten_event_is_reported_where_the_chain_breaks(filled: Registry, root: Path) -> None:
    change(root, layout.event(SAMPLE_CHANNEL, 1), operation="rewritten")
    report = verify(filled)
    assert {mismatch.name for mismatch in report.mismatches} == {layout.event(SAMPLE_CHANNEL, 2)}


def test_a_pointer_that_differs_from_the_replay_is_reported(filled: Registry, root: Path) -> None:
    state = filled.channels.state(SAMPLE_CHANNEL)
    forged = state.model_copy(update={"history": state.history[1:]})
    overwrite(root, layout.head(SAMPLE_CHANNEL), seal(forged))
    found = only(verify(filled))
    assert (found.name, found.kind) == (layout.head(SAMPLE_CHANNEL), MismatchKind.INCONSISTENT)


@pytest.mark.parametrize("left", [0, 1])
def test_a_pointer_behind_its_log_is_noted_and_no_mismatch(
    filled: Registry, root: Path, left: int
) -> None:
    head = root / layout.head(SAMPLE_CHANNEL)
    head.unlink()
    if left:
        events = filled.channels.events(SAMPLE_CHANNEL)
        earlier = filled.channels.at_time(SAMPLE_CHANNEL, events[0][0].at)
        assert isinstance(earlier, ChannelState)
        head.write_bytes(seal(earlier))
    report = verify(filled)
    assert report.is_whole
    (note,) = report.notes
    assert (note.kind, note.expected) == (MismatchKind.BEHIND, "event 2")
    assert note.found.startswith(f"event {left}")


def test_an_event_that_names_another_release_than_the_stored_one_is_reported(
    filled: Registry, root: Path
) -> None:
    change(root, layout.release(ReleaseRef(SAMPLE_PRODUCT, 2)), created_at="2030-01-01T00:00:00Z")
    found = only(verify(filled))
    assert (found.name, found.kind) == (
        layout.event(SAMPLE_CHANNEL, 2),
        MismatchKind.INCONSISTENT,
    )


def test_an_event_that_names_a_release_that_is_gone_is_reported(
    filled: Registry, root: Path
) -> None:
    (root / layout.release(ReleaseRef(SAMPLE_PRODUCT, 1))).unlink()
    found = only(verify(filled))
    assert (found.name, found.kind) == (
        layout.release(ReleaseRef(SAMPLE_PRODUCT, 1)),
        MismatchKind.MISSING,
    )


def test_a_release_whose_record_or_evidence_is_gone_is_reported(
    filled: Registry, root: Path
) -> None:
    release = filled.releases.release(ReleaseRef(SAMPLE_PRODUCT, 1))
    engine = release.content.engine
    (root / layout.referrer(engine, release.content.evidence[0])).unlink()
    assert only(verify(filled)).kind is MismatchKind.MISSING
    (root / layout.record(engine, sample_key("one"))).unlink()
    kinds = {m.name: m.kind for m in verify(filled).mismatches}
    assert kinds[layout.release(ReleaseRef(SAMPLE_PRODUCT, 1))] is MismatchKind.MISSING


def test_a_record_of_another_size_than_its_manifest_is_reported(
    filled: Registry, root: Path
) -> None:
    engine = next(filled.engines.all_engines())
    record = filled.engines.records(engine)[0]
    change(root, layout.record(engine, record.build_key), size_bytes=1)
    kinds = {m.name: m.kind for m in verify(filled).mismatches}
    assert kinds[layout.record(engine, record.build_key)] is MismatchKind.INCONSISTENT


MISPLACED: dict[str, Document] = {
    "a key link": KeyLink(build_key=Digest.of(b"k"), engine=Digest.of(b"e")),
    "a referrer link": ReferrerLink(
        subject=Digest.of(b"s"), manifest=Digest.of(b"m"), artifact_type=REPORT_ARTIFACT
    ),
}


@pytest.mark.parametrize("document", MISPLACED.values(), ids=MISPLACED.keys())
def test_a_document_under_another_name_is_reported(
    filled: Registry, root: Path, document: Document
) -> None:
    folder = "keys" if isinstance(document, KeyLink) else "referrers"
    name = f"{folder}/00/{'0' * 64}/{'1' * 64}.json"
    overwrite(root, name, seal(document))
    found = only(verify(filled))
    assert (found.name, found.kind) == (name, MismatchKind.MISPLACED)


def test_a_key_that_leads_to_nothing_is_reported(filled: Registry, root: Path) -> None:
    link = KeyLink(build_key=Digest.of(b"k"), engine=Digest.of(b"e"))
    overwrite(root, layout.key(link.build_key, link.engine), seal(link))
    assert only(verify(filled)).kind is MismatchKind.MISSING


def test_a_referrer_link_that_contradicts_its_manifest_is_reported(
    filled: Registry, root: Path
) -> None:
    engine = next(filled.engines.all_engines())
    (link,) = filled.engines.referrers(engine, REPORT_ARTIFACT)
    name = layout.referrer(engine, link.manifest)
    change(root, name, annotations={"outcome": "failed"})
    found = only(verify(filled))
    assert (found.name, found.kind) == (name, MismatchKind.INCONSISTENT)


def test_another_kind_of_document_in_place_is_reported(filled: Registry, root: Path) -> None:
    name = layout.release(ReleaseRef(SAMPLE_PRODUCT, 1))
    link = KeyLink(build_key=Digest.of(b"k"), engine=Digest.of(b"e"))
    overwrite(root, name, seal(link))
    assert only(verify(filled)).kind is MismatchKind.DAMAGED


def test_a_file_that_cannot_be_read_is_unreadable_and_not_called_damaged(
    filled: Registry, root: Path
) -> None:
    layer = filled.engines.engine(next(filled.engines.all_engines())).manifest.layers[0]
    path = root / layout.blob(layer.digest)
    path.unlink()
    path.symlink_to("/proc/self/mem")  # opens well, and fails like a broken disk when read
    found = [m for m in verify(filled).mismatches if m.kind is not MismatchKind.INCONSISTENT]
    assert [(m.name, m.kind) for m in found] == [
        (layout.blob(layer.digest), MismatchKind.UNREADABLE)
    ]
    assert "Input/output error" in found[0].found
    with pytest.raises(Unavailable):
        filled.engines.read_blob(layer.digest)


def test_a_directory_in_place_of_a_blob_does_not_end_the_verification(
    filled: Registry, root: Path
) -> None:
    layer = filled.engines.engine(next(filled.engines.all_engines())).manifest.layers[0]
    path = root / layout.blob(layer.digest)
    path.unlink()
    path.mkdir()
    found = only(verify(filled))
    assert (found.name, found.kind) == (layout.blob(layer.digest), MismatchKind.UNREADABLE)


def test_what_is_stored_while_a_verification_runs_is_not_called_missing(
    filled: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = list(filled.stores.inventory.files())
    engine = sample_engine(filled, "late")
    sample_event(filled, sample_promotion(sample_release(filled, engine)))
    late = [f for f in filled.stores.inventory.files() if f.name.startswith(("records", "keys"))]
    monkeypatch.setattr(
        filled.stores.inventory,
        "files",
        lambda: iter(sorted({*listed, *late}, key=lambda f: f.name)),
    )
    assert verify(filled).mismatches == ()


def test_who_needs_a_damaged_file_is_told(filled: Registry, tmp_path):
    [one, two] = [filled.engines.engine(engine) for engine in filled.engines.all_engines()]
    layer = next(layer for layer in two.manifest.layers if layer not in one.manifest.layers)
    found = affected(filled, [mismatch(layout.blob(layer.digest))])
    [release] = [
        r for r in filled.releases.releases(SAMPLE_PRODUCT) if r.content.engine == two.digest
    ]
    live = filled.channels.state(SAMPLE_CHANNEL).live
    said = f"engine {two.digest.short}, {release.name}"
    if live is not None and live.engine == two.digest:
        said += f"; live on {SAMPLE_CHANNEL}"
    assert [str(item) for item in found] == [said]


def test_what_nobody_needs_concerns_nobody(filled: Registry):
    assert affected(filled, [mismatch(layout.blob(Digest.of(b"nobody's")))]) == []


def test_a_manifest_that_is_gone_concerns_its_engine(filled: Registry):
    engine = next(filled.engines.all_engines())
    [found] = affected(filled, [mismatch(layout.blob(engine))])
    assert found.engine == engine


def mismatch(name: str) -> Mismatch:
    return Mismatch(name=name, kind=MismatchKind.DAMAGED, expected="x", found="y")
