"""What a blob looked like when it was last hashed, so that an untouched one need not be again.

Stamps lie in `<root>/cache/verified/`. They are derived: deleting them costs a hash, a store that
cannot take them works without, and nothing but skipping a hash rests on them. A stamp tells of
accidents (writes, truncation, replaced files); full verification does not look at it.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from engine_registry.digest import Digest

# File times advance in ticks (4 ms on ext4, 2 s on FAT): a later write could fall in the tick of
# the last one and leave the time as it was. So a stored file's time is set back by this much, and
# a file younger than this is never stamped.
SETTLED_AFTER_NS = 10_000_000_000


def settle(fd: int) -> None:
    """Make the file's modification time old enough that any later write changes it.

    Several writers may be given one file: they set one time, told by the file and not by the clock
    of each, so that none takes another's for a write.
    """
    stat = os.fstat(fd)
    now = time.time_ns()
    if stat.st_mtime_ns > now - SETTLED_AFTER_NS:
        os.utime(fd, ns=(stat.st_atime_ns, min(stat.st_mtime_ns, now) - SETTLED_AFTER_NS))


class Stamps:
    """Stamps of one registry, by blob digest."""

    def __init__(self, cache_dir: Path) -> None:
        self._dir = cache_dir / "verified"

    def vouches(self, digest: Digest, stat: os.stat_result) -> bool:
        """Whether the blob was hashed, and right, in exactly this shape.

        The change time may differ if the number of hard links does too: deploying an engine by
        link, or removing such a deployment, touches no byte.
        """
        try:
            stamp = json.loads((self._dir / digest.hex).read_bytes())
            size, mtime, ctime, inode, links = (int(value) for value in stamp)
        except (OSError, ValueError, TypeError):
            return False
        same = (size, mtime, inode) == (stat.st_size, stat.st_mtime_ns, stat.st_ino)
        return same and (ctime == stat.st_ctime_ns or links != stat.st_nlink)

    def write(self, digest: Digest, stat: os.stat_result) -> None:
        """Remember the shape of a blob whose bytes were just found right. Never fails."""
        if stat.st_mtime_ns > time.time_ns() - SETTLED_AFTER_NS:
            return
        shape = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_nlink]
        temp = self._dir / f".{secrets.token_hex(8)}"
        with suppress(OSError):
            self._dir.mkdir(parents=True, exist_ok=True)
            try:
                temp.write_text(json.dumps(shape))
                temp.replace(self._dir / digest.hex)
            except OSError:
                temp.unlink(missing_ok=True)

    def forget(self, digest: Digest) -> None:
        """Drop the stamp of a blob found wrong. Never fails."""
        with suppress(OSError):
            (self._dir / digest.hex).unlink(missing_ok=True)
