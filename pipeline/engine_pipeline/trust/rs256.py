"""RS256 signatures of tokens: the other place that needs the `cryptography` package."""

from __future__ import annotations

# Smaller keys are not worth believing (NIST SP 800-131A).
MIN_KEY_BITS = 2048


def verifies(modulus: int, exponent: int, signature: bytes, signed: bytes) -> bool:
    """Whether the RSA key of these numbers made the signature (PKCS #1 v1.5, SHA-256).

    Without the `cryptography` package nothing can be verified, and the answer is no.
    """
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import padding, rsa
    except ImportError:
        return False
    if modulus.bit_length() < MIN_KEY_BITS:
        return False
    key = rsa.RSAPublicNumbers(exponent, modulus).public_key()
    try:
        key.verify(signature, signed, padding.PKCS1v15(), hashes.SHA256())
    except InvalidSignature:
        return False
    return True
