"""Keyless signatures through the real command line, against a sigstore instance that runs here."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from engine_pipeline.trust.bundle import BUNDLE
from engine_registry.dsse import ENVELOPE
from tests.servers.sigstore import IDENTITY, Instance, serving, without_cloud
from tests.servers.sigstore_ca import GITHUB
from tests.unit.cli.conftest import PRODUCT, Project
from tests.unit.cli.test_trust_commands import PROD, SIGNED, released

RELEASES = "https://github.com/org/engines/.github/workflows/release.yml@refs/heads/main"
TRUST = f"""\
trust:
  - name: ci
    may_sign: [build, gate]
    identity: {IDENTITY}
    issuer: {GITHUB}
    trust_config_file: corp.json
  - name: release-job
    may_sign: [release]
    identity: {RELEASES}
    issuer: {GITHUB}
    trust_config_file: corp.json
"""


@dataclass
class Company:
    """A project whose prod takes only what its own workflows signed."""

    project: Project
    sigstore: Instance
    environment: pytest.MonkeyPatch

    def become(self, identity: str = IDENTITY) -> None:
        workflow = identity.removeprefix("https://github.com/")
        token = self.sigstore.token(job_workflow_ref=workflow)
        self.environment.setenv("SIGSTORE_ID_TOKEN", token)

    def sign_all(self, name: str) -> None:
        self.become()
        only = ("--only", "build", "--only", "gate")
        done = self.project.run("sign", name, "--key", "keyless:corp.json", *only)
        assert done.code == 0, done.err
        self.become(RELEASES)
        done = self.project.run("sign", name, "--key", "keyless:corp.json", "--only", "release")
        assert done.code == 0, done.err


@pytest.fixture(scope="module")
def port():
    with serving(Instance()) as instance:
        yield instance


@pytest.fixture
def company(project: Project, port: Instance, monkeypatch: pytest.MonkeyPatch) -> Company:
    without_cloud(monkeypatch)
    port.out_of_order.clear()
    (project.root / "corp.json").write_text(json.dumps(port.trust_config()))
    (project.root / "channels.yaml").write_text(SIGNED + TRUST)
    for name in ("SIGSTORE_ID_TOKEN", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "BUILDKITE", "CIRCLECI"):
        monkeypatch.delenv(name, raising=False)
    return Company(project, port, monkeypatch)


def test_what_the_right_workflows_signed_goes_live_and_the_log_names_the_bundles(company):
    project = company.project
    release = released(project, "one")
    refused = project.run("promote", release.name, "--to", "prod")
    assert refused.code == 5
    assert "not signed; may be signed by ci" in refused.err
    assert "or --keyless" in refused.err
    company.sign_all(release.name)
    assert project.run("promote", release.name, "--to", "prod").code == 0
    (event,) = project.run("history", PROD, as_json=True).json["events"]
    bundles = project.registry.engines.referrers(release.content.engine, BUNDLE)
    assert len(bundles) == 3
    assert {str(link.manifest) for link in bundles} < set(event["change"]["evidence"])
    checked = project.run("verify", "--policy", PROD)
    assert checked.code == 0, checked.out
    assert "signed by release-job; may be signed by release-job" in checked.out
    assert project.run("verify").code == 0


def test_everything_is_judged_without_the_services(company, monkeypatch):
    release = released(company.project, "one")
    company.sign_all(release.name)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked the network"))
    monkeypatch.delenv("SIGSTORE_ID_TOKEN")
    assert company.project.run("promote", release.name, "--to", "prod").code == 0
    assert company.project.run("verify", "--policy", PROD).code == 0


def test_another_branch_of_the_same_workflow_does_not_count(company):
    release = released(company.project, "one")
    feature = IDENTITY.replace("main", "feature")
    company.become(feature)
    assert company.project.run("sign", release.name, "--key", "keyless:corp.json").code == 0
    refused = company.project.run("promote", release.name, "--to", "prod")
    assert refused.code == 5
    assert f"certificate for {feature} by {GITHUB}" in refused.err


def test_keys_and_identities_may_vouch_side_by_side(company):
    project = company.project
    release = released(project, "one")
    assert project.run("key", "new", "team").code == 0
    text = (project.root / "channels.yaml").read_text()
    text = text[: text.index("  - name: release-job")]
    text += "  - {name: team, may_sign: [release], public_key_file: team.pub}\n"
    (project.root / "channels.yaml").write_text(text)
    assert project.run("validate", "channels.yaml").code == 0
    company.become()
    assert project.run("sign", release.name, "--key", "keyless:corp.json").code == 0
    assert project.run("sign", release.name, "--key", "team.key", "--only", "release").code == 0
    assert project.run("promote", release.name, "--to", "prod").code == 0
    engine = release.content.engine
    counts = [len(project.registry.engines.referrers(engine, t)) for t in (BUNDLE, ENVELOPE)]
    assert counts == [3, 1]


def test_a_bundle_moved_to_another_engine_is_exit_11(company):
    project = company.project
    one, two = (released(project, name) for name in ("one", "two"))
    company.sign_all(one.name)
    for link in project.registry.engines.referrers(one.content.engine, BUNDLE):
        for title, data in project.registry.engines.read_attachment(link.manifest).items():
            project.registry.engines.attach(two.content.engine, BUNDLE, [(title, data, BUNDLE)])
    assert project.run("promote", two.name, "--to", "prod").code == 11
    checked = project.run("verify", "--policy", two.name, as_json=True)
    assert checked.code == 11
    assert len(checked.json["bad_envelopes"]) == 3


def test_a_revoked_identity_keeps_what_was_signed_before_and_loses_the_rest(company):
    project = company.project
    release = released(project, "one")
    company.sign_all(release.name)
    file = project.root / "channels.yaml"
    text = file.read_text()
    now = datetime.now(UTC)
    for revoked_at, code in ((now + timedelta(minutes=11), 0), (now, 5)):
        entry = f"name: ci\n    revoked_at: {revoked_at.isoformat()}"
        file.write_text(text.replace("name: ci", entry))
        checked = project.run("verify", "--policy", release.name)
        assert checked.code == code, checked.out
    assert "signed by ci, whose identity is revoked since" in checked.out
    assert "still_good of ci" in checked.out


def test_a_rollback_needs_no_identity_no_root_of_trust_and_no_library(company, monkeypatch):
    project = company.project
    for name in ("one", "two"):
        release = released(project, name)
        company.sign_all(release.name)
        assert project.run("promote", release.name, "--to", "prod").code == 0
    (project.root / "corp.json").unlink()
    (project.root / "channels.yaml").unlink()
    monkeypatch.delenv("SIGSTORE_ID_TOKEN")
    for module in ("sigstore.verify", "sigstore.models", "cryptography.hazmat.primitives"):
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked the network"))
    back = project.run("rollback", PROD, "--reason", "two is slow", as_json=True)
    assert back.code == 0, back.err
    assert back.json["state"]["history"][0]["live"]["number"] == 1


def test_without_the_package_a_promotion_says_what_to_install(company, monkeypatch):
    release = released(company.project, "one")
    company.sign_all(release.name)
    monkeypatch.setitem(sys.modules, "sigstore.verify", None)
    refused = company.project.run("promote", release.name, "--to", "prod")
    assert refused.code == 6
    assert "pip install 'engine-ci[sigstore]'" in refused.err


def test_a_release_is_signed_when_it_is_cut_and_the_same_variable_names_the_signer(company):
    project = company.project
    engine = released(project, "one").content.engine
    company.become(RELEASES)
    company.environment.setenv("ENGINECTL_SIGNING_KEY", "keyless:corp.json")
    cut = project.run("release", str(engine), as_json=True)
    assert cut.code == 0, cut.err
    links = project.registry.engines.referrers(engine, BUNDLE)
    assert [str(link.manifest) for link in links] == [cut.json["envelope"]]
    signed = project.run("sign", cut.json["name"], "--only", "release", as_json=True)
    assert signed.json["identity"] == RELEASES
    assert signed.json["issuer"] == GITHUB
    assert [one["envelope"] for one in signed.json["signed"]] == [cut.json["envelope"]]


def test_signing_without_an_identity_says_what_to_set_and_a_token_is_never_shown(company):
    project = company.project
    release = released(project, "one")
    nobody = project.run("sign", release.name, "--key", "keyless:corp.json")
    assert nobody.code == 2
    assert "error[no-identity-token]" in nobody.err
    assert "SIGSTORE_ID_TOKEN" in nobody.err
    company.become()
    token = company.sigstore.token()
    company.environment.setenv("SIGSTORE_ID_TOKEN", token)
    company.sigstore.out_of_order["/api/v1/log/entries"] = 503
    down = project.run("sign", release.name, "--key", "keyless:corp.json")
    assert down.code == 9
    company.sigstore.out_of_order.clear()
    done = project.run("sign", release.name, "--key", "keyless:corp.json", as_json=True)
    assert token not in nobody.err + down.out + down.err + done.out + done.err
    for path in project.root.rglob("*"):
        assert path.is_dir() or token.encode() not in path.read_bytes()


def test_a_build_that_could_not_be_signed_is_not_begun(company):
    # The spec is not even there: who signs is the first question.
    refused = company.project.run("build", "none.yaml", "--sign", "keyless:corp.json")
    assert "error[no-identity-token]" in refused.err
    company.become()
    company.sigstore.out_of_order["/api/v2/signingCert"] = 500
    down = company.project.run("build", "none.yaml", "--sign", "keyless:corp.json")
    assert down.code == 9
    assert "error[keyless-unavailable]" in down.err


@pytest.mark.parametrize(
    ("args", "code", "reference"),
    [
        (("--key", "keyless:none.json"), 8, "trust-config-missing"),
        (("--key", "keyless:channels.yaml"), 2, "trust-config-unusable"),
        (("--key", "team.key", "--keyless"), 2, "two-signers"),
        ((), 2, "no-signer"),
    ],
)
def test_a_signer_that_cannot_be_is_refused_with_the_reason(company, args, code, reference):
    refused = company.project.run("sign", f"{PRODUCT}:1", *args)
    assert refused.code == code
    assert f"error[{reference}]" in refused.err


@pytest.mark.parametrize(
    ("find", "put", "says"),
    [
        (IDENTITY, IDENTITY.partition("@")[0], "named with its ref"),
        (f"issuer: {GITHUB}", "issuer: github", "issuer"),
        (f"    issuer: {GITHUB}\n", "", "issuer"),
        ("trust_config_file: corp.json", "trust_config_file: none.json", "no file"),
        ("trust_config_file: corp.json", "trust_config_file: channels.yaml", "no JSON"),
        ("release.yml", "engines.yml", "have the same identity and issuer"),
        ("    trust_config_file: corp.json\n", "    public_key_file: x.pub\n", "public_key_file"),
        ("    trust_config_file: corp.json\n", "", None),
    ],
)
def test_validate_finds_mistakes_in_the_trusted_identities(company, find, put, says):
    file = company.project.root / "channels.yaml"
    file.write_text(file.read_text().replace(find, put))
    done = company.project.run("validate", "channels.yaml")
    assert done.code == (2 if says else 0), done.out
    assert (says or "") in done.out
