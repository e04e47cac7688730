"""`enginectl gc` and holds on releases, as typed."""

from __future__ import annotations

import os
import shlex
from datetime import timedelta

import pytest

from engine_pipeline.promote.promote import live_of
from engine_registry.backends.filesystem import trash
from engine_registry.backends.memory import memory_stores
from engine_registry.digest import Digest
from engine_registry.errors import NotFound
from engine_registry.events import Prepared
from engine_registry.record import Actor
from engine_registry.refs import ChannelRef, ReleaseRef
from engine_registry.registry import Registry, utc_now
from engine_registry.store import NoTrash, Stores
from tests.unit.cli.conftest import PRODUCT

RETENTION = """\
    retention: {live_per_channel: 1, newest_releases: 1, released_for: 0s, unreleased_for: 0s}
"""
STAGING = f"{PRODUCT}/staging"
FIRST, SECOND, THIRD = (f"{PRODUCT}:{number}" for number in (1, 2, 3))


class Days:
    """Lets every file written so far grow older, as the store tells their age."""

    def __init__(self, folder, monkeypatch) -> None:
        self._probe = folder / "tick"
        self._passed: list[tuple[float, float]] = []
        real = trash._FileClock.age_s

        def age_s(clock, stat: os.stat_result) -> float:
            passed = sum(span for at, span in self._passed if stat.st_ctime < at)
            return real(clock, stat) + passed

        monkeypatch.setattr(trash._FileClock, "age_s", age_s)

    def pass_by(self, days: int = 2) -> None:
        self._probe.touch()
        first = self._probe.stat().st_ctime
        while self._probe.stat().st_ctime == first:  # file times advance every few milliseconds
            self._probe.unlink()
            self._probe.touch()
        span = timedelta(days=days).total_seconds()
        self._passed.append((self._probe.stat().st_ctime, span))


@pytest.fixture
def days(tmp_path_factory, monkeypatch) -> Days:
    return Days(tmp_path_factory.mktemp("days"), monkeypatch)


@pytest.fixture
def full(project, days):
    """Three releases were live on staging one after the other; two of them may go."""
    with (project.root / "channels.yaml").open("a") as policies:
        policies.write(RETENTION)
    for name in ("one", "two", "three"):
        assert project.run("promote", project.release(name).name, "--to", "staging").code == 0
    days.pass_by()
    return project


def widest(lines: list[str]) -> int:
    """How wide a table is printed; where the registry is may be a path of any length."""
    return max(len(line) for line in lines if not line.strip().startswith("registry "))


def numbers(project) -> list[int]:
    return [release.number for release in project.registry.releases.releases(PRODUCT)]


def files(project) -> set[str]:
    root = project.root / "engines"
    return {
        str(p.relative_to(root)) for p in root.rglob("*") if p.is_file() and "tmp" not in str(p)
    }


def test_a_plan_changes_nothing_and_names_reasons_and_bytes(full):
    before = files(full)
    ran = full.run("gc")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == "plan: nothing was changed"
    assert lines[2].startswith("  kept       1 release, 1 engine, ")
    assert lines[3].startswith("  to remove  2 releases, 2 engines, ")
    assert f"release  {FIRST}  " in ran.out
    assert f"  release {THIRD}\n      live on {STAGING}\n      among the newest 1 of" in ran.out
    assert "`enginectl gc --yes`" in lines[-1]
    assert widest(lines) <= 100
    assert files(full) == before


def test_the_document_of_a_plan_is_whole(full):
    document = full.run("gc", as_json=True).json
    assert document["done"] is None
    assert {line["name"] for line in document["kept"] if line["kind"] == "release"} == {THIRD}
    assert all(line["reasons"] for line in document["kept"])
    removed = document["removed"]
    assert {line["name"] for line in removed if line["kind"] == "release"} == {FIRST, SECOND}
    assert sum(line["bytes"] for line in removed) == document["totals"]["removed_bytes"] > 0
    assert document["totals"]["trash_files"] == 0


def test_from_plan_to_trash_to_nothing(full, days):
    planned = full.run("gc", as_json=True).json
    moved = full.run("gc", "--yes")
    assert moved.code == 0
    assert moved.out.startswith("ok ")
    assert "moved into the trash" in moved.out
    assert widest(moved.out.splitlines()) <= 100
    assert numbers(full) == [3]
    assert full.run("verify").code == 0
    young = full.run("gc", "--yes", "--purge", as_json=True).json
    assert young["done"]["purged_files"] == 0
    days.pass_by()
    ahead = full.run("gc", "--purge").out
    assert "`enginectl gc --yes --purge` removes" in ahead
    old = full.run("gc", "--yes", "--purge", as_json=True).json
    assert old["done"]["purged_bytes"] == planned["totals"]["removed_bytes"]
    assert not any(name.startswith("trash/") for name in files(full))
    assert full.run("verify").code == 0
    assert "nothing to do" in full.run("gc").out


def test_without_retention_everything_is_kept_and_the_plan_says_why(full):
    text = (full.root / "channels.yaml").read_text()
    (full.root / "channels.yaml").write_text(text.replace(RETENTION, ""))
    plan = full.run("gc")
    assert "to remove  nothing" in plan.out
    assert f"no retention is set for {PRODUCT}" in plan.out
    assert full.run("gc", "--yes", as_json=True).json["done"]["discarded_files"] == 0
    assert numbers(full) == [1, 2, 3]


def test_what_is_younger_than_the_grace_period_stays(full):
    assert full.run("gc", "--grace", "7d", as_json=True).json["removed"] == []
    assert full.run("gc", "--grace", "0s").code == 2
    assert full.run("gc", "--grace", "soon").code == 2


def test_a_product_that_no_policy_covers_is_kept(full):
    text = (full.root / "channels.yaml").read_text()
    (full.root / "channels.yaml").write_text(text.replace('"tiny/*"', '"other/*"'))
    assert full.run("gc", as_json=True).json["removed"] == []


def test_a_release_on_hold_is_kept_until_the_hold_is_lifted(full):
    held = full.run("hold", FIRST, "--reason", "a customer pins it")
    assert held.code == 0
    assert held.out.startswith(f"ok {FIRST} is on hold: no gc removes it")
    plan = full.run("gc")
    assert "on hold: a customer pins it" in plan.out
    full.run("gc", "--yes")
    assert numbers(full) == [1, 3]
    assert full.run("verify").code == 0
    lifted = full.run("hold", FIRST, "--lift", "--reason", "moved on", as_json=True)
    assert (lifted.code, lifted.json["hold"]["is_lifted"]) == (0, True)
    again = full.run("hold", FIRST, "--lift", "--reason", "moved on", as_json=True)
    assert (again.code, again.json["changed"]) == (0, False)


def test_a_hold_brings_a_release_back_out_of_the_trash(full, days):
    full.run("gc", "--yes")
    gone = full.run("show", FIRST)
    assert gone.code == 8
    assert f"error[release-retired]: release {FIRST}: in the trash since " in gone.err
    hold = f"enginectl hold {FIRST} --reason 'needed again'"
    assert f"  next: bring it back with `{hold}`" in gone.err
    back = full.run(*shlex.split(hold)[1:], as_json=True)
    assert back.code == 0
    assert back.json["restored_files"] > 5
    assert numbers(full) == [1, 3]
    full.registry.engines.check_engine(full.registry.resolve_engine(FIRST))
    days.pass_by()
    full.run("gc", "--yes", "--purge")
    assert numbers(full) == [1, 3]
    assert full.run("verify").code == 0
    assert full.run("rollback", STAGING, "--to", "1", "--reason", "as it was").code == 0


def test_a_purged_release_cannot_be_held_and_its_past_can_still_be_read(full, days):
    full.run("gc", "--yes")
    days.pass_by()
    full.run("gc", "--yes", "--purge")
    refused = full.run("hold", FIRST, "--reason", "too late")
    assert refused.code == 8
    assert f"error[release-retired]: release {FIRST}: removed for good on " in refused.err
    assert f"`enginectl list --product {PRODUCT}` to list its releases" in refused.err
    assert full.registry.holds.on(ReleaseRef(PRODUCT, 1)) is None
    first = full.registry.channels.events(full.registry.channels.channels()[0])[0][0]
    was = full.run("whatwas", STAGING, "--at", first.at.isoformat())
    assert was.code == 0
    assert f"release  {FIRST}" in was.out
    assert "removed  " in was.out
    assert full.run("history", STAGING).code == 0


def test_a_release_that_never_was_cannot_be_held(full):
    refused = full.run("hold", f"{PRODUCT}:9", "--reason", "what")
    assert refused.code == 8
    assert "error[release-missing]" in refused.err


def test_a_set_that_is_under_way_keeps_its_releases(full):
    """What is reserved is about to be live: no collection takes it."""
    ref = ChannelRef.parse(STAGING)
    release = full.registry.resolve(SECOND).release
    reserved = Prepared(set="set-1", to=live_of(release), policy=Digest.of(b"policy"))
    full.registry.channels.append(
        ref,
        decided_on=full.registry.channels.state(ref).number,
        change=reserved,
        actor=Actor(name="mover", proved_by="test"),
        at=utc_now(),
        operation="reserve",
    )
    plan = full.run("gc", as_json=True).json
    kept = {line["name"]: line["reasons"] for line in plan["kept"]}
    assert kept[SECOND] == [f"about to go live on {STAGING} with its set"]
    full.run("gc", "--yes")
    assert numbers(full) == [2, 3]


def test_a_store_that_cannot_remove_says_so_in_one_line(full, monkeypatch):
    whole = memory_stores(utc_now)
    stores = Stores(
        blobs=whole.blobs,
        documents=whole.documents,
        pointers=whole.pointers,
        inventory=whole.inventory,
    )
    assert isinstance(stores.trash, NoTrash)
    monkeypatch.setattr(
        "engine_registry.registry.open_registry",
        lambda url, clock, near: Registry(stores, clock, url, near),
    )
    for asked in (("gc",), ("gc", "--yes"), ("gc", "--yes", "--purge")):
        refused = full.run(*asked)
        assert refused.code == 6
        assert "error[store-cannot-remove]: nothing can be removed from" in refused.err
        error, hint = refused.err.splitlines()[-2:]
        assert error.startswith("error[")
        assert hint.startswith("  next: collect garbage in a registry on a file system")


@pytest.mark.parametrize(
    ("key", "value"),
    [("live_per_channel", "0"), ("newest_releases", "x"), ("released_for", "soon"), ("keep", "1")],
)
def test_a_retention_that_makes_no_sense_is_named_with_its_line(full, key, value):
    text = (full.root / "channels.yaml").read_text()
    (full.root / "channels.yaml").write_text(
        text.replace(RETENTION, f"    retention:\n      {key}: {value}\n")
    )
    refused = full.run("validate", "channels.yaml")
    assert refused.code == 2
    assert key in refused.out
    assert "channels.yaml:" in refused.out
    assert full.run("gc", "--yes").code == 2
    with pytest.raises(NotFound):
        full.registry.releases.release(ReleaseRef(PRODUCT, 4))
    assert numbers(full) == [1, 2, 3]
