"""Engines go to a bucket or an OCI registry and come back as fast as plain transfers of one file.

One file, to and from the same server on this machine (SeaweedFS, Debian's docker-registry). Ours is
hashed on the way up and checked on the way down; the peers copy bytes: boto3's own `upload_file`
and `download_file` (what `aws s3 cp` is made of), the OCI client `oras`. Every upload goes to a
place of its own, so that nothing is there already.
"""

from __future__ import annotations

import os
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from oras.provider import Registry as OrasRegistry

import measure
import servers
from engine_registry.digest import Digest
from engine_registry.oci.download import fetch_blob
from engine_registry.oci.push import push
from engine_registry.oci.reference import OciRef
from engine_registry.oci.session import Remote
from engine_registry.registry import open_registry
from engine_registry.store import Ownership
from engine_registry.testing.samples import sample_engine

if TYPE_CHECKING:
    from pathlib import Path

    from engine_registry.registry import Registry

UP, DOWN = "boto3 upload_file", "boto3 download_file"
PUSH, PULL = "oras push", "oras pull"


def main() -> None:
    options = measure.arguments(
        __doc__,
        repeats=(5, "runs of every row"),
        gigabytes=(0.5, "size of the file; the servers keep one for each run of a row"),
    )
    repeats, size_gb = (1, 0.02) if options.quick else (options.repeats, options.gigabytes)
    with measure.bench(__doc__, options.dir) as scratch:
        path = scratch / "model.gguf"
        path.write_bytes(os.urandom(int(size_gb * 1e9)))
        (scratch / "weed").mkdir()
        with servers.seaweed(scratch / "weed") as bucket:
            if bucket is not None:
                _bucket(bucket, scratch, path, repeats, size_gb)
        with servers.oci_registry() as host:
            if host is not None:
                _oci(host, scratch, path, repeats, size_gb)


def _bucket(
    server: servers.S3Server, scratch: Path, path: Path, repeats: int, size_gb: float
) -> None:
    client, number = server.client, count()
    digest = Digest.of(path.read_bytes())
    back = scratch / "back"

    def ours() -> None:
        url = server.url(f"ours/{next(number)}")
        server.founded(url).blobs.add_file(path, Ownership.KEPT)

    table = measure.Table(title=f"{size_gb:g} GB to S3", peers={UP: UP}, amount_gb=size_gb)
    upload = partial(client.upload_file, str(path), server.bucket)
    table.add(
        measure.interleaved(
            [
                measure.Case(name=UP, run=lambda: upload(f"theirs/{next(number)}")),
                measure.Case(name="registry, add_file", run=ours),
            ],
            repeats,
        )
    )
    table.print()

    held = server.founded(server.url("ours/held"))
    held.blobs.add_file(path, Ownership.KEPT)
    upload("theirs/held")
    gone = partial(back.unlink, missing_ok=True)
    table = measure.Table(title=f"{size_gb:g} GB from S3", peers={DOWN: DOWN}, amount_gb=size_gb)
    download = partial(client.download_file, server.bucket, "theirs/held", str(back))
    table.add(
        measure.interleaved(
            [
                measure.Case(name=DOWN, before=gone, run=download),
                measure.Case(
                    name="registry, materialise",
                    before=gone,
                    run=lambda: held.blobs.materialise(digest, back),
                ),
            ],
            repeats,
        )
    )
    table.print()
    gone()


def _oci(host: str, scratch: Path, path: Path, repeats: int, size_gb: float) -> None:
    client, number = OrasRegistry(hostname=host, insecure=True), count()
    registry = open_registry(f"file://{scratch / 'registry'}")
    engine = sample_engine(registry, files={path.name: path.read_bytes()})
    layer = engine.manifest.layers[0]
    back = scratch / "back"

    def theirs() -> None:
        target = f"{host}/theirs/n{next(number)}:one"
        client.push(target=target, files=[str(path)], disable_path_validation=True)

    table = measure.Table(title=f"{size_gb:g} GB to OCI", peers={PUSH: PUSH}, amount_gb=size_gb)
    table.add(
        measure.interleaved(
            [
                measure.Case(name=PUSH, run=theirs),
                measure.Case(
                    name="registry, push",
                    run=lambda: _push(registry, engine.digest, host, f"ours/n{next(number)}"),
                ),
            ],
            repeats,
        )
    )
    table.print()

    remote = _push(registry, engine.digest, host, "ours/held")
    client.push(target=f"{host}/theirs/held:one", files=[str(path)], disable_path_validation=True)
    gone = partial(measure.remove, back)
    table = measure.Table(title=f"{size_gb:g} GB from OCI", peers={PULL: PULL}, amount_gb=size_gb)
    pulls = partial(client.pull, target=f"{host}/theirs/held:one", outdir=str(back))
    table.add(
        measure.interleaved(
            [
                measure.Case(name=PULL, before=gone, run=pulls),
                measure.Case(
                    name="registry, fetch",
                    before=gone,
                    run=lambda: fetch_blob(remote, layer.digest, layer.size, back),
                ),
            ],
            repeats,
        )
    )
    table.print()


def _push(registry: Registry, engine: Digest, host: str, repository: str) -> Remote:
    remote = Remote(OciRef.parse(f"oci://{host}/{repository}"), plain_http=True)
    push(registry, engine, remote, tag="one")
    return remote


if __name__ == "__main__":
    main()
