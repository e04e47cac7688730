"""Target `directory`: what lies there, what is kept, what is refused, what is noticed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine_pipeline.promote.findings import Finding
from engine_pipeline.targets.port import NothingRuns, Running
from engine_registry.errors import (
    Conflict,
    ExitCode,
    Incompatible,
    IntegrityError,
    InvalidInput,
    NotFound,
    RefusedByPolicy,
    Unavailable,
)
from engine_registry.record import Release
from tests.unit.targets.yard import Yard, memory_dir, toy_files


@pytest.fixture
def fast_dir() -> Iterator[Path]:
    with memory_dir() as folder:
        yield folder


@pytest.fixture
def yard(fast_dir: Path) -> Yard:
    return Yard(fast_dir)


def serving(yard: Yard) -> Running:
    serves = yard.target().read(deep=True).serves
    assert isinstance(serves, Running)
    return serves


def replace(path: Path, data: bytes) -> None:
    """Other bytes under the name, not in the inode that the registry shares."""
    path.unlink()
    path.write_bytes(data)


def files(directory: Path) -> dict[str, bytes]:
    return {
        path.relative_to(directory).as_posix(): path.read_bytes()
        for path in directory.rglob("*")
        if path.is_file()
    }


def test_the_engine_lies_behind_the_link_with_everything_that_moves_with_it(yard: Yard):
    release = yard.release("a")
    yard.promote(release)
    done = yard.deploy()
    assert done.changed
    assert isinstance(done.before.serves, NothingRuns)
    current = yard.place / "current"
    assert files((current / "engine").resolve()) == toy_files("a")
    serve = json.loads((current / "serve.json").read_text())
    assert serve["release"] == "tiny/cpu-x86-64-v3:1"
    assert serve["serving_image"] == release.content.serving_image
    assert serve["argv"][-4:] == ["--runtime", "2026.10.11549", "--threads", "1"]
    assert serving(yard).deployment.release == release


def test_a_second_deployment_of_the_same_changes_nothing_at_all(yard: Yard):
    yard.promote(yard.release("a"))
    yard.deploy()
    before = {path: path.lstat().st_mtime_ns for path in yard.place.rglob("versions/*")}
    assert not yard.deploy().changed
    assert {path: path.lstat().st_mtime_ns for path in yard.place.rglob("versions/*")} == before


def test_a_rollback_brings_tokenizer_and_configuration_back_and_counts_up(yard: Yard):
    old = yard.release("a")
    yard.promote(old)
    yard.deploy()
    yard.promote(yard.release("bb"))
    yard.deploy()
    assert json.loads((yard.place / "current/serve.json").read_text())["runtime_config"][
        "serving"
    ] == {"threads": 2}
    event = yard.roll_back(old)
    done = yard.deploy()
    assert done.changed
    assert files((yard.place / "current/engine").resolve()) == toy_files("a")
    serve = json.loads((yard.place / "current/serve.json").read_text())
    assert serve["runtime_config"]["serving"] == {"threads": 1}
    now = serving(yard)
    assert (now.generation, now.deployment.event) == (3, event)
    assert now.deployment.release.content.tokenizer == old.content.tokenizer


def test_an_engine_that_is_still_there_is_hashed_and_not_laid_out_again(yard: Yard):
    old = yard.release("a")
    yard.promote(old)
    yard.deploy()
    place = yard.place / "engines" / old.content.engine.short
    inode = place.stat().st_ino
    yard.promote(yard.release("b"))
    yard.deploy()
    yard.roll_back(old)
    yard.deploy()
    assert place.stat().st_ino == inode


def test_so_many_earlier_versions_stay_with_their_engines_and_no_more(fast_dir: Path):
    yard = Yard(fast_dir, keep=1)
    for name in "abc":
        yard.promote(yard.release(name))
        yard.deploy()
    kept = [release.content.engine.short for release in yard.releases[1:]]
    assert {path.name for path in (yard.place / "engines").iterdir()} == set(kept)
    names = sorted(path.name for path in (yard.place / "versions").iterdir())
    assert names == [f"2-r2-{kept[0]}", f"3-r3-{kept[1]}"]


def test_two_releases_of_one_engine_share_its_files(yard: Yard):
    yard.promote(yard.release("a"))
    yard.deploy()
    yard.promote(yard.release("a", serving_image="another"))
    done = yard.deploy()
    assert done.changed
    assert len(list((yard.place / "engines").iterdir())) == 1


def test_an_event_that_changes_nothing_live_is_nothing_to_deploy(yard: Yard):
    release = yard.release("a")
    yard.promote(release)
    yard.deploy()
    yard.promote(release)
    assert not yard.deploy().changed


def test_once_a_newer_event_was_begun_an_older_reader_is_refused(yard: Yard, fast_dir: Path):
    old = yard.release("a")
    yard.promote(old)
    stale = fast_dir / "stale"
    shutil.copytree(yard.root / "engines", stale)
    yard.promote(yard.release("b"))
    yard.deploy()
    behind = Yard(fast_dir / "behind")
    behind.root.mkdir()
    stale.rename(behind.root / "engines")
    (behind.root / "srv").symlink_to(yard.place)
    with pytest.raises(Conflict, match="no such event"):
        behind.deploy()
    assert serving(yard).deployment.release.number == 2


def test_a_directory_of_another_registry_is_refused(yard: Yard, fast_dir: Path):
    yard.promote(yard.release("a"))
    yard.deploy()
    other = Yard(fast_dir / "other")
    other.root.mkdir()
    (other.root / "srv").symlink_to(yard.place)
    other.promote(other.release("b"))
    with pytest.raises(Conflict) as caught:
        other.deploy()
    assert caught.value.name == "rule-log"
    assert other.deploy(rebind=True).changed


def test_a_directory_that_follows_another_channel_is_taken_over_only_on_purpose(yard: Yard):
    yard.promote(yard.release("a"), "staging")
    yard.promote(yard.release("b"))
    yard.deploy()
    with pytest.raises(RefusedByPolicy, match="follows tiny/cpu-x86-64-v3/prod") as caught:
        yard.deploy(channel="staging")
    assert "--rebind" in caught.value.hint
    assert serving(yard).deployment.release.number == 2
    assert yard.deploy(channel="staging", rebind=True).changed
    assert serving(yard).deployment.channel == "tiny/cpu-x86-64-v3/staging"
    assert not yard.deploy(channel="staging").changed


def test_an_engine_that_does_not_fit_the_node_touches_nothing(yard: Yard):
    yard.promote(yard.release("a"))
    yard.deploy()
    yard.promote(yard.release("b"))

    def misfit(release: Release) -> tuple[Finding, ...]:
        return (
            Finding(
                rule="sku",
                holds=False,
                says=f"engine was built for {release.content.platform.sku}, the node is a toaster",
                hint="choose another node",
                exit_code=ExitCode.INCOMPATIBLE,
            ),
        )

    with pytest.raises(Incompatible, match="toaster"):
        yard.deploy(fit=misfit)
    assert serving(yard).deployment.release.number == 1
    fence = yard.target().read(deep=False).fence
    assert fence is not None
    assert fence.event == 1


def test_an_empty_channel_is_nothing_to_deploy(yard: Yard):
    yard.release("a")
    with pytest.raises(NotFound, match="nothing is live"):
        yard.deploy()


def test_missing_bytes_are_found_before_anything_is_touched(yard: Yard):
    yard.promote(yard.release("a"))
    yard.deploy()
    engine = yard.engine("b")
    yard.promote(yard.release("b"))
    layer = engine.manifest.layers[0]
    blobs = yard.root / "engines" / "blobs" / "sha256"
    found = next(path for path in blobs.rglob(layer.digest.hex))
    found.chmod(0o644)
    found.unlink()
    with pytest.raises(NotFound):
        yard.deploy()
    assert serving(yard).deployment.release.number == 1


def test_files_that_are_no_engine_are_refused_and_the_old_one_stays(yard: Yard):
    yard.promote(yard.release("a"))
    yard.deploy()
    yard.promote(yard.release("b", {"model.gguf": b"not a model"}))
    with pytest.raises(InvalidInput):
        yard.deploy()
    assert serving(yard).deployment.release.number == 1


def test_files_that_are_not_what_the_release_says_are_refused_with_both_sides(yard: Yard):
    yard.promote(yard.release("a", kind="hf-checkpoint"))
    with pytest.raises(Incompatible, match="release hf-checkpoint, files llama-cpp") as caught:
        yard.deploy()
    assert caught.value.name == "engine-differs-from-release"


def test_drift_names_both_sides_and_deploying_ends_it(yard: Yard):
    first = yard.release("a")
    yard.promote(first)
    yard.deploy()
    assert not yard.drift().differences
    second = yard.release("b")
    yard.promote(second)
    found = {d.what: (d.channel, d.target) for d in yard.drift().differences}
    assert found["release"] == (second.name, first.name)
    assert found["engine"] == (str(second.content.engine), str(first.content.engine))
    yard.deploy()
    assert not yard.drift().differences


def test_a_flipped_byte_is_found_only_when_asked_for_and_healed_by_deploying_deep(yard: Yard):
    release = yard.release("a")
    yard.promote(release)
    yard.deploy()
    file = yard.place / "current" / "engine" / "model.gguf"
    whole = file.read_bytes()
    replace(file.resolve(), whole[:-1] + b"!")
    assert not yard.drift().differences
    drift = yard.drift(deep=True)
    assert drift.is_damaged
    (difference,) = drift.differences
    assert difference.what == "file model.gguf"
    assert {difference.channel[:7], difference.target[:7]} == {"sha256:"}
    assert not yard.deploy().changed
    assert yard.deploy(deep=True).changed
    assert (yard.place / "current/engine/model.gguf").read_bytes() == whole
    assert not yard.drift(deep=True).differences


@pytest.mark.parametrize("how", ["cut", "gone", "more"])
def test_a_file_cut_off_gone_or_too_many_is_found_at_once(yard: Yard, how: str):
    yard.promote(yard.release("a"))
    yard.deploy()
    file = (yard.place / "current/engine/model.gguf").resolve()
    if how == "cut":
        replace(file, file.read_bytes()[:100])
    elif how == "gone":
        file.unlink()
    else:
        file.with_name("extra.bin").write_bytes(b"x")
    assert [d.what for d in yard.drift().differences] == [
        "file extra.bin" if how == "more" else "file model.gguf"
    ]
    assert yard.deploy().changed
    assert not yard.drift(deep=True).differences


@pytest.mark.parametrize("how", ["dangling", "no link", "damaged", "gone"])
def test_a_pointer_that_leads_nowhere_is_named_and_healed(yard: Yard, how: str):
    yard.promote(yard.release("a"))
    yard.deploy()
    pointer = yard.place / "current"
    version = pointer.resolve()
    if how == "dangling":
        version.rename(version.with_name("elsewhere"))
    elif how == "damaged":
        path = version / "deployment.json"
        replace(path, path.read_bytes().replace(b'"number":1', b'"number":9'))
    else:
        pointer.unlink()
    if how == "no link":
        pointer.write_text("here")
    serves = yard.target().read(deep=False).serves
    assert isinstance(serves, NothingRuns)
    assert str(yard.place) in serves.reason
    assert [d.what for d in yard.drift().differences] == ["deployment"]
    assert yard.deploy().changed
    assert not yard.drift(deep=True).differences


def test_a_damaged_fence_is_an_error_not_a_permission(yard: Yard):
    yard.promote(yard.release("a"))
    yard.deploy()
    path = yard.place / "fence.json"
    path.write_bytes(path.read_bytes().replace(b'"event":1', b'"event":0'))
    with pytest.raises(IntegrityError, match=r"fence\.json"):
        yard.deploy()


def test_whoever_comes_second_is_refused_and_told_who_is_there(yard: Yard):
    yard.promote(yard.release("a"))
    with (
        yard.target("alice (process 7)").held(),
        pytest.raises(Conflict, match=r"alice \(process 7\)") as caught,
    ):
        yard.deploy()
    assert caught.value.name == "target-held"
    assert yard.deploy().changed


def test_a_full_or_forbidden_disk_is_an_error_with_the_target_and_the_way_out(yard: Yard):
    yard.promote(yard.release("a"))
    yard.place.write_text("a file where the directory should be")
    with pytest.raises(Unavailable) as caught:
        yard.deploy()
    assert caught.value.name == "target-not-usable"
    assert str(yard.place) in caught.value.message


def test_reading_a_target_leaves_no_trace(yard: Yard):
    yard.promote(yard.release("a"))
    assert [d.what for d in yard.drift(deep=True).differences] == ["deployment"]
    assert not yard.place.exists()


def test_what_is_read_back_must_be_what_was_ordered(yard: Yard):
    yard.promote(yard.release("a"))
    yard.deploy()
    yard.promote(yard.release("b"))
    target = yard.target()

    def pretend(order: object, progress: object) -> None:
        """Say that it is done."""

    target.apply = pretend  # type: ignore[method-assign, assignment]
    with pytest.raises(Exception, match="read back differs") as caught:
        yard.deploy(target)
    assert "tiny/cpu-x86-64-v3:2" in str(caught.value)
    assert "tiny/cpu-x86-64-v3:1" in str(caught.value)
