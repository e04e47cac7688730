"""Removal from a bucket: a copy below `trash/` and a delete, later another delete.

S3 moves nothing in one step, so a move is a copy that is followed by a delete, and what matters is
that a delete of the one never meets a delete of the other. Why it does not:

1. A discard copies first, then looks at the original again, then deletes it: only what it copied
   (ETag and date unchanged), with `If-Match` where the store is found to honour it for deletes.
   Whoever dies in between leaves both. A request whose reply was lost is never simply sent again:
   each try begins with another look.
2. A delete may still come late: between two requests the process is suspended, or the request
   waits in a queue. Meanwhile the name may have been discarded by another collector, restored, or
   written again with the same bytes, which have the same ETag. So a copy that is younger than
   `SETTLED` is never taken out of the trash, neither by `restore`, which leaves it there as well,
   nor by `purge`; and a discard gives up `MOVES_WITHIN` after its first look. A delete that is late
   thus takes a name out of sight and never its last bytes: it is restored like anything that was
   named while it was collected (`gc`, `rescue`).
3. The same the other way round: the late delete may be that of a purge, which was to remove an
   older copy and meets the new one. So a discard puts nothing over a copy that is, or may become
   meanwhile, old enough to be purged: it leaves the name alone until that copy is gone.
4. Documents, which may differ under one name, are restored by a conditional write: what was written
   meanwhile stays. Blobs under one name are equal; large ones are copied back, where a look said
   that there is none.

Weaker than on a file system, where a rename does all of it: in the same moment a file may be seen
both in the store and in the trash; what was restored within `SETTLED` of being discarded stays in
the trash too, until a purge, and cannot be discarded again before; nothing is purged before
`SETTLED`, however short the grace period; without `If-Match` for deletes, several collectors of one
file may each take the removal for theirs, and a *different* document that was created under a name
in the very moment of its removal, after another collector had removed it, gives way to the older
one in the trash.
"""

from __future__ import annotations

import logging
from datetime import timedelta
from threading import Lock
from typing import TYPE_CHECKING

from engine_registry import layout
from engine_registry.backends.s3.ages import Seen, aged_files
from engine_registry.backends.s3.copies import Copies
from engine_registry.backends.s3.failures import Answered, Kind
from engine_registry.backends.s3.objects import IF_ABSENT, new_writer
from engine_registry.backends.s3.probe import deletes_conditionally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from engine_registry.backends.s3.checksums import Head
    from engine_registry.backends.s3.root import S3Root
    from engine_registry.store import AgedFile

_LOG = logging.getLogger(__name__)

# A discard that has not deleted the original by then leaves it. Server-side copies of hundreds of
# gigabytes fit in.
MOVES_WITHIN = timedelta(minutes=20)
# How long a copy in the trash is left alone: the above, and longer than a signed request is good
# for, which AWS limits to 15 minutes.
SETTLED = timedelta(hours=1)
# How long a copy may be replaced by a discard: it must not settle before the discard is over.
REPLACEABLE = SETTLED - MOVES_WITHIN
_BLOBS = f"{layout.BLOBS}/"
# Up to here a blob is restored like a document.
_SMALL_BYTES = 1 << 20


class S3Trash:
    """The trash port over a bucket. Safe to use from many threads and processes.

    Args:
        root: of the registry.
        copies: makes the copies.
        settled: how long a copy in the trash is left alone.
    """

    def __init__(
        self, root: S3Root, copies: Copies | None = None, settled: timedelta = SETTLED
    ) -> None:
        self._root = root
        self._objects = root.objects
        self._bucket = root.objects.bucket
        self._address = root.objects.address
        self._copies = copies or Copies(root.objects)
        self._settled = settled
        self._lock = Lock()
        self._is_conditional: bool | None = None
        self._said_to_settle = False

    def aged(self) -> Iterator[AgedFile]:
        """See `Trash.aged`."""
        self._root.require()
        yield from aged_files(self._objects)

    def discard(self, name: str, min_age: timedelta) -> bool:
        """See `Trash.discard`; the module says what differs."""
        self._root.require()
        target = layout.trash(name)
        seen = self._seen(name)
        if seen is None or seen.age < min_age:
            return False
        lying = self._seen(target)
        if lying is not None and lying.age >= REPLACEABLE:
            _LOG.warning("%s: left alone; an older copy in the trash is to be purged first", name)
            return False
        if not self._copies.copy(name, target, seen.head):
            return False

        def is_as_copied(now: Seen) -> bool:
            if not _is_same(now.head, seen.head):
                return False
            if now.age - seen.age > MOVES_WITHIN:
                _LOG.warning("%s: took too long to copy into the trash; left alone", name)
                return False
            return True

        return self._remove(name, is_as_copied)

    def restore(self, name: str) -> bool:
        """See `Trash.restore`; what was discarded within `settled` stays in the trash as well."""
        self._root.require()
        target = layout.trash(name)
        lying = self._seen(target)
        if lying is None or self._objects.head(name) is not None:
            return False
        if not self._put_back(name, lying.head):
            return False
        if lying.age >= self._settled:
            self._remove(target, lambda now: _is_same(now.head, lying.head))
        return True

    def purge(self, name: str, min_age: timedelta) -> bool:
        """See `Trash.purge`; never before `settled`."""
        self._root.require()

        def is_old(now: Seen) -> bool:
            if min_age <= now.age < self._settled and not self._said_to_settle:
                self._said_to_settle = True
                minutes = self._settled // timedelta(minutes=1)
                _LOG.warning("nothing is purged from a bucket in the first %d minutes", minutes)
            return now.age >= max(min_age, self._settled)

        return self._remove(layout.trash(name), is_old)

    def _seen(self, name: str) -> Seen | None:
        answer = self._objects.look(name)
        return None if answer is None else Seen.of(answer, self._address)

    def _remove(self, name: str, is_right: Callable[[Seen], bool]) -> bool:
        """Delete an object that is as wanted; whether this call did, as far as can be told."""
        conditional = self._conditional()
        if_match = self._root.proof().if_match
        where = {"Bucket": self._address.bucket, "Key": self._address.key(name)}
        client = self._bucket.client
        unanswered = 0
        asked = False

        def act() -> bool:
            nonlocal unanswered, asked
            unanswered, asked = unanswered + asked, False
            now = Seen.of(client.head_object(**where, ChecksumMode="ENABLED"), self._address)
            if not is_right(now):
                return False
            asked = True
            client.delete_object(**where, **(if_match(now.head.etag) if conditional else {}))
            return True

        try:
            return self._bucket.attempt(f"remove {name}", act, (Kind.ABSENT, Kind.UNMET))
        except Answered:
            return unanswered > 0  # gone: by an earlier try of ours, or by somebody else

    def _put_back(self, name: str, head: Head) -> bool:
        target = layout.trash(name)
        is_blob = name.startswith(_BLOBS)
        if is_blob and head.size_bytes > _SMALL_BYTES:
            return self._copies.copy(target, name, head)
        self._root.proof()
        held = self._objects.get(target)
        if held is None:
            return False  # purged, or restored and settled
        writer = new_writer()
        written = self._objects.put(
            name,
            held.data,
            condition=IF_ABSENT,
            metadata={**held.head.metadata, **writer},
            content_type="application/octet-stream" if is_blob else "application/json",
        )
        if written is not None:
            return True
        there = self._objects.head(name)  # ours if the reply to an earlier try was lost
        return there is not None and there.metadata.get("writer") == writer["writer"]

    def _conditional(self) -> bool:
        with self._lock:
            if self._is_conditional is None:
                self._is_conditional = deletes_conditionally(self._objects, self._root.proof())
            return self._is_conditional


def _is_same(one: Head, other: Head) -> bool:
    return (one.etag, one.last_modified) == (other.etag, other.last_modified)
