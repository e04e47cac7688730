from __future__ import annotations

import pytest

from engine_pipeline.redact import redact, without_path

TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz012345"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"token {TOKEN} is bad", "token *** is bad"),
        (f"https://user:{TOKEN}@hub.example/x", "https://***@hub.example/x"),
        ("Authorization: Bearer abcdefgh12345", "Authorization: Bearer ***"),
        (
            "GET https://cdn.example/a?X-Signature=abc&b=1 failed",
            "GET https://cdn.example/a?*** failed",
        ),
        ("s3://key:secret@bucket/x", "s3://***@bucket/x"),
        ("nothing to hide in hf://org/model", "nothing to hide in hf://org/model"),
        ("a token is not set", "a token is not set"),
    ],
)
def test_what_looks_like_a_secret_is_masked_and_the_rest_stays(text: str, shown: str) -> None:
    assert redact(text) == shown


def test_a_known_secret_is_masked_whatever_it_looks_like() -> None:
    assert redact("the word is swordfish", "swordfish", None, "") == "the word is ***"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://hooks.example/services/T0/B0/x", "https://hooks.example/***"),
        ("https://me:pw@hooks.example:8443/", "https://hooks.example:8443"),
        ("http://[::1]:80/a?b", "http://[::1]:80/***"),
        ("http://[broken", "***"),
    ],
)
def test_an_address_is_shown_without_what_may_be_secret(url: str, shown: str) -> None:
    assert without_path(url) == shown
