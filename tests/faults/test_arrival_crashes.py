"""The process dies at each write of what brings or adds to an engine: a second run finishes it.

Acts from a build to production are in test_crash_at_every_write.py, copies between two registries
in tests/unit/registry/test_transfer.py.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import pytest

from engine_pipeline.trust.ed25519 import new_key, read_signing_key
from engine_pipeline.trust.signatures import sign_release, sign_report
from engine_registry.archive import import_archive, write_archive
from engine_registry.backends.memory import memory_stores
from engine_registry.oci.pull import pull
from engine_registry.oci.push import push
from engine_registry.oci.reference import OciRef
from engine_registry.oci.session import Remote
from engine_registry.refs import ReleaseRef
from engine_registry.registry import Registry, open_registry
from engine_registry.testing.faults import CrashMode, FaultPlan, SimulatedCrash, faulty
from engine_registry.testing.samples import (
    SAMPLE_ACTOR,
    SAMPLE_AT,
    SAMPLE_PRODUCT,
    sample_engine,
    sample_release,
    sample_report,
)
from engine_registry.verify import verify
from tests.faults.whole import assert_nothing_incomplete_is_visible, was_founded
from tests.servers.oci_registry import OciRegistry

ONE = ReleaseRef(SAMPLE_PRODUCT, 1)
FILES = {"model.gguf": bytes(range(256)) * 600, "config.json": b"{}"}
Act = Callable[[Registry], object]


def filled(registry: Registry) -> Registry:
    """An engine with a report and a release, also where some of it is there already."""
    engine = sample_engine(registry, files=FILES)
    sample_release(registry, engine, evidence=(sample_report(registry, engine.digest),))
    return registry


def at_once() -> datetime:
    # A second run writes what the first would have.
    return SAMPLE_AT


def opened(root: Path) -> Registry:
    return open_registry(f"file://{root}", at_once)


def dying(root: Path, plan: FaultPlan) -> Registry:
    return Registry(faulty(opened(root).stores, plan), at_once)


def origin() -> Registry:
    return filled(Registry(memory_stores(at_once), at_once))


@contextmanager
def an_import(folder: Path) -> Iterator[Act]:
    write_archive(origin(), ONE, folder / "one.tar")
    yield lambda to: import_archive(folder / "one.tar", to, actor=SAMPLE_ACTOR)


@contextmanager
def a_pull(_: Path) -> Iterator[Act]:
    server = OciRegistry()
    at = f"{server.host}/team/engines"

    def remote(what: str) -> Remote:
        return Remote(OciRef.parse(f"oci://{what}"), credentials=lambda _: None)

    try:
        pushed = push(origin(), ONE, remote(at))
        yield lambda to: pull(remote(f"{at}@{pushed.engine}"), to, actor=SAMPLE_ACTOR)
    finally:
        server.close()


@contextmanager
def signatures(folder: Path) -> Iterator[Act]:
    path = folder / "release.pem"
    path.write_bytes(new_key()[0])
    path.chmod(0o600)
    key = read_signing_key(path)

    def sign(registry: Registry) -> None:
        filled(registry)
        release = registry.releases.release(ONE)
        for report in release.content.evidence:
            sign_report(registry, release.content.engine, report, key)
        sign_release(registry, release, key)

    yield sign


@pytest.mark.parametrize("mode", [CrashMode.BEFORE, CrashMode.AFTER])
@pytest.mark.parametrize("act", [an_import, a_pull, signatures])
def test_a_crash_at_any_write_leaves_nothing_incomplete_and_a_second_run_finishes(
    fast_dir: Path, act, mode: CrashMode, proved: Callable[[str], None]
) -> None:
    with act(fast_dir) as bring:
        counted = FaultPlan()
        bring(dying(fast_dir / "whole", counted))
        expected = names_in(opened(fast_dir / "whole"))
        assert counted.writes > 10
        for at in range(1, counted.writes + 1):
            root = fast_dir / f"{at}"
            with pytest.raises(SimulatedCrash):
                bring(dying(root, FaultPlan(at, mode)))
            left = opened(root)
            if was_founded(left):
                assert verify(left).is_whole
                assert_nothing_incomplete_is_visible(left)
            bring(left)
            assert verify(left).is_whole
            assert names_in(left) == expected, f"write {at}"
    proved(f"{counted.writes} writes, died at each, nothing half visible")


def names_in(registry: Registry) -> set[str]:
    return {file.name for file in registry.stores.inventory.files()}
