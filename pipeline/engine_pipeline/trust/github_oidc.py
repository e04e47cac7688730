"""Who runs a job of GitHub Actions, proved by the token that GitHub signs for it.

A job with `permissions: id-token: write` may ask for such a token; its signature is checked against
the keys that the issuer publishes. Whatever is in the way, there is no identity: a name is
never taken from a token that was not verified.

Source: docs.github.com, "OpenID Connect reference"; RFC 7519 (JWT), RFC 7518 (RS256).
"""

from __future__ import annotations

import base64
import json
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engine_pipeline.trust.rs256 import verifies

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

ISSUER = "https://token.actions.githubusercontent.com"
AUDIENCE = "enginectl"
_TIMEOUT_S = 3.0
_MAX_BYTES = 1 << 18
# Clocks of runners and of the issuer may differ a little.
_LEEWAY_S = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a verified token says of a job."""

    actor: str
    repository: str
    ref: str
    run_id: str


def github_identity(
    environment: Mapping[str, str], now: datetime, issuer: str | None = None
) -> Identity | None:
    """The identity of this job; None outside of one, without the permission, or unproven.

    Asks the token endpoint of the job and the issuer (default: ISSUER), three seconds each at most.
    """
    issuer = issuer or ISSUER
    url = environment.get("ACTIONS_ID_TOKEN_REQUEST_URL")
    bearer = environment.get("ACTIONS_ID_TOKEN_REQUEST_TOKEN")
    if not url or not url.startswith(("https://", "http://")) or not bearer:
        return None
    try:
        answer = _get(f"{url}&audience={AUDIENCE}", {"Authorization": f"Bearer {bearer}"})
        keys = _get(f"{issuer}/.well-known/jwks", {})["keys"]
        claims = verified_claims(str(answer["value"]), keys)
        return _identity(claims, issuer, now)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def verified_claims(token: str, keys: list[dict[str, Any]]) -> dict[str, Any]:
    """What a compact RS256 token says, once one of the keys verified it.

    Raises:
        ValueError, KeyError, TypeError: no such token, another algorithm, or no key verifies it.
    """
    head, body, signature = token.split(".")
    header = json.loads(_decode(head))
    if header["alg"] != "RS256":
        msg = f"algorithm {header['alg']!r}, want RS256"
        raise ValueError(msg)
    signed = f"{head}.{body}".encode("ascii")
    key = next((key for key in keys if key.get("kid") == header["kid"]), None)
    if key is None or key["kty"] != "RSA":
        msg = f"the issuer has no RSA key {header['kid']!r}"
        raise ValueError(msg)
    modulus, exponent = (int.from_bytes(_decode(key[part])) for part in ("n", "e"))
    if not verifies(modulus, exponent, _decode(signature), signed):
        msg = "the signature does not match"
        raise ValueError(msg)
    claims: dict[str, Any] = json.loads(_decode(body))
    return claims


def _identity(claims: dict[str, Any], issuer: str, now: datetime) -> Identity | None:
    at = now.timestamp()
    holds = (
        claims["iss"] == issuer
        and claims["aud"] == AUDIENCE
        and claims["exp"] + _LEEWAY_S > at
        and claims.get("nbf", 0) - _LEEWAY_S <= at
    )
    if not holds or not claims["actor"]:
        return None
    return Identity(
        actor=str(claims["actor"]),
        repository=str(claims["repository"]),
        ref=str(claims["ref"]),
        run_id=str(claims["run_id"]),
    )


def _get(url: str, headers: dict[str, str]) -> Any:
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
        return json.loads(answer.read(_MAX_BYTES))


def _decode(text: str) -> bytes:
    data = text.encode("ascii")
    return base64.b64decode(data + b"=" * (-len(data) % 4), altchars=b"-_", validate=True)
