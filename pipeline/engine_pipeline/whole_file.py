"""Files that people read are replaced whole: the old content or the new, never half of it."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def replace_whole(path: Path, data: bytes) -> None:
    """Put `data` into a file, an old one's place or a new one's, durable on return.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    part = Path(name)
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
            out.flush()
            os.fsync(out.fileno())
        # mkstemp makes files that only the owner may read; these are for everybody.
        part.chmod(0o644)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
