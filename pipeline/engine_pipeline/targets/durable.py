"""Files that are there after a crash: written, flushed to the disk, then named."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def write_durably(path: Path, data: bytes) -> None:
    """Write a new file and make its bytes durable; its name is the caller's to sync."""
    with path.open("xb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def write_json(path: Path, value: dict[str, object]) -> None:
    """A new file for people and tools to read, durable."""
    write_durably(path, (json.dumps(value, indent=2, sort_keys=True) + "\n").encode())


def sync_dir(path: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
