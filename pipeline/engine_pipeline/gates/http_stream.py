"""One HTTP/1.1 exchange on a connection of its own, its body handed on stamp by stamp.

Straight on asyncio's transports, for the sake of time: bytes are stamped in the callback that the
event loop makes for a readable socket. What they mean is worked out only after every socket that
was readable in the same turn has been stamped, so that a burst of answers delays no stamp by the
reading of another answer.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MAX_HEAD_BYTES = 64 << 10
_PORTS = {"http": 80, "https": 443}


class ConnectionCut(ConnectionError):
    """The connection ended before the answer did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Status and header fields of an answer; names in lower case."""

    status: int
    fields: Mapping[str, str]


class BodyReader:
    """Takes the framing off an answer: the head first, then the body's bytes. Pure.

    Attributes:
        head: None until it has come whole.
        ended: whether the body has come whole; one without length ends with the connection.
    """

    def __init__(self) -> None:
        self.head: Head | None = None
        self.ended = False
        self._rest = b""
        self._chunked = False
        # Bytes of the body, or of the current chunk, still to come; None: up to the end.
        self._left: int | None = None

    @property
    def ends_with_connection(self) -> bool:
        """Whether the end of the connection is the proper end of the body."""
        return self.head is not None and not self._chunked and self._left is None

    def feed(self, data: bytes) -> bytes:
        """The bytes of the body that are in `data`.

        Raises:
            ValueError: it is not HTTP.
        """
        if self.head is None:
            self._rest += data
            if not self._read_head():
                return b""
            data, self._rest = self._rest, b""
        if self.ended or not data:
            return b""
        if self._chunked:
            return self._dechunked(data)
        if self._left is None:
            return data
        taken = data[: self._left]
        self._left -= len(taken)
        self.ended = self._left == 0
        return taken

    def _read_head(self) -> bool:
        while (end := self._rest.find(b"\r\n\r\n")) >= 0:
            first, *lines = self._rest[:end].decode("latin-1").split("\r\n")
            self._rest = self._rest[end + 4 :]
            protocol, _, rest = first.partition(" ")
            if not protocol.startswith("HTTP/1."):
                msg = f"an answer that begins with {first[:40]!r}"
                raise ValueError(msg)
            status = int(rest[:3])
            if status >= 200:  # what comes before is an interim answer
                pairs = (line.partition(":") for line in lines)
                fields = {name.strip().lower(): value.strip() for name, _, value in pairs}
                self.head = Head(status=status, fields=fields)
                self._frame(self.head)
                return True
        if len(self._rest) > _MAX_HEAD_BYTES:
            msg = f"a head of more than {_MAX_HEAD_BYTES} bytes"
            raise ValueError(msg)
        return False

    def _frame(self, head: Head) -> None:
        self._chunked = "chunked" in head.fields.get("transfer-encoding", "").lower()
        length = head.fields.get("content-length")
        if self._chunked:
            self._left = 0
        elif length is not None:
            self._left = int(length)
            self.ended = self._left == 0

    def _dechunked(self, data: bytes) -> bytes:
        assert self._left is not None
        body = []
        self._rest += data
        while self._rest and not self.ended:
            if self._left > 2:  # with the line end that closes the chunk
                taken = self._rest[: self._left - 2]
                body.append(taken)
                self._left -= len(taken)
                self._rest = self._rest[len(taken) :]
            elif self._left > 0:
                skipped = min(self._left, len(self._rest))
                self._left -= skipped
                self._rest = self._rest[skipped:]
            else:
                line, found, rest = self._rest.partition(b"\r\n")
                if not found:
                    break
                self._rest = rest
                size = int(line.partition(b";")[0], 16)
                self._left = size + 2
                self.ended = size == 0
        return b"".join(body)


class Origin:
    """Where requests go: opens connections to one scheme, host and port.

    Args:
        base_url: with or without a path, below which targets lie.

    Raises:
        ValueError: it is no http or https URL.
    """

    def __init__(self, base_url: str) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in _PORTS or parts.hostname is None:
            msg = f"{base_url!r} is no http or https URL"
            raise ValueError(msg)
        self._host = parts.hostname
        self._port = parts.port or _PORTS[parts.scheme]
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._addresses: list[str] = []
        self.path = parts.path.rstrip("/")
        self.named = parts.netloc.rpartition("@")[2]

    async def connect(self, protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        """A new connection; the host's addresses are looked up once and tried in turn.

        Raises:
            OSError: none of them answers.
        """
        loop = asyncio.get_running_loop()
        if not self._addresses:
            found = await loop.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            self._addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
        last: OSError = OSError(f"no address of {self._host}")
        for address in tuple(self._addresses):
            try:
                transport, _ = await loop.create_connection(
                    protocol,
                    address,
                    self._port,
                    ssl=self._tls,
                    server_hostname=self._host if self._tls else None,
                )
            except OSError as error:
                last = error
            else:
                self._addresses.remove(address)
                self._addresses.insert(0, address)
                return transport
        raise last


class Exchange(asyncio.Protocol):
    """One request and its answer.

    Args:
        on_body: told the bytes of the body, as they come, and when they came; what it raises ends
            the exchange.

    Attributes:
        sent_at: when the request was handed to the socket.
        ended_at: when the last byte of the answer came.
    """

    def __init__(self, on_body: Callable[[Head, bytes, float], None]) -> None:
        self.sent_at = self.ended_at = time.perf_counter()
        self._on_body = on_body
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._arrived: list[tuple[float, bytes]] = []
        self._reader = BodyReader()
        self._closed = False
        self._lost: Exception | None = None

    @property
    def head(self) -> Head | None:
        """Of the answer; None while it has not come."""
        return self._reader.head

    async def make(self, origin: Origin, request: bytes) -> None:
        """Send `request`, head and body, on a new connection and take the answer to its end.

        Raises:
            OSError: no connection, or it was lost (`ConnectionCut`: before the answer's end).
            ValueError, TypeError, RecursionError: what came is not HTTP, or `on_body` says so.
        """
        transport = await origin.connect(lambda: self)
        try:
            self.sent_at = time.perf_counter()
            transport.write(request)
            await self._over
        finally:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Stamp; the rest is for later in this turn of the loop."""
        now = time.perf_counter()
        if not self._arrived:
            self._loop.call_soon(self._look)
        self._arrived.append((now, data))

    def connection_lost(self, exc: Exception | None) -> None:
        """Whether this was the end that the answer should have."""
        self._closed = True
        self._lost = exc
        self._loop.call_soon(self._look)

    def _look(self) -> None:
        arrived, self._arrived = self._arrived, []
        if self._over.done():
            return
        try:
            for at, data in arrived:
                self.ended_at = at
                body = self._reader.feed(data)
                if body and self._reader.head is not None:
                    self._on_body(self._reader.head, body, at)
        except (ValueError, TypeError, RecursionError) as error:
            self._over.set_exception(error)
            return
        if self._reader.ended or (self._closed and self._ended_properly):
            self._over.set_result(None)
        elif self._closed:
            self._over.set_exception(self._lost or ConnectionCut("before the answer's end"))

    @property
    def _ended_properly(self) -> bool:
        return self._lost is None and self._reader.ends_with_connection


def post_request(origin: Origin, target: str, fields: Mapping[str, str], body: bytes) -> bytes:
    """The bytes of a POST of JSON; see `get_request`."""
    about = {"Content-Type": "application/json", "Content-Length": str(len(body))}
    return _request("POST", origin, target, {**about, **fields}) + body


def get_request(origin: Origin, target: str, fields: Mapping[str, str]) -> bytes:
    """The bytes of a GET that asks for the connection to be closed after it.

    Raises:
        ValueError: a field that would end its line, or that HTTP cannot carry.
    """
    return _request("GET", origin, target, fields)


def _request(method: str, origin: Origin, target: str, fields: Mapping[str, str]) -> bytes:
    whole = {"Host": origin.named, "Connection": "close", **fields}
    if name := next((n for n, value in whole.items() if {"\r", "\n"} & set(value)), None):
        msg = f"the header field {name} holds a line break"
        raise ValueError(msg)
    head = "".join(f"{name}: {value}\r\n" for name, value in whole.items())
    return f"{method} {origin.path}{target} HTTP/1.1\r\n{head}\r\n".encode("latin-1")
