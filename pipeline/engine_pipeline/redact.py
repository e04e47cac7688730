"""Keeps secrets out of messages, logs and files. Pure."""

from __future__ import annotations

import re
from typing import Any
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
MASK = "***"
# A text may be cut in the middle of a key; so much of its beginning gives away what it is. Shorter
# keys are words that could not be taken out of a text without damage to it.
LEAST_KEY_CHARS = 8


def masked(text: str, secret: str | None) -> str:
    """`text` without an endpoint's key, and without its beginning where the text was cut short.

    For answers, once they are whole: in pieces of one the key would go unseen.
    """
    if not secret:
        return text
    start = secret[:LEAST_KEY_CHARS]
    kept, at = "", 0
    while (found := text.find(start, at)) >= 0:
        end = found
        while end < min(len(text), found + len(secret)) and text[end] == secret[end - found]:
            end += 1
        kept += text[at:found] + MASK
        at = end
    return kept + text[at:]


def masked_in(value: Any, secret: str | None) -> Any:
    """A plain JSON value with the secret masked in every text of it, names of fields included."""
    if isinstance(value, str):
        return masked(value, secret)
    if isinstance(value, dict):
        return {masked(key, secret): masked_in(item, secret) for key, item in value.items()}
    if isinstance(value, list):
        return [masked_in(item, secret) for item in value]
    return value


def redact(text: str, *secrets: str | None) -> str:
    """`text` without the given secrets, and without anything else that looks like one."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, MASK)
    text = TOKEN.sub(MASK, text)
    text = _BEARER.sub(rf"\1\2{MASK}", text)
    text = _USERINFO.sub(rf"\1{MASK}@", text)
    return _QUERY.sub(rf"\1?{MASK}", text)


def looks_secret(text: str) -> bool:
    """Whether something in it looks like a key, a password or a signed address."""
    return any(pattern.search(text) for pattern in (TOKEN, _BEARER, _USERINFO, _SIGNED, _PRIVATE))


def without_path(url: str) -> str:
    """`https://host:port/***`: what may be shown of an address whose path can be a secret."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or MASK
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        return MASK
    rest = f"/{MASK}" if parts.path.strip("/") or parts.query or parts.fragment else ""
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}{port}{rest}"
