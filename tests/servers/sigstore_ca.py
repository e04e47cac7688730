"""Fulcio and its certificate transparency log: short certificates for whoever a token names.

Certificates carry what those of the public instance carry: the identity as subject alternative
name, the issuer in both forms, code signing as their use, and a timestamp by the CT log over the
certificate without it (RFC 6962), so that a verifier has nothing to look away from.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

GITHUB = "https://token.actions.githubusercontent.com"
LIFETIME = timedelta(minutes=10)
ISSUER = ObjectIdentifier("1.3.6.1.4.1.57264.1.1")
ISSUER_DER = ObjectIdentifier("1.3.6.1.4.1.57264.1.8")
SCT_LIST = ObjectIdentifier("1.3.6.1.4.1.11129.2.4.2")
_CA_USE = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
_LEAF_USE = x509.KeyUsage(True, False, False, False, False, False, False, False, False)


def new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def public_der(key: Any) -> bytes:
    public = key.public_key() if hasattr(key, "public_key") else key
    return public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def key_id(key: Any) -> bytes:
    return hashlib.sha256(public_der(key)).digest()


def identity_of(claims: dict[str, Any]) -> x509.GeneralName:
    """What the certificate of a token's holder names, as Fulcio's own table has it."""
    if claims["iss"] == GITHUB:
        return x509.UniformResourceIdentifier(f"https://github.com/{claims['job_workflow_ref']}")
    return x509.RFC822Name(claims["email"])


@dataclass
class Authority:
    """A root, an intermediate that issues, and the log of what was issued."""

    since: datetime
    root_key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    ct_key: ec.EllipticCurvePrivateKey = field(default_factory=new_key)
    # What a test spoils to see it found.
    stamps: bool = True

    def __post_init__(self) -> None:
        root = _name("standin root")
        self.root = self._ca(root, root, self.root_key, self.root_key, path_length=1)
        self.intermediate = self._ca(
            _name("standin intermediate"), root, self.key, self.root_key, path_length=0
        )

    @property
    def chain(self) -> list[x509.Certificate]:
        return [self.intermediate, self.root]

    def issue(self, public: Any, claims: dict[str, Any], at: datetime) -> x509.Certificate:
        """A certificate of ten minutes for the holder of `public`, logged."""
        builder = self._leaf(public, claims, at)
        bare = builder.sign(self.key, hashes.SHA256())
        if not self.stamps:
            return bare
        stamp = self._stamp(bare.tbs_certificate_bytes, at)
        listed = struct.pack("!H", len(stamp)) + stamp
        listed = struct.pack("!H", len(listed)) + listed
        stamped = builder.add_extension(
            x509.UnrecognizedExtension(SCT_LIST, _der(0x04, listed)), critical=False
        )
        return stamped.sign(self.key, hashes.SHA256())

    def _leaf(self, public: Any, claims: dict[str, Any], at: datetime) -> x509.CertificateBuilder:
        issuer = claims["iss"].encode()
        return (
            x509.CertificateBuilder()
            .subject_name(x509.Name([]))
            .issuer_name(self.intermediate.subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(at)
            .not_valid_after(at + LIFETIME)
            .add_extension(_LEAF_USE, critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False
            )
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(_authority_id(self.key), critical=False)
            .add_extension(x509.SubjectAlternativeName([identity_of(claims)]), critical=True)
            .add_extension(x509.UnrecognizedExtension(ISSUER, issuer), critical=False)
            .add_extension(
                x509.UnrecognizedExtension(ISSUER_DER, _der(0x0C, issuer)), critical=False
            )
        )

    def _stamp(self, tbs: bytes, at: datetime) -> bytes:
        """A signed certificate timestamp over a precertificate (RFC 6962, 3.2)."""
        time_ms = int(at.timestamp() * 1000)
        entry = key_id(self.key) + len(tbs).to_bytes(3) + tbs
        signed = struct.pack("!BBQH", 0, 0, time_ms, 1) + entry + struct.pack("!H", 0)
        signature = self.ct_key.sign(signed, ec.ECDSA(hashes.SHA256()))
        return (
            struct.pack("!B32sQH", 0, key_id(self.ct_key), time_ms, 0)
            + struct.pack("!BBH", 4, 3, len(signature))  # SHA-256, ECDSA
            + signature
        )

    def _ca(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        signed_by: ec.EllipticCurvePrivateKey,
        path_length: int,
    ) -> x509.Certificate:
        public = key.public_key()
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self.since)
            .not_valid_after(self.since + timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=True, path_length=path_length), critical=True)
            .add_extension(_CA_USE, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(_authority_id(signed_by), critical=False)
            .sign(signed_by, hashes.SHA256())
        )


def _name(common: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "standin.example"),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def _authority_id(key: ec.EllipticCurvePrivateKey) -> x509.AuthorityKeyIdentifier:
    return x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())


def _der(tag: int, content: bytes) -> bytes:
    """One DER element."""
    size = len(content)
    length = bytes([size]) if size < 128 else b"\x82" + size.to_bytes(2)
    return bytes([tag]) + length + content
