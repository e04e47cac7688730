"""A small model hub on loopback: enough of the protocol for the real huggingface_hub client.

Statuses, error codes and headers are those the public hub answers with. Large files are served by
redirect from another origin (`localhost` instead of `127.0.0.1`), as a content network would, so a
token that leaks there is seen. Faults are queued and used up one request at a time.
"""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

LARGE_SUFFIXES = (".safetensors", ".gguf", ".bin", ".parquet")


def commit_of(text: str) -> str:
    """A made-up commit, always the same for the same text."""
    return hashlib.sha1(text.encode()).hexdigest()


def blob_id(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Repo:
    """One repository: refs → commits → files."""

    kind: str = "model"
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)
    private: bool = False
    gated: bool = False
    accepted_by: set[str] = field(default_factory=set)

    def commit(self, ref: str, files: dict[str, bytes]) -> str:
        digest = hashlib.sha1()
        for path, data in sorted(files.items()):
            digest.update(path.encode() + b"\0" + data)
        commit = digest.hexdigest()
        self.commits[commit] = files
        self.refs[ref] = commit
        return commit


@dataclass
class Fault:
    """What goes wrong with the next `times` requests that match.

    `kind` is `status`, `truncate` (half the bytes, then the connection ends), `stall` (no answer
    while the server lives) or `wrong` (the right size, other bytes).
    """

    kind: str
    part: str
    method: str = "GET"
    times: int = 1
    status: int = 500
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b"{}"


@dataclass(frozen=True)
class Seen:
    method: str
    host: str
    path: str
    token: str | None
    range: str | None


class HubServer:
    """Start with `with`; `url` is the endpoint."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.tokens: set[str] = set()
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.unfaithful = False
        self.codes = True
        self.lock = threading.Lock()
        self.closing = threading.Event()
        server = self

        class Handler(_Handler):
            hub = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.02}
        )

    @property
    def port(self) -> int:
        return self._http.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def repo(self, name: str, **options: Any) -> Repo:
        return self.repos.setdefault(name, Repo(**options))

    def requests(self, part: str = "", method: str | None = None) -> list[Seen]:
        return [s for s in self.seen if part in s.path and method in {None, s.method}]

    def take_fault(self, method: str, path: str) -> Fault | None:
        with self.lock:
            for fault in self.faults:
                if fault.method == method and fault.part in path and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None

    def __enter__(self) -> HubServer:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.closing.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Refused(Exception):
    def __init__(self, status: int, code: str = "", message: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer

    def log_message(self, format: str, *args: object) -> None: ...

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    @property
    def token(self) -> str | None:
        header = self.headers.get("authorization")
        return header.removeprefix("Bearer ") if header else None

    def _serve(self) -> None:
        with self.hub.lock:
            self.hub.seen.append(
                Seen(
                    self.command,
                    self.headers.get("host", ""),
                    self.path,
                    self.token,
                    self.headers.get("range"),
                )
            )
        fault = self.hub.take_fault(self.command, self.path)
        try:
            if fault and fault.kind == "stall":
                self.hub.closing.wait(30)
                self.close_connection = True
                return
            if fault and fault.kind == "status":
                self._answer(fault.status, fault.headers, fault.body)
                return
            self._route(fault)
        except _Refused as refused:
            headers = {}
            if self.hub.codes:
                headers = {"X-Error-Code": refused.code, "X-Error-Message": refused.message}
            body = json.dumps({"error": refused.message}).encode()
            self._answer(refused.status, {k: v for k, v in headers.items() if v}, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _route(self, fault: Fault | None) -> None:
        url = urlsplit(self.path)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        if parts[0] == "cdn":
            self._content(self._stored(parts[1]), {}, fault)
        elif parts[0] == "api" and parts[1] in {"models", "datasets"} and len(parts) in {4, 6}:
            revision = parts[5] if len(parts) == 6 else None
            self._info(parts[1], f"{parts[2]}/{parts[3]}", revision, parse_qs(url.query))
        elif "resolve" in parts:
            kind = "datasets" if parts[0] == "datasets" else "models"
            parts = parts[1:] if kind == "datasets" else parts
            name, path = f"{parts[0]}/{parts[1]}", "/".join(parts[4:])
            self._resolve(kind, name, parts[3], path, fault)
        else:
            raise _Refused(404, "", "Sorry, we can't find the page you are looking for.")

    def _repo(self, kind: str, name: str) -> Repo:
        token = self.token
        if token is not None and token not in self.hub.tokens:
            raise _Refused(401, "", "Invalid credentials in Authorization header")
        repo = self.hub.repos.get(name)
        if repo is None or f"{repo.kind}s" != kind or (repo.private and token is None):
            if token is None:
                raise _Refused(401, "RepoNotFound", "Invalid username or password.")
            raise _Refused(404, "RepoNotFound", "Repository not found")
        return repo

    def _commit(self, repo: Repo, revision: str) -> str:
        commit = repo.refs.get(revision, revision)
        if commit in repo.commits:
            return commit
        if self.hub.unfaithful:
            return repo.refs["main"]
        raise _Refused(404, "RevisionNotFound", f"Invalid rev id: {revision}")

    def _info(
        self, kind: str, name: str, revision: str | None, query: dict[str, list[str]]
    ) -> None:
        repo = self._repo(kind, name)
        commit = self._commit(repo, revision or "main")
        siblings: list[dict[str, Any]] = []
        for path, data in sorted(repo.commits[commit].items()):
            entry: dict[str, Any] = {"rfilename": path}
            if "blobs" in query:
                entry |= {"size": len(data), "blobId": blob_id(data)}
                if path.endswith(LARGE_SUFFIXES):
                    sha256 = hashlib.sha256(data).hexdigest()
                    entry["lfs"] = {"sha256": sha256, "size": len(data), "pointerSize": 134}
            siblings.append(entry)
        answer = {
            "_id": "1",
            "id": name,
            "sha": commit,
            "private": repo.private,
            "gated": "manual" if repo.gated else False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": [],
            "siblings": siblings,
        }
        self._answer(200, {"Content-Type": "application/json"}, json.dumps(answer).encode())

    def _resolve(self, kind: str, name: str, revision: str, path: str, fault: Fault | None) -> None:
        repo = self._repo(kind, name)
        if repo.gated and self.token is None:
            raise _Refused(
                401,
                "GatedRepo",
                f"Access to model {name} is restricted. You must have access to it and be "
                "authenticated to access it. Please log in.",
            )
        if repo.gated and self.token not in repo.accepted_by:
            raise _Refused(
                403,
                "GatedRepo",
                f"Access to model {name} is restricted and you are not in the authorized list.",
            )
        commit = self._commit(repo, revision)
        data = repo.commits[commit].get(path)
        if data is None:
            raise _Refused(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": commit}
        if path.endswith(LARGE_SUFFIXES):
            sha256 = hashlib.sha256(data).hexdigest()
            headers |= {
                "X-Linked-Size": str(len(data)),
                "X-Linked-Etag": f'"{sha256}"',
                "Location": f"http://localhost:{self.hub.port}/cdn/{sha256}?Signature=s3cret",
            }
            self._answer(302, headers, b"")
            return
        self._content(data, headers | {"ETag": f'"{blob_id(data)}"'}, fault)

    def _stored(self, sha256: str) -> bytes:
        for repo in self.hub.repos.values():
            for files in repo.commits.values():
                for data in files.values():
                    if hashlib.sha256(data).hexdigest() == sha256:
                        return data
        raise _Refused(404, "EntryNotFound", "Entry not found")

    def _content(self, data: bytes, headers: dict[str, str], fault: Fault | None) -> None:
        if fault and fault.kind == "wrong":
            data = bytes(byte ^ 1 for byte in data)
        status, total = 200, len(data)
        span = self.headers.get("range")
        if span:
            start = int(span.removeprefix("bytes=").split("-")[0])
            if start >= total:
                raise _Refused(416, "", "Requested range not satisfiable")
            data, status = data[start:], 206
            headers |= {"Content-Range": f"bytes {start}-{total - 1}/{total}"}
        if fault and fault.kind == "truncate":
            self._start(status, headers, len(data))
            self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
            return
        self._answer(status, headers, data)

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self._start(status, headers, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _start(self, status: int, headers: dict[str, str], length: int) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()
