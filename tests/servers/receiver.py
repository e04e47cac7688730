"""A receiver of webhooks on loopback that answers as it is told: whole, broken, late or never."""

from __future__ import annotations

import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[["_Handler"], None]


@dataclass
class Call:
    """One request as it came; header names in lower case."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def delivery(self) -> str:
        return self.headers["webhook-id"]


def answer(status: int, body: str = "", **headers: str) -> Behaviour:
    """Answer with this; `_` in header names stands for `-`."""

    def behave(handler: _Handler) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("content-length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body.encode())

    return behave


def reset(handler: _Handler) -> None:
    """Cut the connection without an answer."""
    # A linger of zero makes closing send RST.
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def hang(handler: _Handler) -> None:
    """Say nothing until the receiver is stopped."""
    handler.receiver.stopped.wait()


def drip(handler: _Handler) -> None:
    """Begin an answer and never end it, with a byte now and then."""
    handler.connection.sendall(b"HTTP/1.1 200 OK\r\nx-slow: ")
    while not handler.receiver.stopped.wait(0.02):
        try:
            handler.connection.sendall(b"a")
        except OSError:
            return


@dataclass
class Receiver:
    """What came, and what is answered next; a success when nothing is left to answer."""

    url: str = ""
    calls: list[Call] = field(default_factory=list)
    answers: deque[Behaviour] = field(default_factory=deque)
    always: Behaviour = field(default_factory=lambda: answer(204))
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    stopped: threading.Event = field(default_factory=threading.Event)

    def next(self) -> Behaviour:
        return self.answers.popleft() if self.answers else self.always

    def wait_for_call(self) -> Call:
        """The next call that was not waited for yet."""
        assert self.arrived.acquire(timeout=60), "no call came"
        return self.calls[-1]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    receiver: Receiver

    def do_POST(self) -> None:
        length = int(self.headers["content-length"])
        headers = {name.lower(): value for name, value in self.headers.items()}
        call = Call(self.path, headers, self.rfile.read(length))
        self.receiver.calls.append(call)
        behave = self.receiver.next()
        self.receiver.arrived.release()
        behave(self)

    do_GET = do_POST

    def log_message(self, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # callers that hang up are part of the tests


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A running receiver."""
    receiver = Receiver()
    handler = type("Handler", (_Handler,), {"receiver": receiver})
    server = _Server(("127.0.0.1", 0), handler)
    receiver.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield receiver
    finally:
        receiver.stopped.set()
        server.shutdown()
        thread.join()
        server.server_close()
