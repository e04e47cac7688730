"""DSSE envelopes: a statement and signatures over it, as bytes. Pure; signs and verifies nothing.

Source: secure-systems-lab/dsse, protocol.md and envelope.md, version 1.0.2. What is signed is the
pre-authentication encoding (`signing_input`), which binds the type of the content to its bytes, so
JSON is never parsed before a signature over it was verified. The key id is a hint and proves
nothing.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any, Final

from engine_registry.documents import canonical_json
from engine_registry.errors import IntegrityError

ENVELOPE: Final = "application/vnd.dsse.envelope.v1+json"
IN_TOTO: Final = "application/vnd.in-toto+json"
# The largest provenance here lists one material per file of a source: hundreds of bytes each.
MAX_CONTENT_BYTES = 4 << 20
MAX_ENVELOPE_BYTES = 6 << 20
MAX_SIGNATURES = 16
MAX_SIGNATURE_BYTES = 1 << 10
MAX_KEY_ID = 256
_FROM_URL_SAFE = str.maketrans("-_", "+/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """One signature; `key_id` is empty if the signer gave none."""

    key_id: str
    value: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Signed content; its type is always IN_TOTO."""

    content: bytes
    signatures: tuple[Signature, ...]

    @property
    def signing_input(self) -> bytes:
        """The bytes that every signature of the envelope is over."""
        return signing_input(IN_TOTO, self.content)

    def to_bytes(self) -> bytes:
        """The canonical bytes to store."""
        return canonical_json(
            {
                "payloadType": IN_TOTO,
                "payload": base64.b64encode(self.content).decode(),
                "signatures": [
                    {"keyid": item.key_id, "sig": base64.b64encode(item.value).decode()}
                    for item in self.signatures
                ],
            }
        )


def signing_input(content_type: str, content: bytes) -> bytes:
    """DSSE's pre-authentication encoding: `DSSEv1 LEN(type) type LEN(content) content`."""
    kind = content_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(content), content)


def read_envelope(data: bytes) -> Envelope:
    """Parse stored bytes; fields that the specification does not name are ignored, as it asks.

    Raises:
        IntegrityError: no envelope, one with a field twice, of another content type, with base64
            that is not exact, or beyond a bound.
    """
    if len(data) > MAX_ENVELOPE_BYTES:
        raise _unreadable(f"{len(data):,} bytes, at most {MAX_ENVELOPE_BYTES:,} are read")
    try:
        value = json.loads(data.decode(), object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"no JSON object: {str(error)[:120]}") from error
    if not isinstance(value, dict):
        raise _unreadable(f"a JSON {type(value).__name__}, want an object")
    kind = value.get("payloadType")
    if kind != IN_TOTO:
        raise _unreadable(f"content type {str(kind)[:80]!r}, want {IN_TOTO!r}")
    content = _base64(value.get("payload"), "payload", MAX_CONTENT_BYTES)
    listed = value.get("signatures")
    if not isinstance(listed, list) or not 0 < len(listed) <= MAX_SIGNATURES:
        count = len(listed) if isinstance(listed, list) else "no list of"
        raise _unreadable(f"{count} signatures, want 1 to {MAX_SIGNATURES}")
    return Envelope(content=content, signatures=tuple(map(_signature, listed)))


def _signature(value: Any) -> Signature:
    if not isinstance(value, dict):
        raise _unreadable(f"a signature is a JSON {type(value).__name__}, want an object")
    key_id = value.get("keyid") or ""
    fits = isinstance(key_id, str) and len(key_id) <= MAX_KEY_ID
    if not fits or not key_id.isascii() or not key_id.isprintable():
        raise _unreadable(f"a key id is no plain text of at most {MAX_KEY_ID} characters")
    return Signature(key_id=key_id, value=_base64(value.get("sig"), "sig", MAX_SIGNATURE_BYTES))


def _base64(text: Any, name: str, limit_bytes: int) -> bytes:
    """Standard or URL-safe base64 that stands for these bytes and for no others."""
    if not isinstance(text, str) or not text:
        raise _unreadable(f"{name} is no base64 text")
    if len(text) > (limit_bytes + 2) // 3 * 4:
        raise _unreadable(f"{name} has {len(text):,} characters, at most {limit_bytes:,} bytes fit")
    standard = text if text.isascii() and {*"+/"} & {*text} else text.translate(_FROM_URL_SAFE)
    try:
        value = base64.b64decode(standard, validate=True)
    except (binascii.Error, ValueError) as error:
        raise _unreadable(f"{name} is no base64: {error}") from error
    if base64.b64encode(value).decode() != standard:
        raise _unreadable(f"{name} is base64 with left-over bits")
    return value


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        msg = f"field {twice[:80]!r} comes twice"
        raise ValueError(msg)
    return found


def _unreadable(what: str) -> IntegrityError:
    return IntegrityError(
        f"signature envelope: {what}",
        hint="sign again: `enginectl sign`",
        reference="envelope-unreadable",
    )
