"""Keys and roots of trust on disk: new pairs, and what `trust:` in channels.yaml names."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

from engine_pipeline.trust.ed25519 import MAX_KEY_FILE_BYTES, new_key, read_public_key
from engine_pipeline.trust.keyless import Instance
from engine_pipeline.trust.policy import TrustedIdentity
from engine_pipeline.trust.standing import KnownIdentity, KnownKey
from engine_registry.errors import InvalidInput, NotFound

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from engine_pipeline.trust.ed25519 import VerifyingKey
    from engine_pipeline.trust.policy import TrustedKey, TrustedSigner
    from engine_pipeline.trust.standing import KnownSigner

# The public instance's is 12 kB.
MAX_TRUST_CONFIG_BYTES = 1 << 20
_TRUST_CONFIG = "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json"


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


def load_keys(entries: Sequence[TrustedSigner], directory: Path) -> tuple[KnownSigner, ...]:
    """The keys and identities of channels.yaml, in its order.

    Args:
        entries: its `trust:` part.
        directory: where it lies; files that it names are relative to it.

    Raises:
        NotFound: `key-missing`, `trust-config-missing`.
        InvalidInput: `key-unusable`, `trust-config-unusable`, or the same under two names
            (`key-named-twice`, `identity-named-twice`).
        Incompatible: `tool-missing`.
    """
    known: dict[str, KnownSigner] = {}
    for entry in entries:
        if isinstance(entry, TrustedIdentity):
            file = directory / entry.trust_config_file if entry.trust_config_file else None
            signer: KnownSigner = KnownIdentity(entry=entry, verifier=read_trust_config(file))
            same = f"{entry.identity} {entry.issuer} {file}"
        else:
            public = _public(entry, directory)
            signer, same = KnownKey(entry=entry, public=public), public.key_id
        other = known.setdefault(same, signer)
        if other is not signer:
            raise _twice(other, signer)
    return tuple(known.values())


def read_trust_config(path: Path | None) -> Instance:
    """The sigstore instance that a file describes; the public one without a file.

    What is in the file is used, and judged in full, when a signature is.

    Raises:
        NotFound: `trust-config-missing`.
        InvalidInput: `trust-config-unusable`.
    """
    if path is None:
        return Instance(None, "the public sigstore instance")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TRUST_CONFIG_BYTES)
        text = data.decode()
        value = json.loads(text)
    except FileNotFoundError as error:
        raise NotFound(
            f"sigstore trust config: no file {path}",
            hint="get it from whoever runs the sigstore instance, or correct the name",
            reference="trust-config-missing",
        ) from error
    except OSError as error:
        raise _no_config(path, f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise _no_config(path, f"no JSON: {str(error)[:120]}") from error
    kind = value.get("mediaType") if isinstance(value, dict) else None
    if kind != _TRUST_CONFIG:
        raise _no_config(path, f"media type {str(kind)[:120]!r}, want {_TRUST_CONFIG!r}")
    return Instance(text, f"the sigstore instance of {path.name}")


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


def _twice(other: KnownSigner, one: KnownSigner) -> InvalidInput:
    if isinstance(one, KnownKey):
        return InvalidInput(
            f"channels.yaml: {other.entry.name} and {one.entry.name} have the same public key",
            hint="keep one entry per key under `trust:`, with everything that it may sign",
            reference="key-named-twice",
        )
    return InvalidInput(
        f"channels.yaml: {other.entry.name} and {one.entry.name} have the same identity and issuer",
        hint="keep one entry per identity under `trust:`, with everything that it may sign",
        reference="identity-named-twice",
    )


def _no_config(path: Path, what: str) -> InvalidInput:
    return InvalidInput(
        f"sigstore trust config {path}: {what}",
        hint="docs/trust.md (Keyless) says what the file is and how to get it",
        reference="trust-config-unusable",
    )
