"""Signatures of webhooks as Standard Webhooks 1.0 defines them: its libraries check ours. Pure.

The signed text is `<webhook-id>.<webhook-timestamp>.<body>`; the header holds one `v1,<base64>` for
each secret, so that a receiver can change its secret without missing a call.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

ID = "webhook-id"
TIMESTAMP = "webhook-timestamp"
SIGNATURE = "webhook-signature"
_PREFIX = "whsec_"
# 24 bytes is what Standard Webhooks asks for; shorter ones can be guessed.
_MIN_BYTES = 24


def key_of(secret: str) -> bytes:
    """The key that a secret stands for: base64 after `whsec_`, else the text's own bytes.

    Raises:
        ValueError: not base64, or too short; the text says which, not what.
    """
    text = secret.strip()
    if text.startswith(_PREFIX):
        try:
            key = base64.b64decode(text.removeprefix(_PREFIX), validate=True)
        except binascii.Error as error:
            msg = "is not base64 after whsec_"
            raise ValueError(msg) from error
    else:
        key = text.encode()
    if len(key) < _MIN_BYTES:
        msg = f"is {len(key)} bytes long, want at least {_MIN_BYTES}"
        raise ValueError(msg)
    return key


def signature_headers(
    body: bytes, *, delivery: str, timestamp_s: int, keys: tuple[bytes, ...]
) -> dict[str, str]:
    """The three headers; without keys only the first two."""
    headers = {ID: delivery, TIMESTAMP: str(timestamp_s)}
    if keys:
        signed = f"{delivery}.{timestamp_s}.".encode() + body
        made = (hmac.new(key, signed, hashlib.sha256).digest() for key in keys)
        headers[SIGNATURE] = " ".join(f"v1,{base64.b64encode(mac).decode()}" for mac in made)
    return headers
