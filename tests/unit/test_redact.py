from __future__ import annotations

import pytest

from engine_pipeline.redact import masked, masked_in, redact, without_path

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


def test_an_endpoints_key_is_masked_whole_cut_and_more_than_once() -> None:
    key = "abcdefgh-ijkl"
    assert masked(f"x {key} y {key}", key) == "x *** y ***"
    assert masked("cut: abcdefgh-ij", key) == "cut: ***"
    assert masked("abcdefg and nothing more", key) == "abcdefg and nothing more"
    assert masked("abcdefghabcdefgh-ijkl", key) == "******"
    assert masked("anything", None) == "anything"


def test_an_endpoints_key_is_masked_in_every_text_of_a_document() -> None:
    key = "abcdefgh-ijkl"
    found = masked_in({key: [f"a {key}", 1, None], "b": {"c": key}}, key)
    assert found == {"***": ["a ***", 1, None], "b": {"c": "***"}}
