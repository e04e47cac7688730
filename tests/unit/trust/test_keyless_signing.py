"""Keyless signatures made: tokens, certificates and log entries of services that run here."""

from __future__ import annotations

import json
import os
import threading
from datetime import UTC, datetime, timedelta

import pytest

from engine_pipeline.trust.bundle import BUNDLE
from engine_pipeline.trust.keyless import Instance as SigstoreInstance
from engine_pipeline.trust.keyless_signing import KeylessSigner
from engine_pipeline.trust.policy import Role
from engine_pipeline.trust.signatures import (
    is_signed_with,
    read_signatures,
    sign_builds,
    sign_report,
)
from engine_pipeline.trust.standing import KnownIdentity, Standing
from engine_registry.attestation import provenance_statement
from engine_registry.errors import Incompatible, IntegrityError, InvalidInput, Unavailable
from engine_registry.testing.samples import sample_report
from tests.servers.sigstore import BEARER, IDENTITY, Instance, serving, without_cloud
from tests.servers.sigstore_ca import GITHUB
from tests.servers.sigstore_tsa import TimestampAuthority
from tests.unit.trust.conftest import BUILD, identified

CERTIFICATE = "/api/v2/signingCert"
ENTRY = "/api/v1/log/entries"


@pytest.fixture(scope="module")
def port():
    with serving(Instance()) as instance:
        yield instance


@pytest.fixture
def services(port: Instance, monkeypatch: pytest.MonkeyPatch):
    """The instance in good order, and an environment without any identity."""
    for name in list(os.environ):
        if name.startswith(("GITHUB_", "GITLAB_", "ACTIONS_", "BUILDKITE", "CIRCLE", "GOOGLE_")):
            monkeypatch.delenv(name)
    without_cloud(monkeypatch)
    port.out_of_order.clear()
    port.requests.clear()
    yield port
    port.out_of_order.clear()


def signer(
    services: Instance, *, token: str | None = None, ahead: timedelta = timedelta(0), **fields
) -> KeylessSigner:
    instance = SigstoreInstance(json.dumps(services.trust_config()), "the stand-in")
    environment = {} if token is None else {"SIGSTORE_ID_TOKEN": token}
    return KeylessSigner(instance, environment, lambda: datetime.now(UTC) + ahead, **fields)


@pytest.fixture
def workflow(services: Instance) -> KeylessSigner:
    return signer(services, token=services.token())


def test_whoever_the_token_names_signs_and_counts(registry, make_engine, services, workflow):
    engine = make_engine("one").digest
    (signed,) = sign_builds(registry, engine, workflow)
    (link,) = registry.engines.referrers(engine, BUNDLE)
    assert link.manifest == signed.envelope
    (seen,) = read_signatures(registry, engine, (identified(services),)).seen
    assert (seen.standing, seen.signer) == (Standing.GOOD, "ci")
    assert (workflow.public.identity, workflow.public.issuer) == (IDENTITY, GITHUB)


def test_one_certificate_serves_every_signature_while_it_is_valid(
    registry, make_engine, services, workflow
):
    engine = make_engine("one").digest
    sign_builds(registry, engine, workflow)
    sign_report(registry, engine, sample_report(registry, engine, "passed"), workflow)
    assert services.requests == [CERTIFICATE, ENTRY, ENTRY]


def test_a_certificate_about_to_run_out_is_replaced_by_a_new_one(services, make_engine, registry):
    late = signer(services, token=services.token(), ahead=timedelta(minutes=9, seconds=30))
    sign_builds(registry, make_engine("one").digest, late)
    assert services.requests.count(CERTIFICATE) == services.requests.count(ENTRY) + 1


def test_signing_again_as_the_same_identity_attaches_and_logs_nothing_new(
    registry, make_engine, services, workflow
):
    engine = make_engine("one").digest
    first = sign_builds(registry, engine, workflow)
    again = sign_builds(registry, engine, signer(services, token=services.token()))
    assert [one.envelope for one in again] == [one.envelope for one in first]
    assert [one.is_new for one in (*first, *again)] == [True, False]
    assert services.requests.count(ENTRY) == 1


def test_what_is_reused_must_have_been_signed_by_this_very_identity(
    registry, make_engine, services, workflow
):
    engine = make_engine("one").digest
    sign_builds(registry, engine, workflow)
    assert is_signed_with(registry, engine, Role.BUILD, engine, workflow.public)
    assert not is_signed_with(registry, engine, Role.GATE, engine, workflow.public)
    branch = "org/engines/.github/workflows/engines.yml@refs/heads/feature"
    other = signer(services, token=services.token(job_workflow_ref=branch))
    assert not is_signed_with(registry, engine, Role.BUILD, engine, other.public)
    sign_builds(registry, engine, other)
    assert len(registry.engines.referrers(engine, BUNDLE)) == 2


def test_a_github_job_that_may_ask_for_a_token_needs_nothing_else(services, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", f"{services.url}/token?api-version=2")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", BEARER)
    assert signer(services).public.identity == IDENTITY
    assert services.requests == ["/token", CERTIFICATE]


def test_a_github_job_without_the_permission_is_told_which_one(services, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    with pytest.raises(InvalidInput) as error:
        _ = signer(services).public
    assert error.value.name == "no-identity-token"
    assert "ACTIONS_ID_TOKEN_REQUEST_TOKEN" in error.value.message
    assert "id-token: write" in error.value.hint


def test_a_token_endpoint_that_fails_is_worth_another_try_and_no_secret_is_told(
    services, monkeypatch
):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_URL", f"{services.url}/token?api-version=2")
    monkeypatch.setenv("ACTIONS_ID_TOKEN_REQUEST_TOKEN", BEARER)
    services.out_of_order["/token"] = 502
    with pytest.raises(Unavailable) as error:
        _ = signer(services).public
    assert error.value.name == "identity-token-unavailable"
    assert BEARER not in error.value.message


def test_where_nobody_says_who_this_is_no_browser_is_opened(services, monkeypatch):
    monkeypatch.setattr("webbrowser.open", lambda *_: pytest.fail("opened a browser"))
    with pytest.raises(InvalidInput) as error:
        _ = signer(services).public
    assert error.value.name == "no-identity-token"
    assert "no identity token here" in error.value.message
    assert "SIGSTORE_ID_TOKEN" in error.value.hint
    assert services.requests == []


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"aud": "somebody-else"}, "Audience doesn't match"),
        ({"exp": 1}, "has expired"),
        ({"nbf": 4_000_000_000}, "not within its validity period"),
    ],
)
def test_a_token_for_another_purpose_or_time_is_refused_before_it_is_sent(services, claims, says):
    token = services.token(**claims)
    with pytest.raises(InvalidInput, match=says) as error:
        _ = signer(services, token=token).public
    assert error.value.name == "identity-token-unusable"
    assert token not in error.value.message
    assert services.requests == []


def test_a_token_that_the_issuer_did_not_sign_gets_no_certificate(services):
    forged = Instance().token()
    with pytest.raises(InvalidInput) as error:
        _ = signer(services, token=forged).public
    assert error.value.name == "keyless-refused"
    assert "the stand-in refused a certificate: 400" in error.value.message
    assert forged not in error.value.message


@pytest.mark.parametrize("path", [CERTIFICATE, ENTRY])
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_service_that_is_down_is_worth_another_try_and_nothing_is_attached(
    registry, make_engine, services, workflow, path, status
):
    engine = make_engine("one").digest
    services.out_of_order[path] = status
    with pytest.raises(Unavailable) as error:
        sign_builds(registry, engine, workflow)
    assert error.value.name == "keyless-unavailable"
    assert str(status) in error.value.message
    assert not registry.engines.referrers(engine, BUNDLE)
    services.out_of_order.clear()
    assert sign_builds(registry, engine, workflow)


def test_a_port_where_nobody_listens_is_worth_another_try(services):
    gone = Instance(url="http://127.0.0.1:9")
    gone.idp_key = services.idp_key
    with pytest.raises(Unavailable) as error:
        _ = signer(gone, token=services.token()).public
    assert error.value.name == "keyless-unavailable"


def test_a_service_that_never_answers_is_waited_for_only_so_long(services, monkeypatch):
    release = threading.Event()
    monkeypatch.setattr(services, "certificate", lambda *_: release.wait(60))
    try:
        with pytest.raises(Unavailable, match=r"no answer in 0\.05 s"):
            _ = signer(services, token=services.token(), limit_s=0.05).public
    finally:
        release.set()


def test_what_the_services_gave_is_verified_before_it_is_attached(
    registry, make_engine, services, workflow, monkeypatch
):
    engine = make_engine("one").digest
    impostor = Instance()
    impostor.log.trusted = services.authority.intermediate
    monkeypatch.setattr(services.log, "propose", impostor.log.propose)
    with pytest.raises(IntegrityError) as error:
        sign_builds(registry, engine, workflow)
    assert error.value.name == "bundle-not-verified"
    assert not registry.engines.referrers(engine, BUNDLE)


def test_the_public_instance_asks_for_its_root_first_and_says_when_there_is_no_network(
    services, monkeypatch, tmp_path
):
    def refused(*_: object) -> None:
        raise ConnectionRefusedError("no network in this test")

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("socket.socket.connect", refused)
    monkeypatch.setattr("socket.getaddrinfo", refused)
    public = KeylessSigner(
        SigstoreInstance(None, "the public instance"),
        {"SIGSTORE_ID_TOKEN": services.token()},
        lambda: datetime.now(UTC),
    )
    with pytest.raises(Unavailable) as error:
        _ = public.public
    assert error.value.name == "trust-root-not-refreshed"


def test_without_the_package_it_is_said_what_to_install(services, workflow, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sigstore.verify", None)
    with pytest.raises(Incompatible, match="sigstore package is not installed"):
        _ = workflow.public


def test_the_statement_in_the_bundle_is_the_one_that_a_key_would_sign(services, workflow):
    from engine_pipeline.trust.bundle import read_bundle_envelope
    from tests.unit.trust.test_keyless import ENGINE

    statement = provenance_statement(ENGINE, "tiny/cpu", BUILD)
    envelope = read_bundle_envelope(workflow.bundle(statement))
    assert envelope is not None
    assert envelope.content == statement


@pytest.fixture(scope="module", params=[1, 2], ids=["rekor 1", "rekor 2"])
def stamped(request, tmp_path_factory: pytest.TempPathFactory):
    """An instance with a timestamp authority, and either kind of log."""
    clock = TimestampAuthority(tmp_path_factory.mktemp("tsa"))
    with serving(Instance(clock=clock, rekor_version=request.param)) as instance:
        yield instance


def test_a_time_stamp_of_its_own_authority_counts_with_either_kind_of_log(
    registry, make_engine, services, stamped
):
    engine = make_engine("one").digest
    sign_builds(registry, engine, signer(stamped, token=stamped.token()))
    assert stamped.requests[-2] == "/timestamp"
    assert stamped.requests[-1] == f"/api/v{stamped.rekor_version}/log/entries"
    known = identified(stamped)
    (seen,) = read_signatures(registry, engine, (known,)).seen
    assert seen.standing is Standing.GOOD, seen.says
    revoked = identified(stamped, revoked_at=datetime.now(UTC))
    (seen,) = read_signatures(registry, engine, (revoked,)).seen
    assert seen.standing is Standing.REVOKED


def test_a_log_without_a_time_of_its_own_needs_a_time_stamp_that_is_trusted(
    registry, make_engine, services, stamped, tmp_path
):
    engine = make_engine("one").digest
    sign_builds(registry, engine, signer(stamped, token=stamped.token()))
    config = stamped.trust_config()
    others = Instance(clock=TimestampAuthority(tmp_path)).trust_config()
    foreign = others["trustedRoot"]["timestampAuthorities"]
    has_own_time = stamped.rekor_version == 1
    for clocks, counts in (([], False), (foreign, has_own_time)):
        config["trustedRoot"]["timestampAuthorities"] = clocks
        verifier = SigstoreInstance(json.dumps(config), "another clock")
        known = KnownIdentity(entry=identified(stamped).entry, verifier=verifier)
        (seen,) = read_signatures(registry, engine, (known,)).seen
        assert seen.standing is (Standing.GOOD if counts else Standing.BAD), seen.says
