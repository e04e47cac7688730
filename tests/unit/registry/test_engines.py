"""Putting engines in, finding them, handing them out."""

import dataclasses
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.digest import Digest
from engine_registry.engines import Attachment, EngineFile
from engine_registry.errors import IntegrityError, InvalidInput, NotFound, Unavailable
from engine_registry.manifest import LOCK_ARTIFACT, PROVENANCE_ARTIFACT, REPORT_ARTIFACT
from engine_registry.registry import Registry
from engine_registry.store import Depth, Ownership
from engine_registry.testing.samples import (
    sample_draft,
    sample_engine,
    sample_files,
    sample_key,
    sample_report,
)


def damage(root: Path, digest: Digest) -> None:
    path = root / layout.blob(digest)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)


def test_a_stored_engine_has_every_file_under_its_title(registry: Registry) -> None:
    engine = sample_engine(registry)
    found = {
        layer.title: registry.engines.read_blob(layer.digest, layer.size)
        for layer in engine.manifest.layers
    }
    assert found == sample_files("tiny")
    assert engine.size_bytes == sum(map(len, found.values()))


def test_the_digest_of_an_engine_is_that_of_its_manifest_bytes(registry: Registry) -> None:
    engine = sample_engine(registry)
    assert Digest.of(registry.engines.read_blob(engine.digest)) == engine.digest


def test_the_same_files_give_the_same_digest_whoever_builds_them_when(
    registry: Registry, tmp_path: Path
) -> None:
    first = sample_engine(registry)
    draft = sample_draft(tmp_path)
    other = dataclasses.replace(
        draft,
        facts=dataclasses.replace(
            draft.facts, build_key=sample_key("other"), built_at="2027-01-01T00:00:00Z"
        ),
    )
    again = registry.engines.put_engine(other)
    assert again.digest == first.digest
    assert {record.build_key for record in again.records} == {
        sample_key("tiny"),
        sample_key("other"),
    }


def test_a_record_names_the_lock_and_the_provenance_that_are_attached(registry: Registry) -> None:
    engine = sample_engine(registry)
    record = engine.records[0]
    for artifact, digest in (
        (LOCK_ARTIFACT, record.lock),
        (PROVENANCE_ARTIFACT, record.provenance),
    ):
        (link,) = registry.engines.referrers(engine.digest, artifact)
        (data,) = registry.engines.read_attachment(link.manifest).values()
        assert Digest.of(data) == digest


def test_the_provenance_is_made_for_the_digest_of_the_engine(registry: Registry) -> None:
    engine = sample_engine(registry)
    data = registry.engines.read_blob(engine.records[0].provenance)
    assert str(engine.digest).encode() in data


def test_further_attachments_of_a_draft_are_attached(registry: Registry, tmp_path: Path) -> None:
    extra = Attachment.of_json(REPORT_ARTIFACT, "inspect.json", b"{}")
    engine = registry.engines.put_engine(sample_draft(tmp_path, attachments=(extra,)))
    (link,) = registry.engines.referrers(engine.digest, REPORT_ARTIFACT)
    assert registry.engines.read_attachment(link.manifest) == {"inspect.json": b"{}"}


def test_putting_an_engine_again_changes_nothing_and_keeps_the_first_record(
    registry: Registry, tmp_path: Path
) -> None:
    first = sample_engine(registry)
    before = list(registry.stores.inventory.files())
    draft = sample_draft(tmp_path)
    later = dataclasses.replace(draft, facts=dataclasses.replace(draft.facts, build_wall_s=9.5))
    assert registry.engines.put_engine(later) == first
    assert list(registry.stores.inventory.files()) == before


def test_an_engine_without_a_record_does_not_exist(registry: Registry) -> None:
    with pytest.raises(NotFound) as caught:
        registry.engines.engine(Digest.of(b"none"))
    assert caught.value.name == "engine-missing"


@pytest.mark.parametrize(
    ("title", "reference"),
    [("../escape", "unsafe-file-name"), ("/abs", "unsafe-file-name"), ("a\nb", "unsafe-file-name")],
)
def test_an_unsafe_file_name_is_refused_before_anything_is_stored(
    registry: Registry, tmp_path: Path, title: str, reference: str
) -> None:
    draft = sample_draft(tmp_path)
    file = next(iter(draft.files.values()))
    before = list(registry.stores.inventory.files())
    with pytest.raises(InvalidInput) as caught:
        registry.engines.put_engine(dataclasses.replace(draft, files={title: file}))
    assert caught.value.name == reference
    assert list(registry.stores.inventory.files()) == before


def test_an_engine_without_files_is_refused(registry: Registry, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.engines.put_engine(dataclasses.replace(sample_draft(tmp_path), files={}))
    assert caught.value.name == "no-engine-files"


def test_a_file_that_is_also_a_directory_is_refused(registry: Registry, tmp_path: Path) -> None:
    draft = sample_draft(tmp_path)
    file = EngineFile(path=draft.files["config.json"].path)
    with pytest.raises(InvalidInput) as caught:
        registry.engines.put_engine(dataclasses.replace(draft, files={"a": file, "a/b": file}))
    assert caught.value.name == "duplicate-file-name"


def test_a_build_key_finds_its_engine(registry: Registry) -> None:
    engine = sample_engine(registry)
    assert registry.engines.find_by_key(sample_key("tiny")) == engine
    assert registry.engines.find_by_key(sample_key("other")) is None


@pytest.mark.parametrize("depth", list(Depth))
def test_a_build_key_whose_engine_is_damaged_is_no_hit(
    on_disk: Registry, root: Path, depth: Depth
) -> None:
    engine = sample_engine(on_disk)
    damage(root, engine.manifest.layers[0].digest)
    assert on_disk.engines.find_by_key(sample_key("tiny"), depth) is None


def test_a_build_key_whose_engine_lacks_a_blob_is_no_hit_and_building_again_heals(
    on_disk: Registry, root: Path
) -> None:
    engine = sample_engine(on_disk)
    (root / layout.blob(engine.manifest.layers[1].digest)).unlink()
    assert on_disk.engines.find_by_key(sample_key("tiny")) is None
    sample_engine(on_disk)
    assert on_disk.engines.find_by_key(sample_key("tiny")) == engine


def test_of_two_engines_from_one_key_the_whole_one_is_found(
    on_disk: Registry, root: Path, tmp_path: Path
) -> None:
    first = sample_engine(on_disk)
    draft = sample_draft(tmp_path, files={"model.gguf": b"not bit-reproducible"})
    second = on_disk.engines.put_engine(draft)
    assert first.digest != second.digest
    damage(root, first.manifest.layers[0].digest)
    assert on_disk.engines.find_by_key(sample_key("tiny")) == second


@pytest.mark.parametrize("part", ["manifest", "config", "layer"])
@pytest.mark.parametrize("depth", list(Depth))
def test_checking_an_engine_finds_damage_in_any_part_of_it(
    on_disk: Registry, root: Path, part: str, depth: Depth
) -> None:
    engine = sample_engine(on_disk)
    digest = {
        "manifest": engine.digest,
        "config": engine.manifest.config.digest,
        "layer": engine.manifest.layers[-1].digest,
    }[part]
    damage(root, digest)
    with pytest.raises(IntegrityError, match=digest.short):
        on_disk.engines.check_engine(engine.digest, depth)


def test_checking_an_engine_finds_a_damaged_record(on_disk: Registry, root: Path) -> None:
    engine = sample_engine(on_disk)
    path = root / layout.record(engine.digest, engine.records[0].build_key)
    path.chmod(0o644)
    path.write_bytes(path.read_bytes().replace(b"int8", b"int4"))
    with pytest.raises(IntegrityError):
        on_disk.engines.check_engine(engine.digest)


def test_a_record_under_another_name_is_refused(on_disk: Registry, root: Path) -> None:
    engine = sample_engine(on_disk)
    path = root / layout.record(engine.digest, engine.records[0].build_key)
    path.rename(path.with_name(f"{sample_key('other').hex}.json"))
    with pytest.raises(IntegrityError) as caught:
        on_disk.engines.engine(engine.digest)
    assert caught.value.name == "document-misplaced"


def test_a_materialised_engine_has_its_files_and_they_are_read_only(
    registry: Registry, tmp_path: Path
) -> None:
    engine = sample_engine(registry)
    target = tmp_path / "deep" / "deployed"
    registry.engines.materialise(engine.digest, target)
    files = {str(p.relative_to(target)): p for p in target.rglob("*") if p.is_file()}
    assert {title: path.read_bytes() for title, path in files.items()} == sample_files("tiny")
    assert all(path.stat().st_mode & 0o222 == 0 for path in files.values())
    assert [path.name for path in target.parent.iterdir()] == ["deployed"]


def test_materialising_over_a_directory_is_refused_and_leaves_it(
    registry: Registry, tmp_path: Path
) -> None:
    engine = sample_engine(registry)
    target = tmp_path / "deployed"
    target.mkdir()
    with pytest.raises(InvalidInput) as caught:
        registry.engines.materialise(engine.digest, target)
    assert caught.value.name == "path-exists"
    assert [path.name for path in target.iterdir()] == []


def test_a_damaged_engine_is_not_materialised_at_all(
    on_disk: Registry, root: Path, tmp_path: Path
) -> None:
    engine = sample_engine(on_disk)
    damage(root, engine.manifest.layers[-1].digest)
    with pytest.raises(IntegrityError):
        on_disk.engines.materialise(engine.digest, tmp_path / "out" / "deployed")
    assert not (tmp_path / "out").exists()


def test_a_failure_while_materialising_leaves_no_directory(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sample_engine(registry)
    real = type(registry.stores.blobs).materialise
    calls = []

    def failing(self, digest: Digest, path: Path) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(self, digest, path)

    monkeypatch.setattr(type(registry.stores.blobs), "materialise", failing)
    with pytest.raises(Unavailable, match=r"no room: need [0-9,]+ bytes, ") as caught:
        registry.engines.materialise(engine.digest, tmp_path / "out" / "deployed")
    assert caught.value.name == "disk-full"
    assert f"cannot write {tmp_path / 'out' / 'deployed'}: " in caught.value.message
    assert [path.name for path in (tmp_path / "out").iterdir()] == []


def test_attached_files_read_back_and_are_listed_by_type(registry: Registry) -> None:
    engine = sample_engine(registry)
    files = [("report.json", b"{}", "application/json"), ("report.md", b"# Ok", "text/markdown")]
    digest = registry.engines.attach(engine.digest, REPORT_ARTIFACT, files, {"outcome": "passed"})
    assert registry.engines.read_attachment(digest) == {"report.json": b"{}", "report.md": b"# Ok"}
    (link,) = registry.engines.referrers(engine.digest, REPORT_ARTIFACT)
    assert (link.manifest, link.annotations) == (digest, {"outcome": "passed"})
    assert len(registry.engines.referrers(engine.digest)) == 3
    assert registry.engines.manifest(digest).subject.digest == engine.digest


def test_attaching_the_same_report_again_is_a_no_op(registry: Registry) -> None:
    engine = sample_engine(registry)
    first = sample_report(registry, engine.digest)
    before = list(registry.stores.inventory.files())
    assert sample_report(registry, engine.digest) == first
    assert list(registry.stores.inventory.files()) == before


def test_nothing_can_be_attached_to_an_engine_that_is_not_there(registry: Registry) -> None:
    with pytest.raises(NotFound):
        sample_report(registry, Digest.of(b"none"))


def test_a_damaged_attachment_is_refused(on_disk: Registry, root: Path) -> None:
    engine = sample_engine(on_disk)
    report = sample_report(on_disk, engine.digest)
    damage(root, on_disk.engines.manifest(report).layers[0].digest)
    with pytest.raises(IntegrityError):
        on_disk.engines.read_attachment(report)
    damage(root, report)
    with pytest.raises(IntegrityError):
        on_disk.engines.read_attachment(report)


def test_all_engines_are_listed_in_order(registry: Registry) -> None:
    engines = {sample_engine(registry, name).digest for name in ("a", "b", "c")}
    assert list(registry.engines.all_engines()) == sorted(engines)


def test_given_files_become_the_blobs_themselves(on_disk: Registry, root: Path) -> None:
    built = root.parent / "built"
    engine = on_disk.engines.put_engine(sample_draft(built, ownership=Ownership.GIVEN))
    for layer in engine.manifest.layers:
        assert (root / layout.blob(layer.digest)).samefile(built / str(layer.title))
