"""Identities of GitHub jobs, against an issuer that runs here."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from engine_pipeline.actor import actor_from
from engine_pipeline.trust import github_oidc
from engine_pipeline.trust.github_oidc import github_identity, verified_claims

NOW = datetime(2026, 12, 1, tzinfo=UTC)
AT = int(NOW.timestamp())


def encoded(data: bytes | dict | int) -> str:
    if isinstance(data, dict):
        data = json.dumps(data).encode()
    if isinstance(data, int):
        data = data.to_bytes((data.bit_length() + 7) // 8)
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass
class Issuer:
    """What GitHub is to a job: it hands out tokens and publishes its keys."""

    key: rsa.RSAPrivateKey
    url: str = ""
    header: dict = field(default_factory=lambda: {"alg": "RS256", "kid": "one"})
    claims: dict = field(default_factory=dict)
    token: str | None = None
    bearer: str | None = None
    publishes: bool = True

    def make_token(self) -> str:
        claims = {
            "iss": self.url,
            "aud": "enginectl",
            "exp": AT + 300,
            "nbf": AT - 5,
            "actor": "octo",
            "repository": "org/engines",
            "ref": "refs/heads/main",
            "run_id": "77",
        } | self.claims
        signed = f"{encoded(self.header)}.{encoded(claims)}"
        signature = self.key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        return f"{signed}.{encoded(signature)}"

    @property
    def keys(self) -> list[dict]:
        numbers = KEY.public_key().public_numbers()
        return [{"kid": "one", "kty": "RSA", "n": encoded(numbers.n), "e": encoded(numbers.e)}]

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": "/nowhere",
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTOR": "somebody",
            "ACTIONS_ID_TOKEN_REQUEST_URL": f"{self.url}/token?v=1",
            "ACTIONS_ID_TOKEN_REQUEST_TOKEN": "job-secret",
        }


KEY = rsa.generate_private_key(65537, 2048)


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch) -> Iterator[Issuer]:
    made = Issuer(KEY)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found: dict | None = None
            if self.path == "/token?v=1&audience=enginectl":
                made.bearer = self.headers["Authorization"]
                found = {"value": made.token or made.make_token()}
            if self.path == "/.well-known/jwks" and made.publishes:
                found = {"keys": made.keys}
            self.send_response(200 if found else 404)
            self.end_headers()
            self.wfile.write(json.dumps(found).encode())

        def log_message(self, *_args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    made.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(github_oidc, "ISSUER", made.url)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_verified_token_names_the_actor_and_the_job(issuer):
    found = github_identity(issuer.environment, NOW, issuer.url)
    assert found is not None
    assert (found.actor, found.repository, found.run_id) == ("octo", "org/engines", "77")
    assert issuer.bearer == "Bearer job-secret"


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://example.org"},
        {"aud": "somebody-else"},
        {"exp": AT - 61},
        {"nbf": AT + 61},
        {"actor": ""},
        {"exp": "never"},
    ],
)
def test_a_token_for_another_purpose_or_time_proves_nothing(issuer, claims):
    issuer.claims = claims
    assert github_identity(issuer.environment, NOW, issuer.url) is None


def test_a_token_by_another_key_proves_nothing(issuer):
    issuer.key = rsa.generate_private_key(65537, 2048)
    assert github_identity(issuer.environment, NOW, issuer.url) is None


@pytest.mark.parametrize("header", [{"alg": "RS256", "kid": "two"}, {"alg": "none", "kid": "one"}])
def test_a_token_with_another_key_id_or_algorithm_proves_nothing(issuer, header):
    issuer.header = header
    assert github_identity(issuer.environment, NOW, issuer.url) is None


def test_a_public_key_is_never_taken_for_a_shared_secret(issuer):
    head, body, _ = issuer.make_token().split(".")
    head = encoded({"alg": "HS256", "kid": "one"})
    secret = issuer.keys[0]["n"].encode()
    signature = hmac.new(secret, f"{head}.{body}".encode(), hashlib.sha256).digest()
    with pytest.raises(ValueError, match="want RS256"):
        verified_claims(f"{head}.{body}.{encoded(signature)}", issuer.keys)


@pytest.mark.parametrize("token", ["", "a.b", "a.b.c", "é.é.é", "..", "e30.e30.e30"])
def test_what_is_no_token_proves_nothing(issuer, token):
    issuer.token = token or "x"
    assert github_identity(issuer.environment, NOW, issuer.url) is None


def test_a_small_key_proves_nothing(issuer):
    numbers = rsa.generate_private_key(65537, 1024)
    signed = issuer.make_token().rpartition(".")[0]
    signature = numbers.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256())
    public = numbers.public_key().public_numbers()
    keys = [{"kid": "one", "kty": "RSA", "n": encoded(public.n), "e": encoded(public.e)}]
    with pytest.raises(ValueError, match="does not match"):
        verified_claims(f"{signed}.{encoded(signature)}", keys)


def test_without_the_issuer_a_github_job_is_only_what_its_environment_says(issuer):
    issuer.publishes = False
    actor = actor_from(issuer.environment, NOW)
    assert (actor.name, actor.proved_by) == ("somebody", "ci-environment")


def test_the_actor_of_a_job_says_how_it_was_proved(issuer):
    actor = actor_from(issuer.environment, NOW)
    assert actor.name == "octo"
    assert actor.proved_by == "github-oidc org/engines refs/heads/main run 77"
