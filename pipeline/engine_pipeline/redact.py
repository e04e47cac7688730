"""Keeps secrets out of messages, logs and files. Pure."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

# Access tokens of model hubs, Git hosts, clouds and API providers have telling prefixes.
TOKEN = re.compile(r"\b(?:hf_|ghp_|gho_|github_pat_|glpat-|nvapi-|sk-|AKIA)[A-Za-z0-9_-]{16,}")
_BEARER = re.compile(r"(?i)\b(bearer|basic|token)(\s+|=)[A-Za-z0-9._~+/=-]{8,}")
_USERINFO = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@]+@")
# Signed download links carry their right in the query.
_QUERY = re.compile(r"(\bhttps?://[^\s?#]+)[?#][^\s]*")
# Not every query is one: `?page=2` is none.
_SIGNED = re.compile(
    r"(?i)\bhttps?://[^\s?#]+\?[^\s\"]*\b(?:sig|signature|token|key|x-amz-[a-z-]+)="
)
_PRIVATE = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")
_MASK = "***"


def redact(text: str, *secrets: str | None) -> str:
    """`text` without the given secrets, and without anything else that looks like one."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, _MASK)
    text = TOKEN.sub(_MASK, text)
    text = _BEARER.sub(rf"\1\2{_MASK}", text)
    text = _USERINFO.sub(rf"\1{_MASK}@", text)
    return _QUERY.sub(rf"\1?{_MASK}", text)


def looks_secret(text: str) -> bool:
    """Whether something in it looks like a key, a password or a signed address."""
    return any(pattern.search(text) for pattern in (TOKEN, _BEARER, _USERINFO, _SIGNED, _PRIVATE))


def without_path(url: str) -> str:
    """`https://host:port/***`: what may be shown of an address whose path can be a secret."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or _MASK
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return _MASK
    rest = f"/{_MASK}" if parts.path.strip("/") or parts.query or parts.fragment else ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{rest}"
