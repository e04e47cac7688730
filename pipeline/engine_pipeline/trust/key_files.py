"""Keys on disk: new pairs, and the public keys that channels.yaml names."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from engine_pipeline.trust.ed25519 import MAX_KEY_FILE_BYTES, new_key, read_public_key
from engine_pipeline.trust.standing import KnownKey
from engine_registry.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from engine_pipeline.trust.ed25519 import VerifyingKey
    from engine_pipeline.trust.policy import TrustedKey


def write_new_pair(name: str, directory: Path) -> tuple[Path, Path, VerifyingKey]:
    """Make a key pair: `NAME.key`, mode 600, and `NAME.pub`; the paths and the public key.

    Raises:
        InvalidInput: one of the files exists (`key-exists`), or cannot be written.
        Incompatible: `tool-missing`.
    """
    private, public = directory / f"{name}.key", directory / f"{name}.pub"
    for path in (private, public):
        if path.exists():
            raise _exists(path)
    pem, key = new_key()
    _write(private, pem, 0o600)
    try:
        _write(public, key.pem.encode(), 0o644)
    except InvalidInput:
        private.unlink()
        raise
    return private, public, key


def load_keys(entries: Sequence[TrustedKey], directory: Path) -> tuple[KnownKey, ...]:
    """The keys of channels.yaml, in its order.

    Args:
        entries: its `trust:` part.
        directory: where it lies; key files are relative to it.

    Raises:
        NotFound: `key-missing`.
        InvalidInput: `key-unusable`, or one key under two names (`key-named-twice`).
        Incompatible: `tool-missing`.
    """
    known: dict[str, KnownKey] = {}
    for entry in entries:
        key = KnownKey(entry=entry, public=_public(entry, directory))
        other = known.setdefault(key.public.key_id, key)
        if other is not key:
            raise InvalidInput(
                f"channels.yaml: {other.entry.name} and {entry.name} have the same public key",
                hint="keep one entry per key under `trust:`, with everything that it may sign",
                reference="key-named-twice",
            )
    return tuple(known.values())


def _public(entry: TrustedKey, directory: Path) -> VerifyingKey:
    if entry.public_key is not None:
        return read_public_key(entry.public_key, entry.name)
    path = directory / str(entry.public_key_file)
    return read_public_key(read_public_file(path, f"key {entry.name}"), f"{entry.name} in {path}")


def read_public_file(path: Path, what: str) -> str:
    """The text of a public key's file; raises NotFound or InvalidInput."""
    try:
        with path.open("rb") as file:
            return file.read(MAX_KEY_FILE_BYTES).decode("ascii", "replace")
    except FileNotFoundError as error:
        raise NotFound(
            f"{what}: no file {path}",
            hint="put the .pub file there, or correct public_key_file in channels.yaml",
            reference="key-missing",
        ) from error
    except OSError as error:
        raise InvalidInput(
            f"{what}: {path} cannot be read: {error.strerror}",
            hint="correct public_key_file in channels.yaml",
            reference="key-unusable",
        ) from error


def _write(path: Path, data: bytes, mode: int) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    except FileExistsError as error:
        raise _exists(path) from error
    except OSError as error:
        raise InvalidInput(
            f"{path}: cannot be written: {error.strerror}",
            hint="name a directory that exists and is yours with --directory",
            reference="key-not-written",
        ) from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _exists(path: Path) -> InvalidInput:
    return InvalidInput(
        f"{path} exists, a key is never overwritten",
        hint="choose another name, or move the old pair away",
        reference="key-exists",
    )
