"""A chat server whose delays are known: the truth that load clients are held against.

Lean on purpose, since what it costs falls on every client's figures: one protocol on `uvloop` where
that is installed, events that are bytes from the start, connections kept open. Of requests that
come together each is stamped before any is looked at. It notes when it had a whole request and when
it wrote each first token; `GET /truth` gives what it noted since the last time. A chunk with only
the role goes out at once, as many servers do it: a client that takes it for a token is found out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from contextlib import suppress

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_DEFAULT_TOKENS = 16


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _event(value: dict[str, object]) -> bytes:
    whole = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "delays", **value}
    return _chunk(f"data: {json.dumps(whole)}\n\n".encode())


def _delta(delta: dict[str, object], finish_reason: str | None = None) -> bytes:
    return _event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]})


_ROLE = _delta({"role": "assistant", "content": None})
_TOKEN = _delta({"content": " word"})
_FINISH = _delta({}, "length")


class Noted:
    """What was served since somebody asked."""

    def __init__(self) -> None:
        self.ttft_ms: list[float] = []
        self.tpot_ms: list[float] = []

    def take(self) -> bytes:
        """All of it, as JSON; from now on, what comes after."""
        taken = json.dumps({"ttft_ms": self.ttft_ms, "tpot_ms": self.tpot_ms}).encode()
        self.ttft_ms, self.tpot_ms = [], []
        return taken


class Delays(asyncio.Protocol):
    """One connection; one request at a time."""

    def __init__(self, noted: Noted, ttft_s: float, gap_s: float) -> None:
        self._noted, self._ttft_s, self._gap_s = noted, ttft_s, gap_s
        self._loop = asyncio.get_running_loop()
        self._rest = b""
        self._came_at = 0.0
        self._will_look = False
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Keep it open for as many requests as come."""
        self._transport = transport

    def connection_lost(self, _error: Exception | None) -> None:
        """Stop answering."""
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        """Stamp; what it is comes after all that is there has been stamped."""
        self._came_at = time.perf_counter()
        self._rest += data
        if not self._will_look:
            self._will_look = True
            self._loop.call_soon(self._look)

    def _look(self) -> None:
        """Answer each request that has come whole."""
        now, self._will_look = self._came_at, False
        while (end := self._rest.find(b"\r\n\r\n")) >= 0:
            head = self._rest[:end].decode("latin-1")
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:])
            size = int(fields.get("content-length", 0))
            if len(self._rest) < end + 4 + size:
                return
            body, self._rest = self._rest[end + 4 : end + 4 + size], self._rest[end + 4 + size :]
            self._answer(head.split(" ")[1], body, now)

    def _answer(self, path: str, body: bytes, now: float) -> None:
        if path.startswith("/v1/chat/completions"):
            self._stream(json.loads(body), now)
            return
        if path.startswith("/truth"):
            answer = self._noted.take()
        else:
            listed = [{"id": "delays", "object": "model"}]
            answer = json.dumps({"object": "list", "data": listed}).encode()
        self._transport.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
            b"Content-Length: %d\r\n\r\n%b" % (len(answer), answer)
        )

    def _stream(self, asked: dict[str, object], now: float) -> None:
        limit = asked.get("max_completion_tokens") or asked.get("max_tokens") or _DEFAULT_TOKENS
        self._tokens, self._written = int(str(limit)), 0
        self._prompt_tokens = sum(str(asked["messages"]).count(mark) for mark in " \n")
        self._received_at, self._due = now, now + self._ttft_s
        self._transport.write(_HEAD + _ROLE)
        self._timer = self._loop.call_later(self._due - time.perf_counter(), self._token)

    def _token(self) -> None:
        now = time.perf_counter()
        self._transport.write(_TOKEN)
        self._written += 1
        if self._written == 1:
            self._first_at = now
        if self._written < self._tokens:
            self._due += self._gap_s
            self._timer = self._loop.call_later(max(self._due - now, 0.0), self._token)
            return
        usage = {"prompt_tokens": self._prompt_tokens, "completion_tokens": self._tokens}
        usage["total_tokens"] = sum(usage.values())
        last = _FINISH + _event({"choices": [], "usage": usage}) + _chunk(b"data: [DONE]\n\n")
        self._transport.write(last + b"0\r\n\r\n")
        self._noted.ttft_ms.append((self._first_at - self._received_at) * 1000)
        gaps = max(self._tokens - 1, 1)
        self._noted.tpot_ms.append((now - self._first_at) * 1000 / gaps)


async def serve(port: int, ttft_s: float, gap_s: float) -> None:
    """Listen on 127.0.0.1 until the process is ended."""
    noted = Noted()
    server = await asyncio.get_running_loop().create_server(
        lambda: Delays(noted, ttft_s, gap_s), "127.0.0.1", port, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--ttft-ms", type=float, required=True)
    parser.add_argument("--gap-ms", type=float, required=True)
    options = parser.parse_args()
    with suppress(ImportError):
        import uvloop

        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.run(serve(options.port, options.ttft_ms / 1000, options.gap_ms / 1000))
