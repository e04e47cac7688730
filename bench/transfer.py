"""Engines go to a bucket or an OCI registry and come back as fast as plain transfers of one file.

One file, to and from the same server on this machine (SeaweedFS, Debian's docker-registry). Ours is
hashed before it goes up, since its digest is its name, and checked and synced on the way down. The
peers copy bytes: boto3's own `upload_file` and `download_file` (what `aws s3 cp` is made of), the
OCI client `oras`. Beside each stands the same peer and the rest of the work in a step of its own:
a digest by `hashlib` over the file, a sync. Every upload goes to a place of its own, so that
nothing is there already.
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
HASH_UP, DOWN_HASH = f"hashlib, {UP}", f"{DOWN}, hashlib, sync"
PUSH, PULL = "oras push", "oras pull"
PULL_HASH = f"{PULL}, hashlib"


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
    client, number = servers.plain_client(server), count()
    digest = Digest.of(path.read_bytes())
    back = scratch / "back"

    def ours() -> None:
        url = server.url(f"ours/{next(number)}")
        server.founded(url).blobs.add_file(path, Ownership.KEPT)

    upload = partial(client.upload_file, str(path), server.bucket)

    def hashed_first() -> None:
        upload(f"theirs/{_digest(path)}/{next(number)}")

    table = measure.Table(
        title=f"{size_gb:g} GB to S3", peers={UP: UP, HASH_UP: HASH_UP}, amount_gb=size_gb
    )
    table.add(
        measure.interleaved(
            [
                measure.Case(name=UP, run=lambda: upload(f"theirs/{next(number)}")),
                measure.Case(name=HASH_UP, run=hashed_first),
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
    table = measure.Table(
        title=f"{size_gb:g} GB from S3", peers={DOWN: DOWN, DOWN_HASH: DOWN_HASH}, amount_gb=size_gb
    )
    download = partial(client.download_file, server.bucket, "theirs/held", str(back))

    def hashed_after() -> None:
        download()
        _digest(back, sync=True)

    table.add(
        measure.interleaved(
            [
                measure.Case(name=DOWN, before=gone, run=download),
                measure.Case(name=DOWN_HASH, before=gone, run=hashed_after),
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
    table = measure.Table(
        title=f"{size_gb:g} GB from OCI",
        peers={PULL: PULL, PULL_HASH: PULL_HASH},
        amount_gb=size_gb,
    )
    pulls = partial(client.pull, target=f"{host}/theirs/held:one", outdir=str(back))

    def hashed_after() -> None:
        pulls()
        (pulled,) = (found for found in back.rglob("*") if found.is_file())
        _digest(pulled)

    table.add(
        measure.interleaved(
            [
                measure.Case(name=PULL, before=gone, run=pulls),
                measure.Case(name=PULL_HASH, before=gone, run=hashed_after),
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


def _digest(path: Path, *, sync: bool = False) -> str:
    """What the peers leave out, done to a file as it lies there."""
    with path.open("rb") as stream:
        found = Digest.of_stream(stream).hex
        if sync:
            os.fsync(stream.fileno())
    return found


def _push(registry: Registry, engine: Digest, host: str, repository: str) -> Remote:
    remote = Remote(OciRef.parse(f"oci://{host}/{repository}"), plain_http=True)
    push(registry, engine, remote, tag="one")
    return remote


if __name__ == "__main__":
    main()
