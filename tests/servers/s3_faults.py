"""Proxies before an S3 server: one goes wrong at the requests it is told to, one is slow."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit


class Fault(StrEnum):
    """What goes wrong with one request."""

    ERROR = "500"  # answered 500, nothing done
    BUSY = "503"  # answered 503 SlowDown, nothing done
    SILENT = "silent"  # no answer, nothing done, until the client gives up
    RESET = "reset"  # the connection breaks before the store hears of it
    LOST = "lost"  # done, but the connection breaks before the answer
    TORN = "torn"  # half of the body reaches the store, then the connection breaks
    TRUNCATED = "truncated"  # done, but half of the answer arrives
    DAMAGED = "damaged"  # one bit of the request's body flips on its way


_ANSWERS = {Fault.ERROR: (500, "InternalError"), Fault.BUSY: (503, "SlowDown")}

Plan = Callable[[int, str, str], Fault | None]


class FaultyProxy:
    """Relays to `upstream`; `plan(number, method, path)` says what goes wrong with a request.

    Numbers count from 1; requests that are sent again count again.
    """

    def __init__(self, upstream: str) -> None:
        self.upstream = urlsplit(upstream).netloc
        self.plan: Plan = lambda _number, _method, _path: None
        self.requests = 0
        self.faults = 0
        self.lock = threading.Lock()
        self.released = threading.Event()

    def restart(self, plan: Plan) -> None:
        """Count from 1 again, with another plan."""
        with self.lock:
            self.requests = 0
            self.plan = plan

    def next(self, method: str, path: str) -> Fault | None:
        with self.lock:
            self.requests += 1
            fault = self.plan(self.requests, method, path)
            self.faults += fault is not None
            return fault


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: FaultyProxy

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _relay(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        fault = self.proxy.next(self.command, self.path)
        match fault:
            case Fault.ERROR | Fault.BUSY:
                status, code = _ANSWERS[fault]
                self._answer(status, [], f"<Error><Code>{code}</Code></Error>".encode())
            case Fault.SILENT:
                self.proxy.released.wait(30)
                self._break()
            case Fault.RESET:
                self._break()
            case Fault.LOST:
                self._forward(body)
                self._break()
            case Fault.TORN:
                self._send_half(body)
                self._break()
            case Fault.TRUNCATED:
                status, headers, data = self._forward(body)
                self._answer(status, headers, data, cut=True)
            case Fault.DAMAGED:
                flipped = bytes([body[0] ^ 1]) + body[1:] if body else body
                self._answer(*self._forward(flipped))
            case None:
                self._answer(*self._forward(body))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _relay

    def _forward(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        # The signature covers the Host header: it goes through unchanged, as all others do.
        upstream = http.client.HTTPConnection(self.proxy.upstream, timeout=60)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders(body)
            answer = upstream.getresponse()
            return answer.status, answer.getheaders(), answer.read()
        finally:
            upstream.close()

    def _send_half(self, body: bytes) -> None:
        with socket.create_connection(_host(self.proxy.upstream), 10) as upstream:
            head = f"{self.command} {self.path} HTTP/1.1\r\n"
            head += "".join(f"{name}: {value}\r\n" for name, value in self.headers.items())
            upstream.sendall(head.encode() + b"\r\n" + body[: len(body) // 2])

    def _answer(
        self, status: int, headers: list[tuple[str, str]], data: bytes, *, cut: bool = False
    ) -> None:
        self.send_response_only(status)
        dropped = {"connection", "transfer-encoding"}
        if self.command != "HEAD":
            dropped.add("content-length")
        for name, value in headers:
            if name.lower() not in dropped:
                self.send_header(name, value)
        if self.command != "HEAD":
            self.send_header("Content-Length", str(len(data)))
        if cut:
            self.end_headers()
            self.wfile.write(data[: len(data) // 2])
            self._break()
            return
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _break(self) -> None:
        """Reset the connection instead of closing it."""
        self.wfile.flush()
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.close_connection = True
        self.connection.close()


def _host(netloc: str) -> tuple[str, int]:
    host, _, port = netloc.partition(":")
    return host, int(port)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Clients that hang up are the point here."""

    def shutdown_request(self, request: socket.socket | tuple[bytes, socket.socket]) -> None:
        """A connection that was reset is closed already."""
        if isinstance(request, socket.socket) and request.fileno() >= 0:
            super().shutdown_request(request)


@contextmanager
def proxied(upstream: str) -> Iterator[tuple[FaultyProxy, str]]:
    """A proxy before `upstream`, and its endpoint."""
    proxy = FaultyProxy(upstream)
    server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"proxy": proxy}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield proxy, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        proxy.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def throttled(upstream: str, bytes_per_s: int) -> Iterator[str]:
    """A slow link to `upstream`: its endpoint. Small buffers, so that the sender feels it."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 10)

    def relay(source: socket.socket, target: socket.socket, pause: bool) -> None:
        with suppress(OSError):
            while data := source.recv(8 << 10):
                target.sendall(data)
                if pause:
                    time.sleep(len(data) / bytes_per_s)  # this is what a slow link does
            target.shutdown(socket.SHUT_WR)

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                server = socket.create_connection(_host(urlsplit(upstream).netloc))
                for pair in ((client, server, True), (server, client, False)):
                    threading.Thread(target=relay, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.close()
