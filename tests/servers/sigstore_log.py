"""Rekor: a Merkle tree of entries (RFC 6962), proofs that one is in it, signatures over both."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils

from tests.servers.sigstore_ca import key_id, new_key

ORIGIN = "rekor.standin.example - 7"
# Some clients look for the signer of a checkpoint in the address of the log.
HOST = "127.0.0.1"


class Refused(Exception):
    """What the log does not take."""


@dataclass
class Log:
    """An append-only log that vouches for what it holds and since when."""

    trusted: x509.Certificate
    key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    leaves: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        # Other people's entries, so that a proof has several levels and both sides.
        self.leaves = [b"entry %d of somebody else" % number for number in range(5)]

    def propose(self, entry: dict[str, Any], at: datetime) -> dict[str, Any]:
        """Take a `dsse` entry after checking it as Rekor does; the answer of Rekor's API."""
        if (entry["kind"], entry["apiVersion"]) != ("dsse", "0.0.1"):
            raise Refused(f"{entry['kind']} {entry['apiVersion']}")
        content = entry["spec"]["proposedContent"]
        (verifier,) = content["verifiers"]
        certificate = x509.load_pem_x509_certificate(base64.b64decode(verifier))
        certificate.verify_directly_issued_by(self.trusted)
        if not certificate.not_valid_before_utc <= at <= certificate.not_valid_after_utc:
            raise Refused(f"certificate is not valid at {at}")
        return self.append(dsse_body(content["envelope"].encode(), verifier), at)

    def propose_tiled(self, entry: dict[str, Any]) -> dict[str, Any]:
        """Take an entry as Rekor 2 does, which says nothing of the time; the answer of its API."""
        asked = entry["hashedRekordRequestV002"]
        signature = asked["signature"]
        der = base64.b64decode(signature["verifier"]["x509Certificate"]["rawBytes"])
        certificate = x509.load_der_x509_certificate(der)
        certificate.verify_directly_issued_by(self.trusted)
        public = certificate.public_key()
        assert isinstance(public, ec.EllipticCurvePublicKey)
        digest = ec.ECDSA(utils.Prehashed(hashes.SHA256()))
        public.verify(
            base64.b64decode(signature["content"]), base64.b64decode(asked["digest"]), digest
        )
        spec = {
            "data": {"algorithm": "SHA2_256", "digest": asked["digest"]},
            "signature": signature,
        }
        body = {
            "apiVersion": "0.0.2",
            "kind": "hashedrekord",
            "spec": {"hashedRekordV002": spec},
        }
        index = self._add(canonical(body))
        proof = self._proof(index)
        return {
            "logIndex": str(index),
            "logId": {"keyId": base64.b64encode(key_id(self.key)).decode()},
            "kindVersion": {"kind": "hashedrekord", "version": "0.0.2"},
            "integratedTime": "0",
            "inclusionProof": {
                "logIndex": str(index),
                "rootHash": base64.b64encode(bytes.fromhex(proof["rootHash"])).decode(),
                "treeSize": str(proof["treeSize"]),
                "hashes": [
                    base64.b64encode(bytes.fromhex(step)).decode() for step in proof["hashes"]
                ],
                "checkpoint": {"envelope": proof["checkpoint"]},
            },
            "canonicalizedBody": base64.b64encode(canonical(body)).decode(),
        }

    def append(self, body: bytes, at: datetime) -> dict[str, Any]:
        """Add a canonical entry; what the log says of it."""
        index = self._add(body)
        seconds = int(at.timestamp())
        said = {
            "body": base64.b64encode(body).decode(),
            "integratedTime": seconds,
            "logID": key_id(self.key).hex(),
            "logIndex": index,
        }
        return said | {
            "verification": {
                "signedEntryTimestamp": base64.b64encode(self._sign(canonical(said))).decode(),
                "inclusionProof": self._proof(index),
            }
        }

    def _add(self, body: bytes) -> int:
        self.leaves += [body, b"an entry right after it"]
        return len(self.leaves) - 2

    def _proof(self, index: int) -> dict[str, Any]:
        size, root = len(self.leaves), tree(self.leaves)
        return {
            "checkpoint": self._checkpoint(size, root),
            "hashes": [step.hex() for step in path(index, self.leaves)],
            "logIndex": index,
            "rootHash": root.hex(),
            "treeSize": size,
        }

    def _checkpoint(self, size: int, root: bytes) -> str:
        """A signed note: what is signed, an empty line, who signed."""
        note = f"{ORIGIN}\n{size}\n{base64.b64encode(root).decode()}\n"
        signature = base64.b64encode(key_id(self.key)[:4] + self._sign(note.encode())).decode()
        return f"{note}\n\N{EM DASH} {HOST} {signature}\n"

    def _sign(self, data: bytes) -> bytes:
        return self.key.sign(data, ec.ECDSA(hashes.SHA256()))


def dsse_body(envelope: bytes, verifier: str) -> bytes:
    """The entry that Rekor keeps of an envelope, once its one signature verifies."""
    read = json.loads(envelope)
    (signature,) = read["signatures"]
    payload = base64.b64decode(read["payload"])
    kind = read["payloadType"].encode()
    signed = b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)
    public = x509.load_pem_x509_certificate(base64.b64decode(verifier)).public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    public.verify(base64.b64decode(signature["sig"]), signed, ec.ECDSA(hashes.SHA256()))
    return canonical(
        {
            "apiVersion": "0.0.1",
            "kind": "dsse",
            "spec": {
                "envelopeHash": {
                    "algorithm": "sha256",
                    "value": hashlib.sha256(envelope).hexdigest(),
                },
                "payloadHash": {
                    "algorithm": "sha256",
                    "value": hashlib.sha256(payload).hexdigest(),
                },
                "signatures": [{"signature": signature["sig"], "verifier": verifier}],
            },
        }
    )


def canonical(value: dict[str, Any]) -> bytes:
    """RFC 8785, for plain ASCII and whole numbers."""
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def tree(leaves: list[bytes]) -> bytes:
    """The Merkle tree hash of a list of entries."""
    if len(leaves) == 1:
        return hashlib.sha256(b"\0" + leaves[0]).digest()
    half = _half(len(leaves))
    return hashlib.sha256(b"\1" + tree(leaves[:half]) + tree(leaves[half:])).digest()


def path(index: int, leaves: list[bytes]) -> list[bytes]:
    """The hashes beside the way from an entry to the root, from below."""
    if len(leaves) == 1:
        return []
    half = _half(len(leaves))
    if index < half:
        return [*path(index, leaves[:half]), tree(leaves[half:])]
    return [*path(index - half, leaves[half:]), tree(leaves[:half])]


def _half(count: int) -> int:
    """The largest power of two below `count`."""
    return 1 << ((count - 1).bit_length() - 1)
