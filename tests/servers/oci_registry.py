"""An OCI registry on loopback that keeps its promises, except where a test tells it not to.

Held to the same tests as a real Distribution server (tests/integration/test_oci.py).
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_PATH = re.compile(r"/v2/(?P<name>.+)/(?P<kind>blobs|manifests|referrers)/(?P<rest>.*)")


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@dataclass
class Fault:
    """What goes wrong with requests that match, so many times.

    Attributes:
        method: of the requests; `where` must be in their path.
        status: answered instead of what was asked for.
        cut_after: of the body of the request, this much is taken in, then the connection dies.
        send_only: of the body of the answer, this much is sent, then the connection dies.
        spoil: changes the body of the answer.
        forget: the upload session is gone.
        lose_reply: the request is done, its answer is lost.
    """

    method: str
    where: str
    times: int = 1
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    send_only: int | None = None
    spoil: Callable[[bytes], bytes] | None = None
    forget: bool = False
    lose_reply: bool = False


@dataclass
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


class OciRegistry:
    """Serves until `close`.

    Attributes:
        lists_referrers: has the referrers API, and says so with `OCI-Subject`.
        max_request_bytes: longer requests are refused, with `too_long`.
        login: user and password that a token costs; None: nobody is asked.
        requests: method and path of each request, in order.
        seen: the Authorization header of each request.
    """

    def __init__(self, *, lists_referrers: bool = True) -> None:
        self.lists_referrers = lists_referrers
        self.max_request_bytes: int | None = None
        self.too_long = 413
        self.chunks = True
        self.ranges = True
        self.login: tuple[str, str] | None = None
        self.faults: list[Fault] = []
        self.requests: list[tuple[str, str]] = []
        self.seen: list[str] = []
        self.received_bytes = 0
        self.blobs: dict[tuple[str, str], bytes] = {}
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.uploads: dict[str, bytearray] = {}
        self.lock = threading.RLock()
        self._count = 0
        owner = self

        class Handler(_Handler):
            registry = owner

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def sent(self, method: str, part: str) -> int:
        """How many such requests there were."""
        return sum(m == method and part in path for m, path in self.requests)

    def fault_for(self, method: str, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.times and fault.method == method and fault.where in path:
                    fault.times -= 1
                    return fault
        return None

    def new_upload(self, name: str) -> Answer:
        self._count += 1
        session = f"s{self._count}"
        self.uploads[session] = bytearray()
        return Answer(202, headers=self._place(name, session))

    def _place(self, name: str, session: str) -> dict[str, str]:
        have = len(self.uploads[session])
        # Each answer names another place to go on at, as some registries do.
        return {
            "Location": f"/v2/{name}/blobs/uploads/{session}?state={have}",
            "Range": f"0-{max(have - 1, 0)}",
        }

    def blob_request(
        self, method: str, name: str, rest: str, query: dict[str, str], body: bytes, span: str
    ) -> Answer:
        if rest == "uploads/" and method == "POST":
            data = self.blobs.get((query.get("from", ""), query.get("mount", "")))
            if data is None:
                return self.new_upload(name)
            self.blobs[name, query["mount"]] = data
            return Answer(201, headers={"Location": f"/v2/{name}/blobs/{query['mount']}"})
        if rest.startswith("uploads/"):
            return self._upload(method, name, rest.removeprefix("uploads/"), query, body, span)
        data = self.blobs.get((name, rest))
        if data is None:
            return error(404, "BLOB_UNKNOWN")
        found = re.fullmatch(r"bytes=(\d+)-", span)
        if found and self.ranges:
            return Answer(206, data[int(found[1]) :])
        return Answer(200, data)

    def _upload(
        self, method: str, name: str, session: str, query: dict[str, str], body: bytes, span: str
    ) -> Answer:
        held = self.uploads.get(session)
        if held is None:
            return error(404, "BLOB_UPLOAD_UNKNOWN")
        if method != "GET" and query.get("state") != str(len(held)):
            return error(400, "BLOB_UPLOAD_INVALID")
        if method == "GET":
            return Answer(204, headers=self._place(name, session))
        if method == "PATCH":
            if not self.chunks:
                return error(405, "UNSUPPORTED")
            if span and int(span.partition("-")[0]) != len(held):
                return error(416, "BLOB_UPLOAD_INVALID")
            held += body
            return Answer(202, headers=self._place(name, session))
        whole = bytes(held + body)
        if digest_of(whole) != query.get("digest"):
            return error(400, "DIGEST_INVALID")
        del self.uploads[session]
        self.blobs[name, query["digest"]] = whole
        return Answer(201)

    def manifest_request(
        self, method: str, name: str, reference: str, kind: str, body: bytes
    ) -> Answer:
        if method != "PUT":
            found = self.manifests.get((name, reference))
            if found is None:
                return error(404, "MANIFEST_UNKNOWN")
            return Answer(200, found[1], {"Content-Type": found[0]})
        document = json.loads(body)
        parts = [document["config"], *document["layers"]] if "layers" in document else []
        if missing := [p for p in parts if (name, p["digest"]) not in self.blobs]:
            return error(400, "MANIFEST_BLOB_UNKNOWN", missing[0]["digest"])
        digest = digest_of(body)
        if reference.startswith("sha256:") and reference != digest:
            return error(400, "DIGEST_INVALID")
        self.manifests[name, reference] = self.manifests[name, digest] = (kind, body)
        headers = {"Docker-Content-Digest": digest}
        if self.lists_referrers and "subject" in document:
            headers["OCI-Subject"] = document["subject"]["digest"]
        return Answer(201, headers=headers)

    def referrers(self, name: str, subject: str, page: int) -> Answer:
        if not self.lists_referrers:
            return error(404, "NOT_FOUND")
        found = []
        for (repository, reference), (kind, data) in sorted(self.manifests.items()):
            document = json.loads(data)
            if repository != name or not reference.startswith("sha256:"):
                continue
            if document.get("subject", {}).get("digest") == subject:
                entry = {"mediaType": kind, "digest": reference, "size": len(data)}
                found.append({**entry, "artifactType": document["artifactType"]})
        index = {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": found[2 * page : 2 * page + 2],
        }
        headers = {"Content-Type": INDEX}
        if len(found) > 2 * page + 2:
            headers["Link"] = f'</v2/{name}/referrers/{subject}?page={page + 1}>; rel="next"'
        return Answer(200, json.dumps(index).encode(), headers)


def error(status: int, code: str, detail: str = "") -> Answer:
    body = {"errors": [{"code": code, "message": f"{code.lower()} {detail}"}]}
    return Answer(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Connections that break are what this server is for."""


class _Handler(BaseHTTPRequestHandler):
    registry: OciRegistry
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # head and body in one packet

    def do_GET(self) -> None:
        registry = self.registry
        with registry.lock:
            registry.requests.append((self.command, self.path))
            registry.seen.append(self.headers.get("Authorization", ""))
        fault = registry.fault_for(self.command, self.path)
        length = int(self.headers.get("Content-Length", 0))
        if fault and fault.cut_after is not None:
            self._take_part(self.rfile.read(min(fault.cut_after, length)))
            self._hang_up()
            return
        if registry.max_request_bytes is not None and length > registry.max_request_bytes:
            self.rfile.read(length)
            self._say(error(registry.too_long, "SIZE_INVALID", "request too large"))
            return
        body = self.rfile.read(length)
        registry.received_bytes += len(body)
        if fault and fault.status is not None:
            answer = error(fault.status, "FAULT")
            answer.headers |= fault.headers
            self._say(answer)
            return
        if fault and fault.forget:
            registry.uploads.clear()
        answer = self._answer(body)
        if fault and fault.lose_reply:
            self._hang_up()
            return
        if fault and fault.spoil:
            answer.body = fault.spoil(answer.body)
        self._say(answer, fault.send_only if fault else None)

    do_HEAD = do_POST = do_PUT = do_PATCH = do_GET

    def _take_part(self, data: bytes) -> None:
        session = urlsplit(self.path).path.rpartition("/")[2]
        if self.command == "PATCH" and session in self.registry.uploads:
            self.registry.uploads[session] += data

    def _answer(self, body: bytes) -> Answer:
        registry = self.registry
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query).items()}
        if url.path == "/token":
            return self._token()
        if registry.login and self.headers.get("Authorization") != "Bearer good-token":
            realm = f'Bearer realm="http://{registry.host}/token",service="tests",scope="x"'
            return Answer(401, headers={"WWW-Authenticate": realm})
        match = _PATH.fullmatch(url.path)
        if match is None:
            return Answer(200, b"{}") if url.path == "/v2/" else error(404, "NAME_UNKNOWN")
        name, rest = match["name"], match["rest"]
        with registry.lock:
            if match["kind"] == "blobs":
                span = self.headers.get("Content-Range") or self.headers.get("Range") or ""
                return registry.blob_request(self.command, name, rest, query, body, span)
            if match["kind"] == "manifests":
                kind = self.headers.get("Content-Type", "")
                return registry.manifest_request(self.command, name, rest, kind, body)
            return registry.referrers(name, rest, int(query.get("page", 0)))

    def _token(self) -> Answer:
        import base64

        login = ":".join(self.registry.login or ())
        if (
            self.headers.get("Authorization")
            != f"Basic {base64.b64encode(login.encode()).decode()}"
        ):
            return error(401, "UNAUTHORIZED")
        return Answer(200, b'{"token": "good-token"}')

    def _say(self, answer: Answer, send_only: int | None = None) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body[:send_only])
        if send_only is not None:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: Any) -> None:
        pass
