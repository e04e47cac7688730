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
    from collections.abc import Callable, Mapping

    from engine_registry.backends.s3.objects import Objects

_LOG = logging.getLogger(__name__)

RACERS = 8
# The stores named above fail every single race; a rare race needs more tries to show.
ROUNDS = 3
_FRESH = timedelta(days=30)
_VERSION = 1
_NO_ETAG = '"00000000000000000000000000000000"'


class Proof(NamedTuple):
    """How an ETag has to be written in `If-Match`: Ceph 16 wants it without its quotes."""

    quoted: bool = True

    def if_match(self, etag: str) -> dict[str, str]:
        """The condition that the object still has this ETag."""
        return {"IfMatch": etag if self.quoted else etag.strip('"')}


class Remembered(NamedTuple):
    """A proof that was made earlier, by whomever."""

    proof: Proof
    proved_at: datetime


def marker_name(endpoint: str | None) -> str:
    """Where the proof for one endpoint is remembered."""
    key = hashlib.sha256(f"{_VERSION} {endpoint or 'aws'}".encode()).hexdigest()[:16]
    return f"cache/conditional-writes/{key}.json"


def remembered(objects: Objects) -> Remembered | None:
    """The proof that lies in the bucket, if one does and can be read. Never fails."""
    with suppress(EngineCIError, ValueError, KeyError, TypeError):
        held = objects.get(marker_name(objects.address.endpoint))
        if held is not None:
            said = json.loads(held.data)
            at = datetime.fromisoformat(said["proved_at"])
            return Remembered(Proof(quoted=bool(said["quoted"])), at)
    return None


def proven(objects: Objects, old: Remembered | None, clock: Callable[[], datetime]) -> Proof:
    """The remembered proof, or a new one.

    An old proof is renewed; where that is not possible now (read-only access, say), it still
    counts, so that nobody is kept from rolling back by it.

    Raises:
        Incompatible: `store-ignores-conditions`; names what failed.
    """
    if old is not None and timedelta(0) <= clock() - old.proved_at < _FRESH:
        return old.proof
    try:
        found = prove(objects)
    except Unavailable as error:
        if old is None:
            raise
        _LOG.warning(
            "conditional writes: proof of %s not renewed: %s", old.proved_at, error.message
        )
        return old.proof
    said = {"endpoint": objects.address.endpoint, "proved_at": clock().isoformat()}
    with suppress(EngineCIError):
        name = marker_name(objects.address.endpoint)
        objects.put(name, json.dumps({**said, **found._asdict()}).encode())
    return found


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


def deletes_conditionally(objects: Objects, proof: Proof) -> bool:
    """Whether the store honours `If-Match` when it deletes. AWS does since 2025, others ignore it.

    Asked by who collects garbage, once per process; nobody else deletes anything that matters.
    """
    name = f"tmp/probe-{uuid4().hex}"
    etag = objects.put(name, _offer())
    try:
        if objects.delete(name, condition=proof.if_match(_NO_ETAG)):
            return False
        return objects.delete(name, condition=proof.if_match(etag or ""))
    except Incompatible:
        return False  # refused as unknown
    finally:
        objects.delete(name)


def _prove_once(
    objects: Objects, pool: ThreadPoolExecutor, name: str, proof: Proof, *, first: bool
) -> Proof:
    def race(condition: Mapping[str, str]) -> set[bytes]:
        offers = [_offer() for _ in range(RACERS)]
        etags = pool.map(lambda data: objects.put(name, data, condition=condition), offers)
        acknowledged = {data for data, etag in zip(offers, etags, strict=True) if etag is not None}
        # A winner whose reply was lost shows by its data.
        held = objects.get(name)
        return acknowledged | ({held.data} & set(offers) if held else set())

    winners = race(IF_ABSENT)
    if len(winners) != 1:
        raise _ignored(objects, f"If-None-Match: * let {len(winners)} of {RACERS} writers create")
    if first:
        if objects.put(name, _offer(), condition=IF_ABSENT) is not None:
            raise _ignored(objects, "If-None-Match: * let a second writer replace an object")
        if objects.put(name, _offer(), condition=proof.if_match(_NO_ETAG)) is not None:
            raise _ignored(objects, "If-Match with another ETag replaced an object")
        proof = _quoting(objects, name)
    winners = race(proof.if_match(_etag(objects, name)))
    if len(winners) != 1:
        raise _ignored(objects, f"If-Match let {len(winners)} of {RACERS} writers replace")
    return proof


def _quoting(objects: Objects, name: str) -> Proof:
    for proof in (Proof(quoted=True), Proof(quoted=False)):
        data = _offer()
        written = objects.put(name, data, condition=proof.if_match(_etag(objects, name)))
        held = objects.get(name)
        if held is not None and held.data == data:
            return proof
        if written is not None:
            break
    raise _ignored(objects, "If-Match with the object's own ETag did not replace it")


def _offer() -> bytes:
    return uuid4().hex.encode()


def _etag(objects: Objects, name: str) -> str:
    held = objects.get(name)
    if held is None:
        raise _ignored(objects, "an object that was just written cannot be read")
    return held.head.etag


def _ignored(objects: Objects, what: str) -> Incompatible:
    return Incompatible(
        f"{objects.address}: this store cannot decide between writers: {what}",
        hint="use a store with working conditional writes (docs/stores.md), or file:///DIRECTORY",
        reference="store-ignores-conditions",
    )
