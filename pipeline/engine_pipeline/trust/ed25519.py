"""Ed25519 keys in PEM files, through the `cryptography` package.

A private key is unencrypted PKCS #8, a public key SubjectPublicKeyInfo, both as OpenSSL writes
them. The key id is the SHA-256 of the public key's DER form:
`openssl pkey -pubin -in NAME.pub -outform DER | sha256sum`.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_registry.errors import Incompatible, InvalidInput, NotFound

if TYPE_CHECKING:
    from pathlib import Path

MAX_KEY_FILE_BYTES = 1 << 14
_OTHERS = 0o077
_PUBLIC = b"-----BEGIN PUBLIC KEY-----"
_PRIVATE = "PRIVATE KEY-----"
_NEW = "make one with `enginectl key new NAME`"


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """The public half; `key_id` is 64 hex digits."""

    key_id: str
    pem: str
    _key: Any

    def verifies(self, signature: bytes, signed: bytes) -> bool:
        """Whether the other half made `signature` over these bytes."""
        from cryptography.exceptions import InvalidSignature

        try:
            self._key.verify(signature, signed)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True, repr=False)
class SigningKey:
    """The private half; its `repr` shows nothing of it."""

    public: VerifyingKey
    _key: Any

    def sign(self, data: bytes) -> bytes:
        """64 bytes, the same every time for the same key and data."""
        signature: bytes = self._key.sign(data)
        return signature


def read_public_key(pem: str, name: str) -> VerifyingKey:
    """The public key of PEM text; `name` is what errors call it.

    Raises:
        InvalidInput: `key-unusable`: no PEM, or no Ed25519 key.
        Incompatible: `tool-missing`.
    """
    serialization, ed25519 = _library()
    try:
        key = serialization.load_pem_public_key(pem.encode())
    except (ValueError, _unsupported()) as error:
        if _PRIVATE in pem:
            hint = "name the .pub file beside it; a private key belongs nowhere else"
            raise _unusable(name, "a private key, want the public one", hint) from error
        raise _unusable(name, "no public key in PEM form", _NEW) from error
    if not isinstance(key, ed25519.Ed25519PublicKey):
        raise _unusable(name, f"a {type(key).__name__}, want an Ed25519 key", _NEW)
    return _verifying(key)


def read_signing_key(path: Path) -> SigningKey:
    """The private key in a file that only its owner can read.

    Raises:
        NotFound: `key-missing`.
        InvalidInput: `key-unusable`, or `key-readable-by-others`.
        Incompatible: `tool-missing`.
    """
    serialization, ed25519 = _library()
    data = _read_private(path)
    try:
        key = serialization.load_pem_private_key(data, password=None)
    except TypeError as error:
        hint = "write it unencrypted, mode 600, from where your secrets are kept"
        raise _unusable(str(path), "an encrypted private key", hint) from error
    except (ValueError, _unsupported()) as error:
        raise _unusable(str(path), "no private key in PEM form", _NEW) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise _unusable(str(path), f"a {type(key).__name__}, want an Ed25519 key", _NEW)
    return SigningKey(_verifying(key.public_key()), key)


def new_key() -> tuple[bytes, VerifyingKey]:
    """A fresh private key as PEM, and its public half."""
    serialization, ed25519 = _library()
    key = ed25519.Ed25519PrivateKey.generate()
    pem: bytes = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return pem, _verifying(key.public_key())


def _verifying(key: Any) -> VerifyingKey:
    serialization, _ = _library()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    der = key.public_bytes(serialization.Encoding.DER, form)
    pem = key.public_bytes(serialization.Encoding.PEM, form).decode()
    return VerifyingKey(hashlib.sha256(der).hexdigest(), pem, key)


def _read_private(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_KEY_FILE_BYTES)
            if _PUBLIC in data:
                hint = f"sign with its private half: --key {path.with_suffix('.key')}"
                raise _unusable(str(path), "a public key, want the private one", hint)
            if mode & _OTHERS:
                raise InvalidInput(
                    f"private key {path}: mode {mode & 0o777:o} lets others read it, want 600",
                    hint=f"chmod 600 {path}; if others could read it, make a new key",
                    reference="key-readable-by-others",
                )
            return data
    except FileNotFoundError as error:
        raise NotFound(
            f"private key {path}: no such file", hint=_NEW, reference="key-missing"
        ) from error
    except OSError as error:
        raise _unusable(str(path), f"cannot be read: {error.strerror}", _NEW) from error


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise Incompatible(
            "the cryptography package is not installed, signatures need it",
            hint="pip install 'engine-ci[signing]'",
            reference="tool-missing",
        ) from error
    return serialization, ed25519


def _unsupported() -> type[Exception]:
    from cryptography.exceptions import UnsupportedAlgorithm

    return UnsupportedAlgorithm


def _unusable(name: str, what: str, hint: str) -> InvalidInput:
    return InvalidInput(f"key {name}: {what}", hint=hint, reference="key-unusable")
