"""A sigstore instance of one's own: identity provider, Fulcio, CT log and Rekor on one port.

It does what the real services do and nothing for the client's sake: tokens are checked before
a certificate is issued, envelopes before they are logged. A client knows it by its trust config.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.servers.sigstore_ca import GITHUB, Authority, key_id, new_key, public_der
from tests.servers.sigstore_log import Log, Refused, dsse_body
from tests.servers.sigstore_tsa import TimestampAuthority

AUDIENCE = "sigstore"
WORKFLOW = "org/engines/.github/workflows/engines.yml@refs/heads/main"
IDENTITY = f"https://github.com/{WORKFLOW}"
BUNDLE = "application/vnd.dev.sigstore.bundle.v0.3+json"
BEARER = "the-right-of-this-job"
Json = dict[str, Any]


@dataclass
class Instance:
    """Everything that a client of sigstore talks to.

    Attributes:
        out_of_order: path of a service → the status that it answers instead of working.
        requests: what was asked for, in order.
        clock: a timestamp authority, which Rekor 2 needs beside it.
        rekor_version: of the log.
    """

    url: str = "http://127.0.0.1:9"
    clock: TimestampAuthority | None = None
    rekor_version: int = 1
    since: datetime = field(default_factory=lambda: datetime.now(UTC) - timedelta(days=400))
    idp_key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    out_of_order: dict[str, int] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.authority = Authority(self.since)
        self.log = Log(self.authority.intermediate)

    def token(self, **claims: Any) -> str:
        """What the identity provider says of a job of a GitHub workflow, or of whoever asks."""
        now = int(datetime.now(UTC).timestamp())
        said = {
            "iss": GITHUB,
            "aud": AUDIENCE,
            "sub": "repo:org/engines:ref:refs/heads/main",
            "job_workflow_ref": WORKFLOW,
            "iat": now,
            "nbf": now - 5,
            "exp": now + 300,
        }
        return jwt.encode(said | claims, self.idp_key, algorithm="ES256")

    def certificate(self, token: str, csr: x509.CertificateSigningRequest) -> list[str]:
        """Fulcio: a chain of certificates for the holder of a token, as PEM."""
        claims = jwt.decode(
            token, self.idp_key.public_key(), algorithms=["ES256"], audience=AUDIENCE
        )
        if not csr.is_signature_valid:
            raise Refused("whoever asks does not hold the key")
        leaf = self.authority.issue(csr.public_key(), claims, datetime.now(UTC))
        return [pem(certificate) for certificate in (leaf, *self.authority.chain)]

    def bundle(self, statement: bytes, at: datetime, **claims: Any) -> Json:
        """A statement signed, certified and logged at some time, as a bundle of version 0.3."""
        key = new_key()
        who = {"iss": GITHUB, "job_workflow_ref": WORKFLOW} | claims
        leaf = self.authority.issue(key.public_key(), who, at)
        kind = b"application/vnd.in-toto+json"
        signed = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(statement), statement)
        envelope = {
            "payload": base64.b64encode(statement).decode(),
            "payloadType": kind.decode(),
            "signatures": [
                {"sig": base64.b64encode(key.sign(signed, ec.ECDSA(hashes.SHA256()))).decode()}
            ],
        }
        verifier = base64.b64encode(pem(leaf).encode()).decode()
        body = dsse_body(json.dumps(envelope).encode(), verifier)
        said = self.log.append(body, at)
        return {
            "mediaType": BUNDLE,
            "verificationMaterial": {
                "certificate": {"rawBytes": _b64(leaf.public_bytes(serialization.Encoding.DER))},
                "tlogEntries": [self.entry(said)],
            },
            "dsseEnvelope": envelope,
        }

    @staticmethod
    def entry(said: Json) -> Json:
        """What the log says of an entry, in the form of a bundle."""
        return entry_of(said)

    def trust_config(self) -> Json:
        """What a client has to know: whom to trust, and where to ask."""
        valid = {"start": self.since.isoformat()}
        service = {"majorApiVersion": 1, "validFor": valid, "operator": "standin.example"}
        clocks = [self.clock.chain] if self.clock else []
        return {
            "mediaType": "application/vnd.dev.sigstore.clienttrustconfig.v0.1+json",
            "trustedRoot": {
                "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
                "tlogs": [self._log_of(self.log.key)],
                "ctlogs": [self._log_of(self.authority.ct_key)],
                "certificateAuthorities": [self._authority_of(self.authority.chain)],
                "timestampAuthorities": [self._authority_of(chain) for chain in clocks],
            },
            "signingConfig": {
                "mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json",
                "caUrls": [{"url": self.url, **service}],
                "oidcUrls": [{"url": self.url, **service}],
                "rekorTlogUrls": [
                    {"url": self.url, **service, "majorApiVersion": self.rekor_version}
                ],
                "rekorTlogConfig": {"selector": "ANY"},
                "tsaUrls": [{"url": f"{self.url}/timestamp", **service} for _ in clocks],
                "tsaConfig": {"selector": "ANY"},
            },
        }

    def _authority_of(self, chain: list[x509.Certificate]) -> Json:
        der = serialization.Encoding.DER
        return {
            "subject": {"organization": "standin.example", "commonName": "standin root"},
            "uri": self.url,
            "certChain": {
                "certificates": [{"rawBytes": _b64(one.public_bytes(der))} for one in chain]
            },
            "validFor": {"start": self.since.isoformat()},
        }

    def _log_of(self, key: ec.EllipticCurvePrivateKey) -> Json:
        return {
            "baseUrl": self.url,
            "hashAlgorithm": "SHA2_256",
            "publicKey": {
                "rawBytes": _b64(public_der(key)),
                "keyDetails": "PKIX_ECDSA_P256_SHA_256",
                "validFor": {"start": self.since.isoformat()},
            },
            "logId": {"keyId": _b64(key_id(key))},
        }


def pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def entry_of(said: Json) -> Json:
    """What Rekor's API says of an entry, in the form of a bundle."""
    proof = said["verification"]["inclusionProof"]
    return {
        "logIndex": str(said["logIndex"]),
        "logId": {"keyId": _b64(bytes.fromhex(said["logID"]))},
        "kindVersion": {"kind": "dsse", "version": "0.0.1"},
        "integratedTime": str(said["integratedTime"]),
        "inclusionPromise": {"signedEntryTimestamp": said["verification"]["signedEntryTimestamp"]},
        "inclusionProof": {
            "logIndex": str(proof["logIndex"]),
            "rootHash": _b64(bytes.fromhex(proof["rootHash"])),
            "treeSize": str(proof["treeSize"]),
            "hashes": [_b64(bytes.fromhex(step)) for step in proof["hashes"]],
            "checkpoint": {"envelope": proof["checkpoint"]},
        },
        "canonicalizedBody": said["body"],
    }


class _Handler(BaseHTTPRequestHandler):
    instance: Instance

    def do_GET(self) -> None:
        """The token endpoint of a GitHub job."""
        if not self._works():
            return
        if self.headers["Authorization"] != f"bearer {BEARER}":
            self._answer(403, {"message": "not a job of ours"})
        elif "audience=sigstore" not in self.path:
            self._answer(400, {"message": "for whom?"})
        else:
            self._answer(200, {"value": self.instance.token()})

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers["Content-Length"]))
        if not self._works():
            return
        if self.path == "/timestamp" and self.instance.clock is not None:
            self._send(200, self.instance.clock.reply(data), "application/timestamp-reply")
            return
        try:
            asked = json.loads(data)
            if self.path == "/api/v2/signingCert":
                self._answer(200, self._certificate(asked))
            elif self.path == "/api/v1/log/entries":
                said = self.instance.log.propose(asked, datetime.now(UTC))
                self._answer(201, {"24296fb24b8ad77a": said})
            elif self.path == "/api/v2/log/entries" and self.instance.rekor_version == 2:
                self._answer(201, self.instance.log.propose_tiled(asked))
            else:
                self._answer(404, {"code": 404, "message": self.path})
        except (Refused, InvalidSignature, jwt.InvalidTokenError, KeyError, ValueError) as error:
            self._answer(400, {"code": 400, "message": f"{type(error).__name__}: {error}"})

    def _certificate(self, asked: Json) -> Json:
        token = self.headers["Authorization"].removeprefix("Bearer ")
        csr = x509.load_pem_x509_csr(base64.b64decode(asked["certificateSigningRequest"]))
        chain = self.instance.certificate(token, csr)
        return {"signedCertificateEmbeddedSct": {"chain": {"certificates": chain}}}

    def _works(self) -> bool:
        path = self.path.partition("?")[0]
        self.instance.requests.append(path)
        status = self.instance.out_of_order.get(path)
        if status is not None:
            self._answer(status, {"code": status, "message": "out of order"})
        return status is None

    def _answer(self, status: int, value: Json) -> None:
        self._send(status, json.dumps(value).encode(), "application/json")

    def _send(self, status: int, data: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def serving(instance: Instance) -> Iterator[Instance]:
    """The instance behind a port of this machine."""
    handler = type("Handler", (_Handler,), {"instance": instance})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    instance.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield instance
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def without_cloud(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the library find no identity of the machine, should the tests run on one in a cloud."""
    monkeypatch.setattr("id._internal.oidc.ambient._GCP_PRODUCT_NAME_FILE", "/nowhere")
