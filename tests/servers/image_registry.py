"""A container image registry on loopback that only hands out: enough for pulls by digest."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.servers.python_image import MANIFEST_TYPE, Image


class ImageRegistry:
    """Serves images until `close`.

    Attributes:
        refused: answer everything with 401, as a registry that wants a login.
        dropped: digests of blobs that it has lost.
    """

    def __init__(self) -> None:
        self.refused = False
        self.dropped: set[str] = set()
        self._manifests: dict[tuple[str, str], Image] = {}
        self._blobs: dict[str, bytes] = {}
        registry = self

        class Handler(_Handler):
            owner = registry

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def add(self, name: str, tag: str, image: Image) -> str:
        """Publish an image; its reference by digest."""
        self._manifests[name, tag] = self._manifests[name, image.digest] = image
        self._blobs.update(image.blobs)
        return f"{self.host}/{name}@{image.digest}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str) -> tuple[int, str, bytes]:
        """Status, media type and body for a path below /v2/."""
        if self.refused:
            return _error(401, "UNAUTHORIZED", "authentication required")
        if not path:
            return 200, "application/json", b"{}"
        name, _, rest = path.rpartition("/")
        name, _, kind = name.rpartition("/")
        if kind == "manifests" and (image := self._manifests.get((name, rest))):
            return 200, MANIFEST_TYPE, image.manifest
        if kind == "blobs" and rest in self._blobs and rest not in self.dropped:
            return 200, "application/octet-stream", self._blobs[rest]
        return _error(404, "MANIFEST_UNKNOWN" if kind == "manifests" else "BLOB_UNKNOWN", rest)


def _error(status: int, code: str, message: str) -> tuple[int, str, bytes]:
    body = {"errors": [{"code": code, "message": message}]}
    return status, "application/json", json.dumps(body).encode()


class _Handler(BaseHTTPRequestHandler):
    owner: ImageRegistry
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        status, media_type, body = self.owner.answer(self.path.removeprefix("/v2/"))
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        if media_type == MANIFEST_TYPE:
            from tests.servers.python_image import digest_of

            self.send_header("Docker-Content-Digest", digest_of(body))
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="tests"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: Any) -> None:
        pass
