"""What docs/operations.md says of a full disk, as typed: what is needed, where, and what helps."""

from __future__ import annotations

import errno
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from engine_registry import layout
from engine_registry.backends.filesystem import ingest
from engine_registry.digest import Digest
from engine_registry.errors import Unavailable
from engine_registry.testing.samples import sample_engine
from tests.unit.cli.conftest import PRODUCT, Project, project
from tests.unit.targets.yard import Yard

__all__ = ["project"]

STAGING = "tiny/cpu-x86-64-v3/staging"
RETENTION = """\
    retention: {live_per_channel: 2, newest_releases: 1, released_for: 1s, unreleased_for: 1s}
    channels:
"""


def refuse(*_: object, **__: object) -> object:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def full_below(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Nothing more can be written into this folder, and the file system shares no bytes."""
    real_write, real_fsync = os.write, os.fsync

    def is_below(fd: int) -> bool:
        return Path(f"/proc/self/fd/{fd}").readlink().is_relative_to(folder)

    def guarded(real: Callable[..., object]) -> Callable[..., object]:
        return lambda fd, *rest: refuse() if is_below(fd) else real(fd, *rest)

    patch.setattr(os, "write", guarded(real_write))
    patch.setattr(os, "fsync", guarded(real_fsync))
    patch.setattr(ingest, "clone", lambda *_: False)
    patch.setattr(os, "link", refuse)


def said(err: str) -> tuple[int, str]:
    """How many bytes an error says are needed, and where."""
    found = re.search(r"cannot write (\S+): no room: need ([0-9,]+) bytes, [0-9,]+ are free", err)
    assert found, err
    return int(found[2].replace(",", "")), found[1]


@pytest.mark.parametrize("form", [(), ("--archive",)], ids=["directory", "archive"])
def test_an_export_says_what_it_needs_and_names_the_path_that_was_asked_for(
    project: Project, monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...]
) -> None:
    release = project.release("one")
    out = project.root / "out"
    out.mkdir()
    size = project.registry.engines.engine(release.content.engine).size_bytes
    with monkeypatch.context() as patch:
        full_below(patch, out)
        ran = project.run("export", release.name, *form, str(out / "engine"))
    assert ran.code == 9
    assert ran.err.splitlines()[-2].startswith("error[disk-full]: ")
    need_bytes, where = said(ran.err)
    assert need_bytes >= size
    assert where == str(out / "engine")
    assert list(out.iterdir()) == []


def test_a_rollback_on_a_full_disk_succeeds_once_the_trash_is_emptied(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        assert project.run("promote", project.release(name).name, "--to", "staging").code == 0
    root = project.root / "engines"
    data = b"discarded"
    trashed = root / layout.trash(layout.blob(Digest.of(data)))
    trashed.parent.mkdir(parents=True)
    trashed.write_bytes(data)
    policies = project.root / "channels.yaml"
    policies.write_text(policies.read_text().replace("    channels:\n", RETENTION))
    sample_engine(project.registry, "three", product=PRODUCT)  # nothing keeps it
    time.sleep(2.1)
    with monkeypatch.context() as patch:
        write = os.write
        # Whoever removes something has room again.
        patch.setattr(os, "write", lambda *rest: refuse() if trashed.exists() else write(*rest))
        refused = project.run("rollback", STAGING, "--reason", "x")
        assert refused.code == 9
        assert "error[store-full]" in refused.err
        assert re.search(r"need [1-9][0-9]* bytes, [0-9,]+ bytes are free", refused.err)
        assert "docs/operations.md" in refused.err
        collected = project.run("gc", "--yes", "--purge", "--grace", "1s")
        assert "purging first: " in collected.err
        assert collected.code == 0, collected.err
        assert not trashed.exists()
        assert project.run("rollback", STAGING, "--reason", "x").code == 0


def test_there_is_nothing_to_clean_where_no_container_can_have_been_started(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "docker", None)
    ran = project.run("doctor", "--clean")
    assert ran.code == 0, ran.err
    assert "nothing to clean: without the docker package" in ran.out
    assert project.run("doctor", "--clean", as_json=True).json["removed_containers"] == 0


def test_a_deployment_to_a_full_disk_says_so_with_the_place_and_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    yard = Yard(tmp_path)
    release = yard.release("a")
    yard.promote(release)
    size = yard.registry.engines.engine(release.content.engine).size_bytes
    for full, says in (
        (
            yard.place / "engines",
            rf"cannot write {yard.place}/engines/\w+: no room: need {size:,} ",
        ),
        (yard.place, rf"{yard.place}: cannot write fence.json: .*\([0-9,]+ bytes are free\)"),
    ):
        with monkeypatch.context() as patch:
            full_below(patch, full)
            patch.setattr(os, "pwrite", refuse)
            with pytest.raises(Unavailable, match=says) as caught:
                yard.deploy()
        assert caught.value.name == "disk-full"
    assert yard.deploy().changed
