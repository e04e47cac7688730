"""Releases, and what a person may type to name things."""

import dataclasses
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.digest import Digest
from engine_registry.documents import seal
from engine_registry.errors import DocumentConflict, IntegrityError, InvalidInput, NotFound
from engine_registry.record import KeyLink
from engine_registry.refs import ProductRef, ReleaseRef
from engine_registry.registry import Registry, open_registry
from engine_registry.releases import Releases
from engine_registry.store import DocumentStore
from engine_registry.testing.samples import (
    SAMPLE_ACTOR,
    SAMPLE_CHANNEL,
    SAMPLE_PRODUCT,
    TickingClock,
    sample_engine,
    sample_event,
    sample_promotion,
    sample_release,
    sample_report,
)


def test_releases_are_numbered_from_1_within_a_product(registry: Registry) -> None:
    engines = [sample_engine(registry, name) for name in ("a", "b")]
    assert [sample_release(registry, engine).number for engine in engines] == [1, 2]
    other = ProductRef("tiny", "gpu")
    assert sample_release(registry, engines[0], product=other).number == 1
    assert registry.releases.products() == [SAMPLE_PRODUCT, other]
    assert [release.number for release in registry.releases.releases(SAMPLE_PRODUCT)] == [1, 2]


def test_releasing_the_same_contents_again_gives_the_same_release(registry: Registry) -> None:
    engine = sample_engine(registry)
    first = sample_release(registry, engine)
    before = list(registry.stores.inventory.files())
    assert sample_release(registry, engine) == first
    assert list(registry.stores.inventory.files()) == before


def test_other_contents_of_the_same_engine_are_another_release(registry: Registry) -> None:
    engine = sample_engine(registry)
    sample_release(registry, engine)
    report = sample_report(registry, engine.digest)
    assert sample_release(registry, engine, evidence=(report,)).number == 2


def test_a_release_of_an_engine_that_is_not_whole_is_refused(on_disk: Registry, root: Path) -> None:
    engine = sample_engine(on_disk)
    (root / layout.blob(engine.manifest.layers[0].digest)).unlink()
    with pytest.raises(NotFound) as caught:
        sample_release(on_disk, engine)
    assert caught.value.name == "blob-missing"
    assert on_disk.releases.products() == []


def test_a_release_with_evidence_that_is_not_attached_is_refused(registry: Registry) -> None:
    engine = sample_engine(registry)
    with pytest.raises(NotFound) as caught:
        sample_release(registry, engine, evidence=(Digest.of(b"none"),))
    assert caught.value.name == "evidence-missing"


def test_a_release_from_a_record_of_another_engine_is_refused(registry: Registry) -> None:
    one, two = (sample_engine(registry, name) for name in ("a", "b"))
    mixed = dataclasses.replace(one, records=two.records)
    with pytest.raises(NotFound) as caught:
        sample_release(registry, mixed)
    assert caught.value.name == "record-missing"


def test_a_missing_release_is_not_found_and_the_error_says_which_there_are(
    registry: Registry,
) -> None:
    with pytest.raises(NotFound, match="tiny/cpu has no release"):
        registry.releases.release(ReleaseRef(SAMPLE_PRODUCT, 1))
    sample_release(registry, sample_engine(registry))
    with pytest.raises(NotFound, match="there are 1 to 1") as caught:
        registry.releases.release(ReleaseRef(SAMPLE_PRODUCT, 7))
    assert caught.value.name == "release-missing"


def test_a_release_under_another_number_is_refused(on_disk: Registry, root: Path) -> None:
    sample_release(on_disk, sample_engine(on_disk))
    folder = root / layout.releases(SAMPLE_PRODUCT)
    (folder / "0000000001.json").rename(folder / "0000000002.json")
    with pytest.raises(IntegrityError) as caught:
        on_disk.releases.releases(SAMPLE_PRODUCT)
    assert caught.value.name == "document-misplaced"


class _Raced:
    """Documents where somebody else creates the wanted name just before us."""

    def __init__(self, inner: DocumentStore, theirs: list[bytes]) -> None:
        self._inner = inner
        self._theirs = theirs

    def __getattr__(self, name: str):
        return getattr(self._inner, name)

    def create(self, name: str, data: bytes) -> bool:
        if self._theirs:
            self._inner.create(name, self._theirs.pop())
        return self._inner.create(name, data)


def _racing(registry: Registry, theirs: bytes) -> Releases:
    stores = dataclasses.replace(
        registry.stores, documents=_Raced(registry.stores.documents, [theirs])
    )
    return Releases(stores, registry.engines, registry.touches)


def test_whoever_loses_the_race_for_a_number_gets_the_next(registry: Registry) -> None:
    ours = sample_release(registry, sample_engine(registry, "a"))
    other = sample_release(registry, sample_engine(registry, "b"))
    theirs = other.model_copy(update={"number": 3, "model": "tiny", "created_by": SAMPLE_ACTOR})
    changed = ours.content.model_copy(update={"serving_image": "other"})
    theirs = theirs.model_copy(
        update={"content": other.content.model_copy(update={"serving_image": "theirs"})}
    )
    release = _racing(registry, seal(theirs)).create_release(
        SAMPLE_PRODUCT, changed, SAMPLE_ACTOR, registry.clock()
    )
    assert release.number == 4
    assert registry.releases.release(ReleaseRef(SAMPLE_PRODUCT, 3)) == theirs


def test_whoever_loses_the_race_to_equal_contents_gets_that_release(registry: Registry) -> None:
    ours = sample_release(registry, sample_engine(registry, "a"))
    content = ours.content.model_copy(update={"serving_image": "same for both"})
    theirs = ours.model_copy(update={"number": 2, "content": content})
    release = _racing(registry, seal(theirs)).create_release(
        SAMPLE_PRODUCT, content, SAMPLE_ACTOR, registry.clock()
    )
    assert release == theirs
    assert len(registry.releases.releases(SAMPLE_PRODUCT)) == 2


def test_a_digest_a_prefix_a_release_and_a_channel_name_the_same_engine(
    registry: Registry,
) -> None:
    engine = sample_engine(registry)
    release = sample_release(registry, engine)
    sample_event(registry, sample_promotion(release))
    hexes = engine.digest.hex
    for text in (f"sha256:{hexes}", hexes, hexes[:8], f"sha256:{hexes[:12]}"):
        found = registry.resolve(text)
        assert (found.engine, found.release, found.channel) == (engine.digest, None, None)
    assert registry.resolve("tiny/cpu:1").release == release
    by_channel = registry.resolve("tiny/cpu/prod")
    assert (by_channel.engine, by_channel.release) == (engine.digest, release)
    assert by_channel.channel == SAMPLE_CHANNEL
    assert registry.resolve_engine("tiny/cpu/prod") == engine.digest


def test_an_ambiguous_prefix_is_refused_with_the_matches(registry: Registry) -> None:
    twins = [Digest(f"abcdef01{i}" + "0" * 55) for i in "12"]
    for twin in twins:
        link = KeyLink(build_key=twin, engine=twin)
        registry.stores.documents.create(layout.record(twin, twin), seal(link))
    with pytest.raises(InvalidInput) as caught:
        registry.resolve("abcdef01")
    assert caught.value.name == "ambiguous-reference"
    assert all(str(twin) in caught.value.message for twin in twins)
    assert registry.resolve_engine("abcdef011") == twins[0]


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("abc", "prefix-too-short"),
        ("sha256:abc", "prefix-too-short"),
        ("not a name", "invalid-reference"),
        ("", "invalid-reference"),
        ("tiny", "invalid-reference"),
        ("tiny/cpu", "invalid-reference"),
        ("tiny/cpu:0", "invalid-release-name"),
        ("tiny/cpu:x", "invalid-release-name"),
        ("Tiny/cpu/prod", "invalid-channel-name"),
        ("../../etc", "invalid-channel-name"),
        ("sha512:" + "0" * 64, "invalid-release-name"),
    ],
)
def test_what_is_no_reference_is_refused(registry: Registry, text: str, reference: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        registry.resolve(text)
    assert caught.value.name == reference


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("0" * 64, "engine-missing"),
        ("01234567", "engine-missing"),
        ("tiny/cpu:1", "release-missing"),
        ("tiny/cpu/prod", "nothing-live"),
    ],
)
def test_what_is_not_there_is_not_found(registry: Registry, text: str, reference: str) -> None:
    with pytest.raises(NotFound) as caught:
        registry.resolve(text)
    assert caught.value.name == reference


def test_an_engine_names_its_only_release(registry: Registry) -> None:
    engine = sample_engine(registry)
    with pytest.raises(NotFound, match="never released"):
        registry.resolve_release(engine.digest.hex, SAMPLE_PRODUCT)
    release = sample_release(registry, engine)
    assert registry.resolve_release(engine.digest.hex[:10], SAMPLE_PRODUCT) == release
    assert registry.resolve_release("tiny/cpu:1", SAMPLE_PRODUCT) == release
    with pytest.raises(InvalidInput, match="not one of tiny/gpu"):
        registry.resolve_release("tiny/cpu:1", ProductRef("tiny", "gpu"))
    report = sample_report(registry, engine.digest)
    sample_release(registry, engine, evidence=(report,))
    with pytest.raises(InvalidInput, match="tiny/cpu:1, tiny/cpu:2"):
        registry.resolve_release(engine.digest.hex, SAMPLE_PRODUCT)


def test_a_prefix_is_looked_up_in_its_shard_alone(
    on_disk: Registry, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = sample_engine(on_disk)
    listed = []
    real = on_disk.stores.documents.children
    monkeypatch.setattr(
        on_disk.stores.documents, "children", lambda folder: listed.append(folder) or real(folder)
    )
    on_disk.resolve(engine.digest.hex[:8])
    shard = f"records/{engine.digest.hex[:2]}"
    assert listed == [shard, f"{shard}/{engine.digest.hex}"]


def test_a_folder_without_a_record_is_no_engine(on_disk: Registry, root: Path) -> None:
    engine = sample_engine(on_disk)
    left = Digest(engine.digest.hex[:-1] + ("0" if engine.digest.hex[-1] != "0" else "1"))
    (root / layout.records(left)).mkdir()
    assert on_disk.resolve_engine(engine.digest.hex[:8]) == engine.digest
    assert list(on_disk.engines.all_engines()) == [engine.digest]
    with pytest.raises(NotFound):
        on_disk.resolve(str(left))


@pytest.mark.parametrize("form", ["file://{}", "{}", "file://localhost{}"])
def test_a_registry_opens_by_address_or_plain_path(tmp_path: Path, form: str) -> None:
    sample_engine(open_registry(str(tmp_path / "a b"), TickingClock()))
    address = form.format(str(tmp_path / "a b").replace(" ", "%20" if "file" in form else " "))
    assert len(list(open_registry(address).engines.all_engines())) == 1


@pytest.mark.parametrize(
    ("address", "reference"),
    [
        ("", "invalid-registry-address"),
        ("file://relative/dir", "invalid-registry-address"),
        ("file:relative", "invalid-registry-address"),
        ("file:///dir?x=1", "invalid-registry-address"),
        ("gs://bucket", "unknown-registry-scheme"),
        ("https://host/x", "unknown-registry-scheme"),
    ],
)
def test_an_address_of_no_known_kind_is_refused(address: str, reference: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        open_registry(address)
    assert caught.value.name == reference
    assert "file://" in caught.value.hint


def test_a_taken_number_with_other_contents_never_changes(registry: Registry) -> None:
    release = sample_release(registry, sample_engine(registry))
    other = release.model_copy(update={"created_at": registry.clock()})
    with pytest.raises(DocumentConflict):
        registry.stores.documents.create("releases/tiny/cpu/0000000001.json", seal(other))
    assert registry.releases.release(ReleaseRef(SAMPLE_PRODUCT, 1)) == release
