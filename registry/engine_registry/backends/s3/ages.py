"""How old objects are, by the store's own clock: its `LastModified` against its `Date`.

The caller's clock is never asked. Both times are cut to the second, so an age may be told a second
too long; that second is taken off. AWS dates what came in parts by the beginning of its upload: a
blob that was resumed for days is no longer young when it is whole, and is put back by its writer
(`rescue`) if it is discarded before anything names it.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

from engine_registry import layout
from engine_registry.backends.s3.checksums import Head
from engine_registry.errors import Incompatible
from engine_registry.store import AgedFile

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from engine_registry.backends.s3.address import S3Address
    from engine_registry.backends.s3.objects import Objects

_GRAIN = timedelta(seconds=1)
_STREAMS = 8
_UNLISTED = ("cache/", "tmp/")
# Folders whose names begin with hexadecimal digits, evenly spread: most of a large registry.
_SPREAD = (layout.BLOBS, layout.KEYS, layout.RECORDS, layout.REFERRERS)
_DIGITS = "0123456789abcdef"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One object as the store told of it just now."""

    head: Head
    age: timedelta

    @classmethod
    def of(cls, answer: dict[str, Any], address: S3Address) -> Seen:
        """Read the answer to a HEAD."""
        return cls(head=Head.of(answer), age=_age(answer, answer["LastModified"], address))


def aged_files(objects: Objects) -> Iterator[AgedFile]:
    """Every object of a registry but derived and temporary ones.

    A page where one holds them all; else the names are cut into spans that are listed in parallel.
    """
    files, last = _page(objects, "")
    yield from files
    if last is None:
        return
    with ThreadPoolExecutor(_STREAMS) as pool:
        for found in pool.map(lambda span: list(_between(objects, *span)), _spans(last)):
            yield from found


def _spans(after: str) -> list[tuple[str, str | None]]:
    """The names behind `after`, as spans from one name (without it) to another (with it)."""
    folders = (*_SPREAD, *map(layout.trash, _SPREAD))
    named = sorted(f"{folder}/{digit}" for folder in folders for digit in _DIGITS)
    starts = [name for name in named if name > after]
    return list(zip([after, *starts], [*starts, None], strict=True))


def _between(objects: Objects, after: str, last: str | None) -> Iterator[AgedFile]:
    at: str | None = after
    while at is not None:
        files, at = _page(objects, at)
        yield from (file for file in files if last is None or file.name <= last)
        if at is not None and last is not None and at >= last:
            return


def _page(objects: Objects, after: str) -> tuple[list[AgedFile], str | None]:
    """The names that follow `after`, and where to go on; None: there are no more."""
    address = objects.address
    start = {"StartAfter": f"{address.prefix}{after}"} if after else {}
    page = objects.bucket.call(
        "list_objects_v2", "list the registry", Prefix=address.prefix, **start
    )
    items = page.get("Contents", [])
    cut = len(address.prefix)
    files = [
        AgedFile(
            name=item["Key"][cut:],
            size_bytes=int(item["Size"]),
            age=_age(page, item["LastModified"], address),
        )
        for item in items
        if not item["Key"].endswith("/") and not item["Key"][cut:].startswith(_UNLISTED)
    ]
    return files, items[-1]["Key"][cut:] if page.get("IsTruncated") and items else None


def _age(answer: dict[str, Any], modified: datetime, address: S3Address) -> timedelta:
    stated = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    if not stated:
        raise Incompatible(
            f"{address}: the store's answers carry no Date: how old anything is cannot be told",
            hint="keep proxies before the store from dropping it; without it nothing is removed",
            reference="store-tells-no-time",
        )
    return max(parsedate_to_datetime(stated) - modified - _GRAIN, timedelta(0))
