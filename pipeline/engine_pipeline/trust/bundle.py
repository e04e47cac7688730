"""Sigstore bundles as stored and attached: the envelope inside, the listing outside. Pure.

Attached as cosign attaches them (sigstore/cosign, specs/BUNDLE_SPEC.md): one layer of the bundle's
media type below a manifest of the same artifact type, with annotations that a listing shows.
Verifying one is `keyless`'s.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from engine_registry.attachments import Attachment
from engine_registry.attestation import parse_statement
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json
from engine_registry.dsse import MAX_ENVELOPE_BYTES, Envelope, read_envelope
from engine_registry.errors import IntegrityError

if TYPE_CHECKING:
    from datetime import datetime

BUNDLE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
# Annotation of an attached bundle, as cosign has it: for listings only.
PREDICATE_TYPE: Final = "dev.sigstore.bundle.predicateType"
# A certificate and a log entry are a few thousand bytes beside the envelope.
MAX_BUNDLE_BYTES = MAX_ENVELOPE_BYTES + (1 << 18)


def read_bundle_envelope(data: bytes) -> Envelope | None:
    """The envelope of a bundle; None for a bundle that signs bytes and states nothing.

    Raises:
        IntegrityError: no bundle of this version (`bundle-unreadable`), or no envelope in it.
    """
    if len(data) > MAX_BUNDLE_BYTES:
        raise _unreadable(f"{len(data):,} bytes, at most {MAX_BUNDLE_BYTES:,} are read")
    try:
        value = json.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise _unreadable(f"no JSON object: {str(error)[:120]}") from error
    if not isinstance(value, dict):
        raise _unreadable(f"a JSON {type(value).__name__}, want an object")
    kind = value.get("mediaType")
    if kind != BUNDLE:
        raise _unreadable(f"media type {str(kind)[:80]!r}, want {BUNDLE!r}")
    if "dsseEnvelope" not in value and "messageSignature" in value:
        return None
    return read_envelope(_bytes_of(value.get("dsseEnvelope")))


def bundle_attachment(bundle: bytes, statement: bytes, made_at: datetime) -> Attachment:
    """A bundle with `statement` in it, to be attached to what it is about."""
    title = f"{str(Digest.of(bundle)).replace(':', '-')}.sigstore.json"
    return Attachment(
        artifact_type=BUNDLE,
        files=((title, bundle, BUNDLE),),
        annotations={
            "dev.sigstore.bundle.content": "dsse-envelope",
            PREDICATE_TYPE: parse_statement(statement).predicate_type,
            "org.opencontainers.image.created": f"{made_at:%Y-%m-%dT%H:%M:%SZ}",
        },
    )


def _bytes_of(envelope: Any) -> bytes:
    try:
        return canonical_json(envelope)
    except (ValueError, TypeError, RecursionError) as error:
        raise _unreadable(f"its envelope is none: {str(error)[:120]}") from error


def _unreadable(what: str) -> IntegrityError:
    return IntegrityError(
        f"signature bundle: {what}",
        hint="sign again: `enginectl sign`",
        reference="bundle-unreadable",
    )
