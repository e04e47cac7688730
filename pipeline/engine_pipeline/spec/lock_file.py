"""Reads and writes lock files.

On disk a lock is indented JSON with sorted keys, one value a line, without the sections that it
does not have, so that a pull request shows what moved and nothing else. Its digest is over the
canonical form, so layout never matters.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine_pipeline.spec.lock import BuildLock
from engine_pipeline.whole_file import replace_whole
from engine_registry.errors import InvalidInput, NotFound, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

SUFFIX = ".lock.json"
# A lock of a thousand files is some 300 kB.
_MAX_BYTES = 16 << 20


def lock_path(spec_path: Path) -> Path:
    """Where the lock of a spec lies: `<stem>.lock.json` beside it."""
    return spec_path.with_name(spec_path.stem + SUFFIX)


def lock_text(lock: BuildLock) -> str:
    """The text of the file."""
    plain = {k: v for k, v in lock.model_dump(mode="json").items() if v is not None}
    return json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def read_lock(path: Path) -> BuildLock:
    """The lock in the file at `path`.

    Raises:
        NotFound: reference `lock-missing`.
        InvalidInput: reference `lock-invalid`; says where.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise _invalid(path, f"larger than {_MAX_BYTES} bytes")
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise NotFound(
            f"{path}: no lock",
            hint="run `enginectl lock` on the spec and commit the file it writes",
            reference="lock-missing",
        ) from error
    except OSError as error:
        raise _invalid(path, f"cannot be read: {error.strerror}") from error
    try:
        return BuildLock.model_validate_json(data, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise _invalid(path, f"{where}: {first['msg']}") from error


def write_lock(lock: BuildLock, path: Path) -> bool:
    """Write the lock whole or not at all; False if the file already says the same."""
    text = lock_text(lock).encode()
    with suppress(OSError):
        if path.read_bytes() == text:
            return False
    try:
        replace_whole(path, text)
    except OSError as error:
        raise Unavailable(
            f"{path}: cannot be written: {error.strerror}",
            hint="check permissions and free space of its directory, then lock again",
            reference="lock-unwritable",
        ) from error
    return True


def _invalid(path: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"{path}: not a lock: {what}",
        hint="restore the file, or write it again with `enginectl lock`",
        reference="lock-invalid",
    )
