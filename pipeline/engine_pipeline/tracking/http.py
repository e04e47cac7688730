"""One HTTP request with one deadline for all of it. Follows no redirect, keeps no cookie.

The deadline covers name look-up, connecting, sending and reading, so a server that drips bytes
cannot hold a run up. Proxies are taken from the usual environment variables.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from engine_pipeline.redact import redact, without_path

if TYPE_CHECKING:
    import ssl
    from collections.abc import Mapping

# More than any answer that is looked at; the rest is left unread.
_MAX_BYTES = 4 << 20
_LONGEST_RETRY_AFTER_S = 30 * 86400


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What to send. `trust`: TLS settings; False verifies nothing."""

    method: str
    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    timeout_s: float = 10.0
    trust: ssl.SSLContext | bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    took_ms: float


class NoReply(Exception):
    """No whole reply came; the text names the host and the cause, and no secret."""


def exchange(request: Request) -> Reply:
    """Send it and read the reply, whatever its status.

    Raises:
        NoReply: no connection, no whole answer within the deadline, or an unusable address.
    """
    # Not `asyncio.run`: it waits for the thread that looks a name up, past any deadline.
    loop = asyncio.new_event_loop()
    try:
        return loop.run_until_complete(_exchange(request))
    finally:
        loop.close()


def retry_after(value: str | None, now: datetime) -> timedelta | None:
    """What a `Retry-After` header asks for, in seconds or as a date; None if it makes no sense."""
    if not value:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return timedelta(seconds=min(int(text[:9]), _LONGEST_RETRY_AFTER_S))
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max(moment - now, timedelta(0)), timedelta(seconds=_LONGEST_RETRY_AFTER_S))


def _proxy_for(url: str) -> str | None:
    """The proxy that the environment names for this address.

    Found here and not by the client library, which would also send what `.netrc` holds for a host.
    """
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)


async def _exchange(request: Request) -> Reply:
    import aiohttp

    began = time.monotonic()
    place = without_path(request.url)
    try:
        async with (
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=request.timeout_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            ) as session,
            session.request(
                request.method,
                request.url,
                headers={"accept-encoding": "identity", **request.headers},
                data=request.body,
                allow_redirects=False,
                proxy=_proxy_for(request.url),
                ssl=request.trust,
            ) as response,
        ):
            body = bytearray()
            async for piece in response.content.iter_any():
                body += piece
                if len(body) >= _MAX_BYTES:
                    break
            headers = {name.lower(): value for name, value in response.headers.items()}
            took_ms = (time.monotonic() - began) * 1000
            return Reply(status=response.status, headers=headers, body=bytes(body), took_ms=took_ms)
    except TimeoutError as error:
        text = f"{place}: no whole answer within {request.timeout_s:g} s"
        raise NoReply(text) from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        cause = redact(str(error).replace(request.url, place)) or type(error).__name__
        raise NoReply(f"{place}: {cause}"[:300]) from error
