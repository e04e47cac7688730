"""A timestamp authority (RFC 3161): OpenSSL's, with a chain of its own."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tests.servers.sigstore_ca import new_key

CONFIG = """\
[tsa]
default_tsa = here
[here]
serial = {directory}/serial
signer_cert = {directory}/signer.pem
signer_key = {directory}/signer.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
accuracy = secs:1
ess_cert_id_chain = yes
ess_cert_id_alg = sha256
"""


class TimestampAuthority:
    """Says when it saw something, with what `openssl ts` needs in a directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        root_key, key = new_key(), new_key()
        root = _certificate("tsa root", root_key, "tsa root", root_key, ca=True)
        signer = _certificate("tsa", key, "tsa root", root_key, ca=False)
        self.chain = [signer, root]
        pem = serialization.Encoding.PEM
        (directory / "signer.pem").write_bytes(signer.public_bytes(pem))
        (directory / "signer.key").write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )
        (directory / "serial").write_text("01\n")
        (directory / "tsa.cnf").write_text(CONFIG.format(directory=directory))

    def reply(self, query: bytes) -> bytes:
        """The answer to a query, signed."""
        asked = self._directory / "query.tsq"
        asked.write_bytes(query)
        config = str(self._directory / "tsa.cnf")
        command = ["openssl", "ts", "-reply", "-config", config, "-queryfile", str(asked)]
        return subprocess.run(command, check=True, capture_output=True).stdout


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    signed_by: ec.EllipticCurvePrivateKey,
    *,
    ca: bool,
) -> x509.Certificate:
    public, since = key.public_key(), datetime.now(UTC) - timedelta(days=400)
    use = x509.KeyUsage(not ca, False, False, False, False, ca, ca, False, False)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(since)
        .not_valid_after(since + timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(use, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signed_by.public_key()),
            critical=False,
        )
    )
    if not ca:
        stamps = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING])
        builder = builder.add_extension(stamps, critical=True)
    return builder.sign(signed_by, hashes.SHA256())
