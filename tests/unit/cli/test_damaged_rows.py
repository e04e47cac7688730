"""One damaged document hides nothing else of `status` and `list`; it is named, with exit 11."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.refs import ChannelRef, ProductRef, ReleaseRef

ONE, TWO = ProductRef("tiny", "cpu-x86-64-v3"), ProductRef("zwei", "cpu-x86-64-v3")


@pytest.fixture
def both(project):
    """Two products with a release each, live on staging."""
    text = (project.root / "channels.yaml").read_text()
    (project.root / "channels.yaml").write_text(text.replace('"tiny/*"', '"tiny/*", "zwei/*"'))
    for product, name in ((ONE, "one"), (TWO, "two")):
        release = project.release(name, product=product)
        assert project.run("promote", release.name, "--to", "staging").code == 0
    return project


def released(project, product: ProductRef) -> Path:
    return project.root / "engines" / layout.release(ReleaseRef(product, 1))


def event(project, product: ProductRef) -> Path:
    return project.root / "engines" / layout.event(ChannelRef(product, "staging"), 1)


def record(project, product: ProductRef) -> Path:
    engine = project.registry.releases.release(ReleaseRef(product, 1)).content.engine
    (found,) = (project.root / "engines" / layout.records(engine)).iterdir()
    return found


def junk(path: Path) -> bytes:
    before = path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(b"junk")
    return before


def test_a_damaged_live_release_is_drawn_as_its_channel_names_it(both):
    junk(released(both, ONE))
    ran = both.run("status")
    assert ran.code == 11
    first, second = (line for line in ran.out.splitlines() if line.strip().startswith("staging"))
    assert first.split()[1] == "1"
    assert "damaged" in first
    assert "int8" in second
    assert f"errored tiny/cpu-x86-64-v3/staging: {layout.release(ReleaseRef(ONE, 1))}" in ran.out
    assert "next: run `enginectl verify`" in ran.out
    document = both.run("status", as_json=True).json
    assert [c["release"] is None for c in document["channels"]] == [True, False]
    assert [d["reference"] for d in document["damaged"]] == ["document-damaged"]
    assert document["damaged"][0]["channel"] == "tiny/cpu-x86-64-v3/staging"


def test_a_missing_live_release_is_exit_8(both):
    released(both, ONE).unlink()
    ran = both.run("status")
    assert ran.code == 8
    assert "int8" in ran.out


def test_a_junk_event_of_one_product_hides_no_other(both):
    junk(event(both, ONE))
    ran = both.run("status")
    assert ran.code == 11
    assert "zwei/cpu-x86-64-v3" in ran.out
    assert "errored tiny/cpu-x86-64-v3/staging: " in ran.out
    assert both.run("status", str(TWO)).code == 0
    alone = both.run("status", str(ChannelRef(ONE, "staging")))
    assert alone.code == 11
    assert "error[document-damaged]" in alone.err


@pytest.mark.parametrize("damaged", [record, released])
def test_a_damaged_document_hides_no_other_engine_and_is_named_until_it_is_healed(both, damaged):
    place = damaged(both, ONE)
    kept = junk(place)
    for _ in range(2):  # read anew, and from the index that the first one left
        ran = both.run("list")
        assert ran.code == 11
        assert "zwei/cpu-x86-64-v3" in ran.out
        name = place.relative_to(both.root / "engines")
        assert f"errored {name}: no envelope" in "".join(ran.out.split("\n")).replace("  ", " ")
        assert "next: run `enginectl verify`" in ran.out
    assert len(both.run("list", as_json=True).json["damaged"]) == 1
    place.write_bytes(kept)
    healed = both.run("list", as_json=True)
    assert healed.code == 0
    assert healed.json["damaged"] == []
    assert [e["releases"] for e in healed.json["engines"]] == [[1], [1]]
