"""The trash over a bucket against the shared contract, over two real servers.

Copies in the trash settle at once here: what the contract says of one collector after the other
holds then to the letter. What settling is for is tested in `integration/test_s3_trash.py`.
"""

from dataclasses import replace
from datetime import timedelta

import pytest

from engine_registry import layout
from engine_registry.backends.s3.objects import Objects
from engine_registry.backends.s3.root import S3Root
from engine_registry.backends.s3.trash import S3Trash
from engine_registry.errors import NotFound
from engine_registry.store import Stores
from engine_registry.testing.samples import TickingClock
from engine_registry.testing.trash_conformance import TrashContract
from tests.servers.s3 import S3Server

pytest_plugins = ["tests.servers.s3_fixtures"]
pytestmark = pytest.mark.xdist_group("s3")


def settling_at_once(server: S3Server) -> Stores:
    url = server.url()
    stores = server.founded(url)
    root = S3Root(Objects(server.bucket_at(url)), TickingClock())
    return replace(stores, trash=S3Trash(root, settled=timedelta(0)))


class TestSeaweedFSTrash(TrashContract):
    @pytest.fixture
    def stores(self, seaweed: S3Server) -> Stores:
        return settling_at_once(seaweed)

    def test_a_discarded_document_is_out_of_sight_and_still_readable_in_the_trash(
        self, held: Stores
    ) -> None:
        """SeaweedFS goes on listing a folder that became empty: readers look into it in vain."""
        name = "records/aa/engine/key.json"
        assert held.trash.discard(name, timedelta(0))
        assert not held.documents.exists(name)
        with pytest.raises(NotFound):
            held.documents.read(name)
        assert list(held.documents.children("records/aa/engine")) == []
        assert held.documents.read(layout.trash(name)) == b"one"
        assert list(held.documents.children(layout.trash("records/aa/engine"))) == ["key.json"]


@pytest.mark.nightly
class TestMotoTrash(TrashContract):
    @pytest.fixture
    def stores(self, moto: S3Server) -> Stores:
        return settling_at_once(moto)
