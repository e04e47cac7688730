"""The S3 adapter against the shared contract, over two real servers that differ in habits."""

import pytest

from engine_registry.store import Stores
from engine_registry.testing.conformance import (
    BlobStoreContract,
    DocumentStoreContract,
    PointerStoreContract,
)
from tests.servers.s3 import S3Server

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = pytest.mark.xdist_group("s3")


class _SeaweedFS:
    @pytest.fixture
    def stores(self, seaweed: S3Server) -> Stores:
        return seaweed.founded()


class _Moto:
    @pytest.fixture
    def stores(self, moto: S3Server) -> Stores:
        return moto.founded()


class TestSeaweedFSBlobs(_SeaweedFS, BlobStoreContract):
    pass


class TestSeaweedFSDocuments(_SeaweedFS, DocumentStoreContract):
    pass


class TestSeaweedFSPointers(_SeaweedFS, PointerStoreContract):
    pass


class TestMotoBlobs(_Moto, BlobStoreContract):
    pass


class TestMotoDocuments(_Moto, DocumentStoreContract):
    pass


class TestMotoPointers(_Moto, PointerStoreContract):
    pass
