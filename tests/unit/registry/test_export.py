"""An exported engine, read by a third-party OCI tool."""

import hashlib
import json
from pathlib import Path

import pytest
from oras.layout import NewLayout

from engine_registry import layout
from engine_registry.errors import IntegrityError, InvalidInput
from engine_registry.export import export_oci_layout
from engine_registry.manifest import REPORT_ARTIFACT
from engine_registry.registry import Registry
from engine_registry.testing.samples import sample_engine, sample_files, sample_report


def test_a_third_party_oci_tool_reads_an_exported_engine(
    registry: Registry, tmp_path: Path
) -> None:
    engine = sample_engine(registry)
    export_oci_layout(registry, engine.digest, tmp_path / "oci", ref_name="tiny")
    read = NewLayout(str(tmp_path / "oci"), validate=True)
    digests = read.get_ordered_blobs(tag="tiny")
    assert digests[-1] == str(engine.digest)
    manifest = json.loads(read.digest_to_blob_path(digests[-1]).read_bytes())
    files = {
        entry["annotations"]["org.opencontainers.image.title"]: read.digest_to_blob_path(
            entry["digest"]
        ).read_bytes()
        for entry in manifest["layers"]
    }
    assert files == sample_files("tiny")
    for digest in digests:
        data = read.digest_to_blob_path(digest).read_bytes()
        assert digest == f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_an_export_carries_everything_attached_and_nothing_else(
    registry: Registry, tmp_path: Path
) -> None:
    engine = sample_engine(registry)
    sample_engine(registry, "other")
    report = sample_report(registry, engine.digest)
    export_oci_layout(registry, engine.digest, tmp_path / "oci")
    index = json.loads((tmp_path / "oci" / "index.json").read_bytes())
    by_digest = {entry["digest"]: entry for entry in index["manifests"]}
    assert by_digest[str(report)]["artifactType"] == REPORT_ARTIFACT
    assert len(by_digest) == 4
    blobs = tmp_path / "oci" / "blobs" / "sha256"
    reached = set()
    for entry in index["manifests"]:
        data = (blobs / entry["digest"].removeprefix("sha256:")).read_bytes()
        assert len(data) == entry["size"]
        manifest = json.loads(data)
        parts = [manifest["config"], *manifest["layers"]]
        reached |= {entry["digest"], *(part["digest"] for part in parts)}
        subject = manifest.get("subject")
        assert subject is None or subject["digest"] == str(engine.digest)
    assert {f"sha256:{path.name}" for path in blobs.iterdir()} == reached


def test_an_export_over_something_is_refused(registry: Registry, tmp_path: Path) -> None:
    engine = sample_engine(registry)
    (tmp_path / "oci").mkdir()
    with pytest.raises(InvalidInput):
        export_oci_layout(registry, engine.digest, tmp_path / "oci")


def test_a_damaged_report_stops_the_export_and_leaves_nothing(
    on_disk: Registry, root: Path, tmp_path: Path
) -> None:
    engine = sample_engine(on_disk)
    report = on_disk.engines.manifest(sample_report(on_disk, engine.digest))
    path = root / layout.blob(report.layers[0].digest)
    path.chmod(0o644)
    path.write_bytes(b"damaged")
    with pytest.raises(IntegrityError):
        export_oci_layout(on_disk, engine.digest, tmp_path / "out" / "oci")
    assert not (tmp_path / "out").exists()
