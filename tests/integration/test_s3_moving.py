"""Releases between a directory and a bucket, and from an archive into a bucket."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine_registry.archive import import_archive, write_archive
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
from engine_registry.transfer import transfer
from engine_registry.verify import verify
from tests.servers.s3 import S3Server

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = [pytest.mark.xdist_group("s3"), pytest.mark.usefixtures("s3_credentials")]

ONE = ReleaseRef(SAMPLE_PRODUCT, 1)


@pytest.fixture
def source(tmp_path: Path) -> Registry:
    registry = open_registry(f"file://{tmp_path / 'source'}", TickingClock())
    files = {"model.gguf": bytes(range(256)) * 10_000, "config.json": b"{}"}
    engine = sample_engine(registry, files=files)
    sample_release(registry, engine, evidence=(sample_report(registry, engine.digest),))
    return registry


def test_a_release_goes_to_a_bucket_and_back(
    source: Registry, seaweed: S3Server, tmp_path: Path
) -> None:
    bucket = open_registry(seaweed.url(), TickingClock())
    assert transfer(source, ONE, bucket, actor=SAMPLE_ACTOR).sent > 0
    assert transfer(source, ONE, bucket, actor=SAMPLE_ACTOR).sent == 0
    assert verify(bucket).is_whole
    back = open_registry(f"file://{tmp_path / 'back'}", TickingClock())
    transfer(bucket, ONE, back, actor=SAMPLE_ACTOR)
    assert back.releases.release(ONE) == source.releases.release(ONE)
    assert verify(back).is_whole
    assert list((tmp_path / "back" / "tmp").iterdir()) == []


def test_an_archive_goes_into_a_bucket(source: Registry, seaweed: S3Server, tmp_path: Path) -> None:
    write_archive(source, ONE, tmp_path / "one.tar")
    bucket = open_registry(seaweed.url(), TickingClock())
    import_archive(tmp_path / "one.tar", bucket, actor=SAMPLE_ACTOR)
    assert bucket.releases.release(ONE) == source.releases.release(ONE)
    write_archive(bucket, ONE, tmp_path / "again.tar")
    assert (tmp_path / "again.tar").read_bytes() == (tmp_path / "one.tar").read_bytes()
