"""Addresses, challenges and logins of OCI registries."""

import json
import stat
from pathlib import Path

import pytest

from engine_registry.digest import Digest
from engine_registry.errors import InvalidInput, Unavailable
from engine_registry.oci.challenge import read_challenge
from engine_registry.oci.credentials import Credentials, docker_credentials
from engine_registry.oci.reference import OciRef

DIGEST = Digest.of(b"engine")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("oci://ghcr.io/team/engines", OciRef("ghcr.io", "team/engines")),
        ("oci://localhost:5000/e:prod", OciRef("localhost:5000", "e", "prod")),
        (f"oci://h.example/a/b@{DIGEST}", OciRef("h.example", "a/b", None, DIGEST)),
        (f"oci://h.example/a/b:v1@{DIGEST}", OciRef("h.example", "a/b", "v1", DIGEST)),
        ("oci://[::1]:5000/e", OciRef("[::1]:5000", "e")),
    ],
)
def test_an_address_is_read_and_printed_back(text: str, expected: OciRef) -> None:
    assert OciRef.parse(text) == expected
    assert str(expected) == text


@pytest.mark.parametrize(
    "text",
    [
        "ghcr.io/team/engines",
        "oci://ghcr.io",
        "oci://ghcr.io/Team/engines",
        "oci://ghcr.io/team/../engines",
        "oci://ghcr.io/team//engines",
        "oci://ghcr.io/team/engines:-tag",
        "oci://ghcr.io/team/engines@sha256:short",
        "oci://ghcr.io/team/engines?x=1",
        "oci://ghcr.io/team/engines\n",
        "oci://-ghcr.io/team/engines",
        "oci://ghcr.io/" + "a" * 256,
    ],
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        OciRef.parse(text)


def test_a_credential_in_an_address_is_refused_and_never_repeated() -> None:
    with pytest.raises(InvalidInput) as refused:
        OciRef.parse("oci://robot:hunter2@ghcr.io/team/engines")
    assert "hunter2" not in refused.value.message


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("localhost", True),
        ("localhost:5000", True),
        ("127.0.0.1:5000", True),
        ("[::1]:5000", True),
        ("localhost.example.com", False),
        ("127.0.0.1.example.com:80", False),
        ("ghcr.io", False),
    ],
)
def test_only_this_machine_is_talked_to_without_tls(host: str, is_local: bool) -> None:
    assert OciRef.parse(f"oci://{host}/e").is_local is is_local


def test_a_bearer_challenge_is_read_with_commas_in_quotes() -> None:
    found = read_challenge(
        'Basic realm="x", Bearer realm="https://auth/token",service="r",'
        'scope="repository:a/b:pull,push"'
    )
    assert found is not None
    assert found.scheme == "bearer"
    assert found.parameters["realm"] == "https://auth/token"
    assert found.parameters["scope"] == "repository:a/b:pull,push"


@pytest.mark.parametrize(
    ("header", "scheme"), [('Basic realm="x"', "basic"), ("basic", "basic"), ("", None)]
)
def test_other_challenges(header: str, scheme: str | None) -> None:
    found = read_challenge(header)
    assert (found.scheme if found else None) == scheme


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path / "config.json"


def test_a_login_is_read_from_the_docker_configuration(config: Path) -> None:
    assert docker_credentials("ghcr.io") is None
    config.write_text(json.dumps({"auths": {"ghcr.io": {"auth": "cm9ib3Q6YTpi"}}}))
    assert docker_credentials("ghcr.io") == Credentials("robot", "a:b")
    assert docker_credentials("other.io") is None


def test_the_hub_is_found_under_its_old_name(config: Path) -> None:
    auths = {"https://index.docker.io/v1/": {"identitytoken": "token"}}
    config.write_text(json.dumps({"auths": auths}))
    assert docker_credentials("docker.io") == Credentials("", "", "token")


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('{"Username": "robot", "Secret": "word"}', Credentials("robot", "word")),
        ('{"Username": "<token>", "Secret": "word"}', Credentials("", "", "word")),
    ],
)
def test_a_credential_helper_is_asked_for_its_host(
    config: Path, monkeypatch: pytest.MonkeyPatch, answer: str, expected: Credentials
) -> None:
    helper = config.parent / "docker-credential-fake"
    helper.write_text(f"#!/bin/sh\n[ \"$(cat)\" = ghcr.io ] && printf '%s' '{answer}'\n")
    helper.chmod(helper.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", str(config.parent), prepend=":")
    config.write_text(json.dumps({"credHelpers": {"ghcr.io": "fake"}}))
    assert docker_credentials("ghcr.io") == expected
    config.write_text(json.dumps({"credsStore": "fake"}))
    assert docker_credentials("ghcr.io") == expected
    assert docker_credentials("other.io") is None


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"auths": {"ghcr.io": {"auth": "%%%"}}}',
        '{"credsStore": "../evil"}',
        '{"credsStore": "missing-program"}',
    ],
)
def test_an_unusable_configuration_is_named_and_not_shown(config: Path, text: str) -> None:
    config.write_text(text)
    with pytest.raises(Unavailable) as refused:
        docker_credentials("ghcr.io")
    assert refused.value.name == "oci-credentials-unusable"


def test_printing_a_login_shows_nothing() -> None:
    assert "word" not in repr(Credentials("robot", "word", "more words"))
