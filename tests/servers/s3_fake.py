"""A small S3 server in memory whose habits can be chosen, the bad ones of real stores among them.

Enough of the protocol for the real boto3 client: objects with conditions and ranges, listings,
multipart uploads. Credentials are not looked at; checksums are verified unless told otherwise.
"""

from __future__ import annotations

import hashlib
import threading
import time
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from urllib.parse import parse_qs, unquote, urlsplit
from uuid import uuid4
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape


@dataclass
class Habits:
    """How this store behaves.

    Attributes:
        ignores_if_none_match: overwrites instead of refusing, as s3rver and others do.
        ignores_if_match: same.
        deletes_anything: ignores If-Match when it deletes.
        tells_no_time: answers without a Date.
        racy: looks whether an object is there, and only then takes the lock to write it.
        bare_etags: understands If-Match only without quotes, as Ceph 16 does.
        opaque_etags: ETags are no MD5, as with keys from a key management service.
        keeps_checksums: states checksums of parts and objects; old stores know none.
        verifies: refuses a body with another checksum than stated.
        page: how many entries a listing holds at most.
        conflicts: so many conditional writes are answered 409 first.
        locked: every request is refused, as without permission.
    """

    ignores_if_none_match: bool = False
    ignores_if_match: bool = False
    racy: bool = False
    deletes_anything: bool = False
    tells_no_time: bool = False
    bare_etags: bool = False
    opaque_etags: bool = False
    keeps_checksums: bool = True
    verifies: bool = True
    page: int = 1000
    conflicts: int = 0
    locked: bool = False


@dataclass
class Stored:
    data: bytes
    etag: str
    headers: dict[str, str]
    at: float


@dataclass
class Upload:
    key: str
    headers: dict[str, str]
    at: float
    parts: dict[int, Stored] = field(default_factory=dict)


class Refusal(Exception):
    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class FakeS3:
    """The store: one bucket; `objects` and `uploads` may be looked into and tampered with."""

    def __init__(self, habits: Habits | None = None, bucket: str = "engines") -> None:
        self.habits = habits or Habits()
        self.bucket = bucket
        self.objects: dict[str, Stored] = {}
        self.uploads: dict[str, Upload] = {}
        self.requests: list[str] = []
        self.forbidden: tuple[str, ...] = ()  # writes to keys that hold one of these are refused
        self.lock = threading.RLock()
        self._ids = count(1)
        self.now: Callable[[], float] = time.time
        # Told of each request before it is looked at; tests act in between.
        self.before: Callable[[str, str], None] = lambda _method, _key: None

    def age(self, by: timedelta) -> None:
        """Everything here was written so much earlier."""
        with self.lock:
            for stored in self.objects.values():
                stored.at -= by.total_seconds()

    def etag(self, md5: str) -> str:
        return f'"{uuid4().hex}"' if self.habits.opaque_etags else f'"{md5}"'

    def refuse_unmet(self, key: str, headers: dict[str, str]) -> None:
        there = self.objects.get(key)
        habits = self.habits
        conditional = "if-none-match" in headers or "if-match" in headers
        if conditional and habits.conflicts > 0:
            habits.conflicts -= 1
            raise Refusal(409, "ConditionalRequestConflict")
        if "if-none-match" in headers and there and not habits.ignores_if_none_match:
            raise Refusal(412, "PreconditionFailed")
        wanted = headers.get("if-match")
        if wanted is None or habits.ignores_if_match:
            return
        if there is None:
            raise Refusal(404, "NoSuchKey")
        if wanted != (there.etag.strip('"') if habits.bare_etags else there.etag):
            raise Refusal(412, "PreconditionFailed")

    def put(self, key: str, data: bytes, headers: dict[str, str]) -> Stored:
        if self.habits.racy:
            self.refuse_unmet(key, headers)
            time.sleep(0.02)  # the gap between looking and writing that makes it racy
        with self.lock:
            if not self.habits.racy:
                self.refuse_unmet(key, headers)
            etag = self.etag(hashlib.md5(data).hexdigest())
            stored = Stored(data, etag, self.kept(headers), self.now())
            self.objects[key] = stored
            return stored

    def kept(self, headers: dict[str, str]) -> dict[str, str]:
        return {
            name: value
            for name, value in headers.items()
            if name.startswith("x-amz-meta-")
            or (
                self.habits.keeps_checksums
                and name in ("x-amz-checksum-crc32", "x-amz-checksum-sha256")
            )
        }

    def refuse_damaged(self, data: bytes, headers: dict[str, str]) -> None:
        stated = {
            "content-md5": hashlib.md5(data).digest(),
            "x-amz-checksum-sha256": hashlib.sha256(data).digest(),
            "x-amz-checksum-crc32": zlib.crc32(data).to_bytes(4, "big"),
        }
        for name, value in stated.items():
            if self.habits.verifies and headers.get(name, _b64(value)) != _b64(value):
                raise Refusal(400, "BadDigest")

    def begin(self, key: str, headers: dict[str, str]) -> str:
        with self.lock:
            name = f"upload-{next(self._ids)}"
            kept = {n: v for n, v in headers.items() if n.startswith("x-amz-")}
            self.uploads[name] = Upload(key, kept, self.now())
            return name

    def upload(self, name: str) -> Upload:
        try:
            return self.uploads[name]
        except KeyError:
            raise Refusal(404, "NoSuchUpload") from None

    def complete(self, name: str, body: bytes, headers: dict[str, str]) -> Stored:
        with self.lock:
            upload = self.upload(name)
            parts = []
            for part in ET.fromstring(body).findall("{*}Part"):
                number = int(part.findtext("{*}PartNumber") or 0)
                held = upload.parts.get(number)
                if held is None or held.etag != part.findtext("{*}ETag"):
                    raise Refusal(400, "InvalidPart")
                parts.append(held)
            data = b"".join(part.data for part in parts)
            kept = {n: v for n, v in upload.headers.items() if n.startswith("x-amz-meta-")}
            if self.habits.keeps_checksums:
                self._state_checksum(upload, data, parts, headers, kept)
            md5 = hashlib.md5(b"".join(hashlib.md5(p.data).digest() for p in parts)).hexdigest()
            stored = Stored(data, self.etag(f"{md5}-{len(parts)}"), kept, self.now())
            self.objects[upload.key] = stored
            del self.uploads[name]
            return stored

    def _state_checksum(
        self,
        upload: Upload,
        data: bytes,
        parts: list[Stored],
        headers: dict[str, str],
        kept: dict[str, str],
    ) -> None:
        algorithm = upload.headers.get("x-amz-checksum-algorithm", "").lower()
        if upload.headers.get("x-amz-checksum-type") == "FULL_OBJECT":
            value = _b64(zlib.crc32(data).to_bytes(4, "big"))
            if headers.get("x-amz-checksum-crc32", value) != value:
                raise Refusal(400, "BadDigest")
            kept["x-amz-checksum-crc32"] = value
        elif algorithm == "sha256":
            composite = hashlib.sha256(b"".join(hashlib.sha256(p.data).digest() for p in parts))
            kept["x-amz-checksum-sha256"] = f"{_b64(composite.digest())}-{len(parts)}"


def _b64(value: bytes) -> str:
    return b64encode(value).decode()


def _stamp(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(at))


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    store: FakeS3

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _act(self) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {k: v[0] for k, v in parse_qs(parts.query, keep_blank_values=True).items()}
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        self.store.requests.append(f"{self.command} {key or query.get('prefix', '')}")
        self.store.before(self.command, key)
        try:
            if self.store.habits.locked:
                raise Refusal(403, "AccessDenied")
            if self.command != "GET" and any(part in key for part in self.store.forbidden):
                raise Refusal(403, "AccessDenied")
            if bucket != self.store.bucket:
                raise Refusal(404, "NoSuchBucket")
            verb = {"GET": self._get, "HEAD": self._get, "PUT": self._put}.get(self.command)
            verb = verb or {"POST": self._post, "DELETE": self._delete}[self.command]
            verb(key, query, headers, body)
        except Refusal as refusal:
            self._xml(
                f"<Error><Code>{refusal.code}</Code><Message>no</Message></Error>", refusal.status
            )

    def send_header(self, keyword: str, value: str) -> None:
        if not (keyword == "Date" and self.store.habits.tells_no_time):
            super().send_header(keyword, value)

    def date_time_string(self, timestamp: float | None = None) -> str:
        return formatdate(self.store.now() if timestamp is None else timestamp, usegmt=True)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _act

    def _get(self, key: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> None:
        if "uploads" in query:
            return self._list_uploads(query)
        if "uploadId" in query:
            return self._list_parts(query["uploadId"])
        if not key:
            return self._list(query)
        stored = self.store.objects.get(key)
        if stored is None:
            raise Refusal(404, "NoSuchKey")
        if headers.get("if-match", stored.etag) not in (stored.etag, stored.etag.strip('"')):
            raise Refusal(412, "PreconditionFailed")
        data, status = stored.data, 200
        extra = dict(stored.headers)
        if "range" in headers:
            first, _, last = headers["range"].removeprefix("bytes=").partition("-")
            extra["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
            data, status = data[int(first) : int(last) + 1], 206
        extra["Last-Modified"] = formatdate(stored.at, usegmt=True)
        return self._answer(status, data, {"ETag": stored.etag, **extra})

    def _put(self, key: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> None:
        self.store.refuse_damaged(body, headers)
        if "x-amz-copy-source" in headers:
            return self._copy(key, query, headers)
        if "uploadId" in query:
            with self.store.lock:
                upload = self.store.upload(query["uploadId"])
                etag = self.store.etag(hashlib.md5(body).hexdigest())
                stored = Stored(body, etag, self.store.kept(headers), self.store.now())
                upload.parts[int(query["partNumber"])] = stored
        else:
            stored = self.store.put(key, body, headers)
        return self._answer(200, b"", {"ETag": stored.etag})

    def _copy(self, key: str, query: dict[str, str], headers: dict[str, str]) -> None:
        source = unquote(headers["x-amz-copy-source"]).partition("/")[2]
        with self.store.lock:
            there = self.store.objects.get(source)
            if there is None:
                raise Refusal(404, "NoSuchKey")
            if headers.get("x-amz-copy-source-if-match", there.etag) != there.etag:
                raise Refusal(412, "PreconditionFailed")
            if "uploadId" not in query:
                etag = there.etag
                if "-" in etag or self.store.habits.opaque_etags:  # made anew of the whole
                    etag = self.store.etag(hashlib.md5(there.data).hexdigest())
                copied = Stored(there.data, etag, dict(there.headers), self.store.now())
                self.store.objects[key] = copied
                kind = "CopyObjectResult"
            else:
                first, _, last = headers["x-amz-copy-source-range"][6:].partition("-")
                data = there.data[int(first) : int(last) + 1]
                etag = self.store.etag(hashlib.md5(data).hexdigest())
                upload = self.store.upload(query["uploadId"])
                part = Stored(data, etag, {}, self.store.now())
                upload.parts[int(query["partNumber"])] = part
                kind = "CopyPartResult"
        self._xml(f"<{kind}><ETag>{escape(etag)}</ETag></{kind}>")

    def _post(self, key: str, query: dict[str, str], headers: dict[str, str], body: bytes) -> None:
        if "uploads" in query:
            name = self.store.begin(key, headers)
            return self._xml(
                "<InitiateMultipartUploadResult>"
                f"<UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            )
        stored = self.store.complete(query["uploadId"], body, headers)
        return self._xml(
            "<CompleteMultipartUploadResult>"
            f"<ETag>{escape(stored.etag)}</ETag></CompleteMultipartUploadResult>"
        )

    def _delete(
        self, key: str, query: dict[str, str], headers: dict[str, str], body: bytes
    ) -> None:
        with self.store.lock:
            if "uploadId" in query:
                self.store.upload(query["uploadId"])
                del self.store.uploads[query["uploadId"]]
            else:
                if not self.store.habits.deletes_anything:
                    self.store.refuse_unmet(key, headers)
                self.store.objects.pop(key, None)
        self._answer(204, b"", {})

    def _list(self, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token", query.get("start-after", ""))
        entries: dict[str, Stored | None] = {}
        for key, stored in sorted(self.store.objects.copy().items()):
            if key.startswith(prefix):
                head, slash, _ = key[len(prefix) :].partition(delimiter or "\0")
                entries[prefix + head + slash if slash else key] = None if slash else stored
        names = [name for name in entries if name > after]
        page = names[: self.store.habits.page]
        lines = []
        for name in page:
            stored = entries[name]
            if stored is None:
                lines.append(f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>")
            else:
                lines.append(
                    f"<Contents><Key>{escape(name)}</Key><Size>{len(stored.data)}</Size>"
                    f"<LastModified>{_stamp(stored.at)}</LastModified></Contents>"
                )
        more = len(names) > len(page)
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        self._xml(
            f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>{token}"
            f"{''.join(lines)}</ListBucketResult>"
        )

    def _list_uploads(self, query: dict[str, str]) -> None:
        lines = []
        for name, upload in self.store.uploads.copy().items():
            if not upload.key.startswith(query.get("prefix", "")):
                continue
            made = ""
            if self.store.habits.keeps_checksums:
                for tag in ("ChecksumAlgorithm", "ChecksumType"):
                    value = upload.headers.get(f"x-amz-checksum-{tag[8:].lower()}")
                    made += f"<{tag}>{value}</{tag}>" if value else ""
            lines.append(
                f"<Upload><Key>{escape(upload.key)}</Key><UploadId>{name}</UploadId>"
                f"<Initiated>{_stamp(upload.at)}</Initiated>{made}</Upload>"
            )
        self._xml(
            "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>"
            f"{''.join(lines)}</ListMultipartUploadsResult>"
        )

    def _list_parts(self, name: str) -> None:
        lines = []
        for number, part in sorted(self.store.upload(name).parts.items()):
            sums = "".join(
                f"<Checksum{header[15:].upper()}>{value}</Checksum{header[15:].upper()}>"
                for header, value in part.headers.items()
                if header.startswith("x-amz-checksum-")
            )
            lines.append(
                f"<Part><PartNumber>{number}</PartNumber><ETag>{escape(part.etag)}</ETag>"
                f"<Size>{len(part.data)}</Size>{sums}</Part>"
            )
        self._xml(
            f"<ListPartsResult><IsTruncated>false</IsTruncated>{''.join(lines)}</ListPartsResult>"
        )

    def _xml(self, text: str, status: int = 200) -> None:
        data = f'<?xml version="1.0" encoding="UTF-8"?>{text}'.encode()
        self._answer(status, data, {"Content-Type": "application/xml"})

    def _answer(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def serving(store: FakeS3) -> Iterator[str]:
    """The endpoint under which the store answers."""
    handler = type("Handler", (_Handler,), {"store": store, "disable_nagle_algorithm": True})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
