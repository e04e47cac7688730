"""Real servers for benchmarks: those that the tests start, on this machine and gone afterwards."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import boto3

import measure

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

sys.path.insert(0, str(measure.ROOT))

from _pytest.outcomes import Skipped

from tests.servers.distribution import distribution
from tests.servers.s3 import ACCESS_KEY, SECRET_KEY, S3Server, seaweedfs
from tests.servers.s3_fake import FakeS3, serving


@contextmanager
def seaweed(folder: Path) -> Iterator[S3Server | None]:
    """SeaweedFS; None, and a line that says so, where it is not installed."""
    use_test_credentials()
    with ExitStack() as stack:
        try:
            server = stack.enter_context(contextmanager(seaweedfs)(folder))
        except Skipped as missing:
            print(f"rows over S3 are left out: {missing.msg}")
            server = None
        yield server


@contextmanager
def oci_registry() -> Iterator[str | None]:
    """Host and port of a Distribution server; None where it is not installed."""
    with ExitStack() as stack:
        try:
            host = stack.enter_context(distribution())
        except Skipped as missing:
            print(f"rows over OCI are left out: {missing.msg}")
            host = None
        yield host


def plain_client(server: S3Server) -> Any:
    """A client as boto3 makes it: ours is set up in other ways."""
    return boto3.client("s3", endpoint_url=server.endpoint, region_name="us-east-1")


def use_test_credentials() -> None:
    """Nothing of the user's own is read, and nothing but loopback is reached."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        del os.environ[name]
    os.environ |= {
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "NO_PROXY": "127.0.0.1,localhost",
    }


__all__ = [
    "FakeS3",
    "S3Server",
    "oci_registry",
    "plain_client",
    "seaweed",
    "serving",
    "use_test_credentials",
]
