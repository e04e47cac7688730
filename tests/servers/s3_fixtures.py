"""Fixtures: real S3 servers, one of each kind per test run, and servers with bad habits.

A test module names this one in `pytest_plugins`, and takes a fresh prefix per test. Where a server
cannot be had the tests that need it are skipped, with the reason.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.servers.s3 import (
    ACCESS_KEY,
    SECRET_KEY,
    S3Server,
    free_ports,
    program,
    seaweedfs,
    serve,
)


@pytest.fixture(scope="session")
def s3_credentials() -> Iterator[None]:
    """The credentials that every server here knows; nothing of the user's own is read."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith("AWS_"):
                patch.delenv(name)
        patch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("NO_PROXY", "127.0.0.1,localhost")
        patch.setenv("AWS_CONFIG_FILE", os.devnull)
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
        yield


@pytest.fixture(scope="session")
def seaweed(s3_credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """SeaweedFS: honours conditions, verifies checksums, lists no checksums of parts."""
    yield from seaweedfs(tmp_path_factory.mktemp("seaweed"))


@pytest.fixture(scope="session")
def moto(s3_credentials: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """moto: key management, versions; verifies neither checksums nor credentials."""
    executable = program("moto_server", "moto[server]")
    (port,) = free_ports(1)
    command = [executable, "-H", "127.0.0.1", "-p", str(port)]
    yield from serve(command, f"http://127.0.0.1:{port}", tmp_path_factory.mktemp("moto"))
