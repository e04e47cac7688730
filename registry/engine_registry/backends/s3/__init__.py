"""A registry in a bucket, for a team. `s3_stores` gives the ports.

Every write is one PutObject or one completed multipart upload, so nothing half-written is ever
visible. Who wins is decided by conditional PutObjects of small objects alone, on a store that was
proven to honour the conditions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_registry.backends.s3.address import S3Address
from engine_registry.backends.s3.blobs import S3Blobs
from engine_registry.backends.s3.bucket import Bucket
from engine_registry.backends.s3.documents import S3Documents, S3Inventory, S3Pointers
from engine_registry.backends.s3.objects import Objects
from engine_registry.backends.s3.root import S3Root
from engine_registry.backends.s3.trash import S3Trash
from engine_registry.store import Stores

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime


def s3_stores(url: str, clock: Callable[[], datetime]) -> Stores:
    """The ports of the registry at an `s3:` address, which the first write founds.

    Raises:
        InvalidInput: a malformed address, or one that carries a credential.
    """
    return stores_in(Bucket(S3Address.parse(url)), clock)


def stores_in(bucket: Bucket, clock: Callable[[], datetime]) -> Stores:
    """The ports of the registry in a bucket that is reached in a way of the caller's own."""
    root = S3Root(Objects(bucket), clock)
    return Stores(
        blobs=S3Blobs(root),
        documents=S3Documents(root),
        pointers=S3Pointers(root),
        inventory=S3Inventory(root),
        trash=S3Trash(root),
        hashes_on_the_way=True,
        is_far=True,
    )


__all__ = ["s3_stores", "stores_in"]
