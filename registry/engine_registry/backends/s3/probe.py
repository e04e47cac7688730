"""Proof that a store honours conditional writes, before anything rests on them.

Stores that ignore `If-None-Match` and `If-Match` answer 200 and overwrite: no error ever shows it
(measured: s3rver, rclone serve s3, the JuiceFS gateway). The proof is remembered in the bucket,
under `cache/`, per endpoint, since a gateway in between may drop the headers.
"""

from __future__ import annotations

import hashlib
import json
import logging
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from engine_registry.backends.s3.objects import IF_ABSENT
from engine_registry.errors import EngineCIError, Incompatible, Unavailable

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_registry.backends.s3.objects import Objects

_LOG = logging.getLogger(__name__)

RACERS = 8
# The stores named above fail every single race; a rare race needs more tries to show.
ROUNDS = 3
_FRESH = timedelta(days=30)
_VERSION = 1


class Proof(NamedTuple):
    """How an ETag has to be written in `If-Match`: Ceph 16 wants it without its quotes."""

    quoted: bool = True

    def if_match(self, etag: str) -> dict[str, str]:
        """The condition that the object still has this ETag."""
        return {"IfMatch": etag if self.quoted else etag.strip('"')}


def marker_name(endpoint: str | None) -> str:
    """Where the proof for one endpoint is remembered."""
    key = hashlib.sha256(f"{_VERSION} {endpoint or 'aws'}".encode()).hexdigest()[:16]
    return f"cache/conditional-writes/{key}.json"


def proven(objects: Objects, clock: Callable[[], datetime]) -> Proof:
    """The remembered proof, or a new one.

    An old proof is renewed; where that is not possible now (read-only access, say), it still
    counts, so that nobody is kept from rolling back by it.

    Raises:
        Incompatible: `store-ignores-conditions`; names what failed.
    """
    name = marker_name(objects.address.endpoint)
    held = objects.get(name)
    old = _read(held.data) if held else None
    if old is not None and timedelta(0) <= clock() - old[1] < _FRESH:
        return old[0]
    try:
        found = prove(objects)
    except Unavailable as error:
        if old is None:
            raise
        _LOG.warning("conditional writes: proof of %s not renewed: %s", old[1], error.message)
        return old[0]
    said = {"endpoint": objects.address.endpoint, "proved_at": clock().isoformat()}
    with suppress(EngineCIError):
        objects.put(name, json.dumps({**said, **found._asdict()}).encode())
    return found


def _read(data: bytes) -> tuple[Proof, datetime] | None:
    try:
        said = json.loads(data)
        return Proof(quoted=bool(said["quoted"])), datetime.fromisoformat(said["proved_at"])
    except (ValueError, KeyError, TypeError):
        return None


def prove(objects: Objects) -> Proof:
    """Race for scratch objects; how the store wants its conditions.

    Raises:
        Incompatible: `store-ignores-conditions`.
    """
    proof = Proof()
    with ThreadPoolExecutor(RACERS) as pool:
        for number in range(ROUNDS):
            name = f"tmp/probe-{uuid4().hex}"
            try:
                proof = _prove_once(objects, pool, name, proof, first=number == 0)
            finally:
                with suppress(EngineCIError):
                    objects.delete(name)
    return proof


def _prove_once(
    objects: Objects, pool: ThreadPoolExecutor, name: str, proof: Proof, *, first: bool
) -> Proof:
    def race(condition: dict[str, str]) -> list[bytes]:
        offers = [uuid4().hex.encode() for _ in range(RACERS)]
        etags = pool.map(lambda data: objects.put(name, data, condition=condition), offers)
        return [offer for offer, etag in zip(offers, etags, strict=True) if etag is not None]

    winners = race(dict(IF_ABSENT))
    etag = _stored(objects, name, winners, "If-None-Match: *", "create")
    if first:
        if objects.put(name, b"late", condition=IF_ABSENT) is not None:
            raise _ignored(objects, "If-None-Match: * let a second writer replace an object")
        wrong = '"00000000000000000000000000000000"'
        if objects.put(name, b"wrong", condition=proof.if_match(wrong)) is not None:
            raise _ignored(objects, "If-Match with another ETag replaced an object")
        proof, etag = _quoting(objects, name, etag)
    _stored(objects, name, race(proof.if_match(etag)), "If-Match", "replace")
    return proof


def _quoting(objects: Objects, name: str, etag: str) -> tuple[Proof, str]:
    for proof in (Proof(quoted=True), Proof(quoted=False)):
        renewed = objects.put(name, b"right", condition=proof.if_match(etag))
        if renewed is not None:
            return proof, renewed
    raise _ignored(objects, "If-Match refused the object's own ETag")


def _stored(objects: Objects, name: str, winners: list[bytes], header: str, act: str) -> str:
    if len(winners) != 1:
        raise _ignored(
            objects, f"{header}: {len(winners)} of {RACERS} writers could {act} one object, want 1"
        )
    held = objects.get(name)
    if held is None or held.data != winners[0]:
        raise _ignored(objects, f"{header}: the object does not hold what its one writer wrote")
    return held.head.etag


def _ignored(objects: Objects, what: str) -> Incompatible:
    return Incompatible(
        f"{objects.address}: this store cannot decide between writers: {what}",
        hint="use a store with working conditional writes (docs/stores.md), or file:///DIRECTORY",
        reference="store-ignores-conditions",
    )
