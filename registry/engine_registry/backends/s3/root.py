"""A registry's place in a bucket: founding it, refusing what is none, proving the store fit."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Lock
from typing import TYPE_CHECKING, TypeVar

from engine_registry import layout
from engine_registry.backends.s3.objects import IF_ABSENT
from engine_registry.backends.s3.probe import proven, remembered
from engine_registry.backends.s3.stamps import Stamps
from engine_registry.documents import seal, unseal_body
from engine_registry.errors import Incompatible, InvalidInput, NotFound
from engine_registry.record import FORMAT, RegistryInfo

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from engine_registry.backends.s3.objects import Objects
    from engine_registry.backends.s3.probe import Proof, Remembered

T = TypeVar("T")

# Never listed as part of a registry: derived, scratch, discarded.
PRIVATE = (f"{layout.CACHE}/", "tmp/", f"{layout.TRASH}/")


class S3Root:
    """What every port of one registry shares.

    Args:
        objects: below the registry's prefix.
        clock: gives the aware UTC time, for the date in `registry.json` and the age of the proof.
    """

    def __init__(self, objects: Objects, clock: Callable[[], datetime]) -> None:
        self.objects = objects
        self.stamps = Stamps(objects)
        self._clock = clock
        self._lock = Lock()
        self._known = False
        self._remembered: Remembered | None = None
        self._proof: Proof | None = None

    def require(self) -> None:
        """Confirm that there is a registry here to read from.

        Raises:
            NotFound: there is none (`registry-missing`), or no bucket (`bucket-missing`).
            InvalidInput: the prefix holds something else (`not-a-registry`).
            Incompatible: a registry in a format that this program does not know.
        """
        with self._lock:
            if self._known or self._open():
                return
            self._refuse_foreign()
            if self._open():  # founded a moment ago
                return
        raise NotFound(
            f"no registry at {self.objects.address}",
            hint="set ENGINECTL_REGISTRY to an existing one, or run `enginectl build` to start "
            "one here",
            reference="registry-missing",
        )

    def beside(self, read: Callable[[], T]) -> T:
        """What `read` gives, once there is known to be a registry: it does not wait for that.

        Raises:
            NotFound, InvalidInput, Incompatible: as `require`, whatever was read.
        """
        if self._known:
            return read()
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(read)
            self.require()
            return answer.result()

    def prepare(self) -> None:
        """Make this a registry that can be written to; founds it on the first write ever."""
        with self._lock:
            if self._known or self._open():
                return
            self._refuse_foreign()
            self._prove()
            data = seal(RegistryInfo(created_at=self._clock()))
            self.objects.put(layout.REGISTRY, data, condition=IF_ABSENT)
            self._open()

    def proof(self) -> Proof:
        """How to write conditions that the store is known to honour; founds the registry if new.

        Raises:
            Incompatible: it does not honour them (`store-ignores-conditions`).
        """
        self.prepare()
        with self._lock:
            return self._prove()

    def _prove(self) -> Proof:
        if self._proof is None:
            self._proof = proven(self.objects, self._remembered, self._clock)
        return self._proof

    def _open(self) -> bool:
        # All are asked at once: the first act of a process waits for one reply, not for three.
        with ThreadPoolExecutor(2) as pool:
            pool.submit(self.stamps.load)
            proof = pool.submit(remembered, self.objects)
            held = self.objects.get(layout.REGISTRY)
            self._remembered = proof.result()
        if held is None:
            return False
        body, _ = unseal_body(held.data, layout.REGISTRY)
        found = _stated_format(body)
        if found != FORMAT:
            raise Incompatible(
                f"registry {self.objects.address}: format is {found!r}, this enginectl knows "
                f"{FORMAT!r}",
                hint="upgrade enginectl to the version that wrote this registry",
                reference="registry-format-unknown",
            )
        self._known = True
        return True

    def _refuse_foreign(self) -> None:
        for item in self.objects.below():
            if item.name.startswith(PRIVATE):
                continue
            if item.name == layout.REGISTRY:
                return
            address = f"s3://{self.objects.address.bucket}/{self.objects.address.prefix}"
            held = [item.name, *(one.name for one in islice(self.objects.below(layout.RECORDS), 1))]
            raise InvalidInput(
                f"{self.objects.address} is not a registry: it holds {item.name!r} and no "
                f"{layout.REGISTRY}",
                hint=layout.hint_without_info(held, address, "aws s3 cp")
                or "add a prefix of its own to the address: s3://BUCKET/PREFIX",
                reference="not-a-registry",
            )


def _stated_format(body: bytes) -> object:
    try:
        info = json.loads(body)
    except ValueError:
        return None
    return info.get("format") if isinstance(info, dict) else None
