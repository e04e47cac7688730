"""Keys, signatures and signed-only channels, through the real command line."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
import stat
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engine_pipeline.cli.app import run
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import Finding, LoadResult, Report
from engine_pipeline.gates.run import attach
from engine_registry.attestation import provenance_statement
from engine_registry.dsse import ENVELOPE
from engine_registry.refs import ChannelRef
from engine_registry.testing.samples import sample_draft, sample_release
from tests.unit.cli.conftest import CHANNELS, PRODUCT, Project
from tests.unit.trust.conftest import BUILD

ROOT = Path(__file__).resolve().parents[3]
LOCK = ROOT / "build_specs/smollm2-135m-instruct/cpu-x86-64-v3-int8.lock.json"
PROD = f"{PRODUCT}/prod"
TRUST = """\
trust:
  - {name: ci, may_sign: [build, gate], public_key_file: ci.pub}
  - {name: team, may_sign: [release], public_key_file: team.pub}
"""
SIGNED = CHANNELS.replace(
    "upstream: staging}", "upstream: staging, signed: [build, gate, release]}"
)


@pytest.fixture
def signing(project: Project) -> Project:
    """A project whose prod takes only what is signed, with the keys of `ci` and `team`."""
    for name in ("ci", "team"):
        assert project.run("key", "new", name).code == 0
    (project.root / "channels.yaml").write_text(SIGNED + TRUST)
    return project


def released(project: Project, name: str):
    """A judged release with real provenance and a real lock, live on staging."""
    draft = sample_draft(project.root / "files" / name, name, product=PRODUCT)
    engine = project.registry.engines.put_engine(
        dataclasses.replace(
            draft,
            provenance=lambda digest: provenance_statement(digest, str(PRODUCT), BUILD),
            lock=LOCK.read_bytes(),
        )
    )
    project.report(engine.digest, Outcome.PASSED)
    release = sample_release(project.registry, engine, product=PRODUCT)
    assert project.run("promote", release.name, "--to", "staging").code == 0
    return release


def sign_all(project: Project, release) -> None:
    only = ("--only", "build", "--only", "gate")
    assert project.run("sign", release.name, "--key", "ci.key", *only).code == 0
    assert project.run("sign", release.name, "--key", "team.key", "--only", "release").code == 0


def test_a_signed_only_channel_refuses_what_is_not_signed_and_says_all_that_is_missing(signing):
    release = released(signing, "one")
    refused = signing.run("promote", release.name, "--to", "prod")
    assert refused.code == 5
    assert "error[rule-signed]" in refused.err
    assert "build of engine" in refused.err
    assert "of gate core: not signed; may be signed by ci" in refused.err
    assert f"release {release.name}: not signed; may be signed by team" in refused.err
    assert f"enginectl sign {release.name} --key FILE" in refused.err
    assert signing.registry.channels.state(ChannelRef.parse(PROD)).number == 0


def test_what_is_signed_goes_live_and_the_log_names_the_signatures(signing):
    release = released(signing, "one")
    sign_all(signing, release)
    assert signing.run("promote", release.name, "--to", "prod").code == 0
    (event,) = signing.run("history", PROD, as_json=True).json["events"]
    envelopes = signing.registry.engines.referrers(release.content.engine, ENVELOPE)
    assert {str(link.manifest) for link in envelopes} < set(event["change"]["evidence"])
    assert signing.run("verify").code == 0


def test_signing_does_not_change_engine_or_release(signing):
    release = released(signing, "one")
    sign_all(signing, release)
    again = signing.registry.resolve(release.name)
    assert again.release == release


def test_a_rollback_needs_no_key_no_signature_and_no_trust(signing, monkeypatch):
    releases = [released(signing, name) for name in ("one", "two")]
    for release in releases:
        sign_all(signing, release)
        assert signing.run("promote", release.name, "--to", "prod").code == 0
    for name in ("ci.key", "ci.pub", "team.key", "team.pub", "channels.yaml"):
        (signing.root / name).unlink()
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    back = signing.run("rollback", PROD, "--reason", "two is slow", as_json=True)
    assert back.code == 0, back.err
    assert back.json["state"]["history"][0]["live"]["number"] == 1


def test_a_key_that_may_not_sign_it_does_not_help(signing):
    release = released(signing, "one")
    assert signing.run("sign", release.name, "--key", "team.key").code == 0
    refused = signing.run("promote", release.name, "--to", "prod")
    assert refused.code == 5
    assert "signed by team, whose key may sign release only" in refused.err


def test_a_newer_report_that_nobody_signed_undoes_an_older_signed_one(signing):
    release = released(signing, "one")
    sign_all(signing, release)
    signing.report(release.content.engine, Outcome.PASSED, hours_ago=0.1)
    refused = signing.run("promote", release.name, "--to", "prod")
    assert refused.code == 5
    assert "of gate core: not signed" in refused.err


def test_a_signed_report_under_softer_bars_is_no_evidence_under_harder_ones(signing):
    release = released(signing, "one")
    sign_all(signing, release)
    file = signing.root / "channels.yaml"
    file.write_text(file.read_text().replace("0.9", "0.95"))
    refused = signing.run("promote", release.name, "--to", "prod")
    assert refused.code == 5
    assert "only under an older policy or suite" in refused.err


def test_a_revoked_key_stops_promotion_until_its_envelopes_are_listed(signing):
    release = released(signing, "one")
    sign_all(signing, release)
    file = signing.root / "channels.yaml"
    entry = "{name: ci, may_sign: [build, gate], public_key_file: ci.pub"
    revoked = f"{entry}, revoked_at: 2026-11-30T12:00Z"
    file.write_text(file.read_text().replace(entry, revoked))
    refused = signing.run("promote", release.name, "--to", "prod")
    assert refused.code == 5
    assert "revoked since 2026-11-30; may be signed by nobody" in refused.err
    checked = signing.run("verify", "--policy", release.name)
    assert checked.code == 5
    links = signing.registry.engines.referrers(release.content.engine, ENVELOPE)
    listed = ", ".join(str(link.manifest) for link in links)
    file.write_text(file.read_text().replace("12:00Z", f"12:00Z, still_good: [{listed}]"))
    assert signing.run("promote", release.name, "--to", "prod").code == 0


def test_verify_policy_says_one_line_for_each_requirement(signing):
    release = released(signing, "one")
    before = signing.run("verify", "--policy", release.name)
    assert before.code == 5
    assert re.search(r"^failed prod build of engine \w+: not signed", before.out, re.MULTILINE)
    sign_all(signing, release)
    assert signing.run("promote", release.name, "--to", "prod").code == 0
    after = signing.run("verify", "--policy", PROD)
    assert after.code == 0, after.out
    lines = [line for line in after.out.splitlines() if line.startswith("ok prod ")]
    assert len(lines) == 4  # gate, build, report, release
    assert "signed by team; may be signed by team" in after.out


def test_verify_policy_works_with_the_registry_and_channels_yaml_alone(
    signing, tmp_path_factory, monkeypatch
):
    release = released(signing, "one")
    sign_all(signing, release)
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    shutil.copytree(signing.root / "engines", elsewhere / "engines")
    text = (signing.root / "channels.yaml").read_text()
    for name in ("ci", "team"):
        pem = json.dumps((signing.root / f"{name}.pub").read_text())
        text = text.replace(f"public_key_file: {name}.pub", f"public_key: {pem}")
    (elsewhere / "channels.yaml").write_text(text)
    monkeypatch.chdir(elsewhere)
    monkeypatch.setenv("ENGINECTL_REGISTRY", f"file://{elsewhere}/engines")
    done = signing.run("verify", "--policy", release.name)
    assert done.code == 0, done.out + done.err
    assert "its golden prompts are not here to be compared" in done.out


def test_verify_policy_finds_a_changed_signature_and_changed_bytes(signing):
    release = released(signing, "one")
    sign_all(signing, release)
    engine = release.content.engine
    other = released(signing, "two").content.engine
    for link in signing.registry.engines.referrers(engine, ENVELOPE):
        for title, data in signing.registry.engines.read_attachment(link.manifest).items():
            signing.registry.engines.attach(other, ENVELOPE, [(title, data, ENVELOPE)])
    swapped = signing.run("verify", "--policy", f"{PRODUCT}:2", as_json=True)
    assert swapped.code == 11
    assert len(swapped.json["bad_envelopes"]) == 3
    refused = signing.run("promote", f"{PRODUCT}:2", "--to", "prod")
    assert refused.code == 11
    layer = signing.registry.engines.engine(engine).manifest.layers[0]
    path = signing.root / "engines/blobs/sha256" / layer.digest.hex
    path.chmod(0o644)
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    damaged = signing.run("verify", "--policy", release.name)
    assert damaged.code == 11
    assert "failed" in damaged.out


def test_signing_again_changes_nothing(signing):
    release = released(signing, "one")
    sign_all(signing, release)
    count = len(signing.registry.engines.referrers(release.content.engine))
    again = signing.run("sign", release.name, "--key", "ci.key", "--only", "build")
    assert again.out.startswith("unchanged everything was signed with key")
    sign_all(signing, release)
    assert len(signing.registry.engines.referrers(release.content.engine)) == count


def test_show_lists_signatures_as_what_they_are_labelled(signing):
    release = released(signing, "one")
    assert "signatures" not in signing.run("show", release.name).out
    sign_all(signing, release)
    shown = signing.run("show", release.name).out
    assert "`enginectl verify --policy` judges them" in shown
    for link in signing.registry.engines.referrers(release.content.engine, ENVELOPE):
        assert link.manifest.short in shown


def test_a_release_can_be_signed_when_it_is_cut(signing, monkeypatch):
    engine = released(signing, "one").content.engine
    monkeypatch.setenv("ENGINECTL_SIGNING_KEY", "team.key")
    cut = signing.run("release", str(engine), as_json=True)
    assert cut.code == 0, cut.err
    links = signing.registry.engines.referrers(engine, ENVELOPE)
    assert [str(link.manifest) for link in links] == [cut.json["envelope"]]


def test_a_new_key_is_private_and_never_overwrites_one(signing):
    path = signing.root / "ci.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    again = signing.run("key", "new", "ci")
    assert again.code == 2
    assert "error[key-exists]" in again.err
    assert path.read_bytes() == before
    assert signing.run("key", "new", "../ci").code == 2


def test_a_private_key_is_never_printed(signing):
    secret = (signing.root / "ci.key").read_text().splitlines()[1]
    release = released(signing, "one")
    for args in (
        ("sign", release.name, "--key", "ci.key"),
        ("key", "show", "ci.pub"),
        ("key", "show", "ci.key"),
        ("verify", "--policy", release.name),
        ("show", release.name),
    ):
        ran = signing.run(*args, as_json=True)
        assert secret not in ran.out + ran.err
    for path in (signing.root / "engines").rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes()


@pytest.mark.parametrize(
    ("prepare", "reference"),
    [
        (lambda path: path.chmod(0o640), "key-readable-by-others"),
        (lambda path: path.unlink(), "key-missing"),
        (lambda path: path.write_text("no key"), "key-unusable"),
        (lambda path: path.write_bytes(path.with_suffix(".pub").read_bytes()), "key-unusable"),
    ],
)
def test_a_private_key_that_cannot_be_used_is_refused_with_the_reason(signing, prepare, reference):
    release = released(signing, "one")
    prepare(signing.root / "ci.key")
    refused = signing.run("sign", release.name, "--key", "ci.key")
    assert f"error[{reference}]" in refused.err


def test_the_other_half_of_a_pair_is_named(signing):
    release = released(signing, "one")
    public = signing.run("sign", release.name, "--key", "ci.pub")
    assert "key ci.pub: a public key, want the private one" in public.err
    assert "--key ci.key" in public.err
    private = signing.run("key", "show", "ci.key")
    assert "key ci.key: a private key, want the public one" in private.err
    assert (public.code, private.code) == (2, 2)


def test_a_key_of_another_kind_is_refused(signing):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    (signing.root / "ci.pub").write_bytes(pem)
    refused = signing.run("key", "show", "ci.pub")
    assert refused.code == 2
    assert "want an Ed25519 key" in refused.err


def test_without_the_package_a_signed_only_channel_takes_nothing_and_says_what_to_install(
    signing, monkeypatch
):
    release = released(signing, "one")
    sign_all(signing, release)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    refused = signing.run("promote", release.name, "--to", "prod")
    assert refused.code == 6
    assert "pip install 'engine-ci[signing]'" in refused.err


@pytest.mark.parametrize(
    ("find", "put", "says"),
    [
        ("[release]", "[gate]", "signed release, but no key may sign it"),
        ("name: team", "name: ci", "ci is named twice"),
        ("[release], public_key_file: team.pub", "[release]", "either public_key or"),
        ("team.pub}", "team.pub, still_good: []}", None),
        ("team.pub}", "ci.pub}", "have the same public key"),
        ("team.pub}", "none.pub}", "no file none.pub"),
        ("[release],", "[all],", "may_sign"),
    ],
)
def test_validate_finds_mistakes_in_the_trusted_keys(signing, find, put, says):
    file = signing.root / "channels.yaml"
    file.write_text(file.read_text().replace(find, put))
    done = signing.run("validate", "channels.yaml")
    assert done.code == (2 if says else 0), done.out
    assert (says or "") in done.out


def test_promotions_happen_within_their_windows_and_rollbacks_at_any_time(project):
    releases = [released(project, name) for name in ("one", "two")]
    for release in releases:
        assert project.run("promote", release.name, "--to", "prod").code == 0
    day = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"][(datetime.now(UTC).weekday() + 3) % 7]
    window = f'windows: [{{days: [{day}], opens: "08:00", closes: "16:00"}}]'
    closed = CHANNELS.replace("upstream: staging}", f"upstream: staging, {window}}}")
    (project.root / "channels.yaml").write_text(closed)
    refused = project.run("promote", releases[0].name, "--to", "prod")
    assert refused.code == 5
    assert "error[rule-window]" in refused.err
    assert f"prod takes promotions {day} 08:00-16:00Z" in refused.err
    assert "promote again from" in refused.err
    assert project.run("rollback", PROD, "--reason", "two is slow").code == 0


def test_the_bill_of_materials_is_a_file_of_its_own(signing):
    release = released(signing, "one")
    done = signing.run("export", release.name, "--bom", "bom.json")
    assert done.code == 0, done.err
    bom = json.loads((signing.root / "bom.json").read_text())
    assert bom["metadata"]["component"]["hashes"][0]["content"] == release.content.engine.hex
    assert signing.run("export", release.name, "--bom", "bom.json").code == 2
    assert run(["export", release.name]) == 2


def test_a_gate_signs_its_own_report_and_never_one_that_it_reuses(signing, monkeypatch):
    release = released(signing, "one")
    engine = release.content.engine

    def run_gate(*, registry, engine, gate, policy, suite, device, **_others):
        at = datetime.now(UTC)
        report = Report(
            engine=engine,
            gate=gate,
            suite_name=suite.name,
            suite=suite.digest,
            policy=policy,
            policy_digest=policy.digest,
            device=device,
            started_at=at,
            finished_at=at,
            outcome=Outcome.PASSED,
            load=LoadResult(outcome=Outcome.PASSED, reason="loaded"),
            findings=(Finding(name="score", outcome=Outcome.PASSED, reason="as the test says"),),
        )
        return report, attach(registry, report)

    monkeypatch.setattr("engine_pipeline.gates.run.run_gate", run_gate)
    judged = []
    for args in ((), (), ("--sign", "ci.key"), ("--sign", "ci.key"), ("--sign", "team.key")):
        ran = signing.run("gate", str(engine), *args, as_json=True)
        assert ran.code == 0, ran.err
        judged += ran.json["gates"]
    # Unsigned, reused, made anew for ci and reused for it, made anew for team.
    assert [gate["reused"] for gate in judged] == [False, True, False, True, False]
    assert len({gate["report"] for gate in judged}) == 3
    signatures = signing.registry.engines.referrers(engine, ENVELOPE)
    assert len(signatures) == 2


@pytest.mark.parametrize("gone", ["ci.pub", "team.pub"])
def test_a_key_that_is_missing_is_the_signatures_matter_in_a_check_as_in_a_promotion(signing, gone):
    release = released(signing, "one")
    sign_all(signing, release)
    (signing.root / gone).unlink()
    moved = signing.run("promote", release.name, "--to", "prod")
    asked = signing.run("promote", release.name, "--to", "prod", "--check")
    assert (moved.code, asked.code) == (8, 8)
    missing = f"key {gone[:-4]}: no file {gone}"
    assert f"error[key-missing]: {missing}" in moved.err
    assert f"signed: {missing}" in " ".join(asked.out.split())
