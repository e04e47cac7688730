"""Signatures are those of Standard Webhooks, and anything else than the sent bytes fails."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from types import ModuleType

import pytest

from engine_pipeline.notify.sign import key_of, signature_headers

ROOT = Path(__file__).resolve().parents[3]
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OLD_SECRET = "an-older-secret-of-enough-length"


def documented() -> ModuleType:
    """The verification snippet of the documentation, as a module."""
    text = (ROOT / "docs" / "notifications.md").read_text()
    (snippet,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    module = ModuleType("snippet")
    exec(snippet, module.__dict__)
    return module


def signed(body: bytes = b'{"a":1}', at: int = 1_700_000_000, *secrets: str) -> dict[str, str]:
    keys = tuple(key_of(secret) for secret in secrets or (SECRET,))
    return signature_headers(body, delivery="d-1", timestamp_s=at, keys=keys)


def test_the_example_of_the_standard_gives_the_signature_of_the_standard():
    headers = signature_headers(
        b'{"test": 2432232314}',
        delivery="msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp_s=1614265330,
        keys=(key_of(SECRET),),
    )
    assert headers["webhook-signature"] == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_the_documented_check_accepts_what_is_sent():
    verify = documented().verify
    assert verify(signed(), b'{"a":1}', SECRET, now=1_700_000_100)


def test_the_documented_check_accepts_the_old_secret_while_both_are_in_use():
    verify = documented().verify
    headers = signed(b"{}", 1_700_000_000, SECRET, OLD_SECRET)
    assert verify(headers, b"{}", SECRET, now=1_700_000_000)
    assert verify(headers, b"{}", OLD_SECRET, now=1_700_000_000)


@pytest.mark.parametrize(
    ("changes", "body", "now"),
    [
        ({}, b'{"a":2}', 1_700_000_000),
        ({"webhook-id": "d-2"}, b'{"a":1}', 1_700_000_000),
        ({"webhook-timestamp": "1700000001"}, b'{"a":1}', 1_700_000_000),
        ({"webhook-signature": "v1,AAAA"}, b'{"a":1}', 1_700_000_000),
        ({"webhook-signature": ""}, b'{"a":1}', 1_700_000_000),
        ({}, b'{"a":1}', 1_700_000_601),
    ],
    ids=["body", "id", "time", "signature", "none", "too old"],
)
def test_the_documented_check_refuses_anything_else(changes, body, now):
    assert not documented().verify({**signed(), **changes}, body, SECRET, now=now)


def test_without_a_key_nothing_claims_to_be_a_signature():
    assert "webhook-signature" not in signature_headers(b"", delivery="d", timestamp_s=1, keys=())


@pytest.mark.parametrize(
    "secret", ["short", "whsec_!!!!", "whsec_" + base64.b64encode(b"x").decode()]
)
def test_an_unusable_secret_is_refused_without_being_shown(secret):
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        key_of(secret)
    assert secret not in str(caught.value)
