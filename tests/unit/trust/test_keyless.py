"""Keyless signatures judged: by sigstore's own verifier, against an instance that runs here."""

from __future__ import annotations

import base64
import copy
import dataclasses
import json
import random
from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from engine_pipeline.trust.bundle import BUNDLE, bundle_attachment, read_bundle_envelope
from engine_pipeline.trust.keyless import Instance as SigstoreInstance
from engine_pipeline.trust.policy import Role, TrustedIdentity
from engine_pipeline.trust.rules import signed_findings
from engine_pipeline.trust.signatures import read_signatures
from engine_pipeline.trust.standing import Certified, KnownIdentity, Seen, Standing, judge_bundle
from engine_registry.attestation import provenance_statement, statement_bytes
from engine_registry.digest import Digest
from engine_registry.errors import (
    ExitCode,
    Incompatible,
    IntegrityError,
    InvalidInput,
    Unavailable,
)
from engine_registry.testing.samples import sample_release
from tests.servers.sigstore import IDENTITY, WORKFLOW, Instance
from tests.servers.sigstore_ca import GITHUB, LIFETIME
from tests.unit.trust.conftest import BUILD, identified

ENGINE = Digest.of(b"an engine")
OTHER = Digest.of(b"another engine")
ATTACHED = Digest.of(b"a manifest")
STATEMENT = provenance_statement(ENGINE, "tiny/cpu", BUILD)
# Every certificate from then has run out long ago.
THEN = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.fixture(scope="module")
def bundle(sigstore: Instance) -> dict:
    """The statement as the workflow on `main` signed it."""
    return sigstore.bundle(STATEMENT, THEN)


def judged(bundle: dict | bytes, *identities: KnownIdentity, engine: Digest = ENGINE) -> Seen:
    data = bundle if isinstance(bundle, bytes) else json.dumps(bundle).encode()
    (seen,) = judge_bundle(data, ATTACHED, engine, identities)
    return seen


def test_a_signature_that_was_logged_in_time_counts_long_after_its_certificate_ran_out(
    sigstore, bundle
):
    seen = judged(bundle, identified(sigstore))
    assert (seen.standing, seen.signer, seen.says) == (Standing.GOOD, "ci", "signed by ci")
    assert seen.claim is not None
    assert (seen.claim.role, seen.claim.about) == (Role.BUILD, ENGINE)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"identity": IDENTITY.replace("main", "feature")},
            f"certificate for {IDENTITY} by {GITHUB}: channels.yaml names no such identity",
        ),
        (
            {"identity": IDENTITY.replace("org/engines", "org/engines2")},
            "channels.yaml names no such identity",
        ),
        (
            {"issuer": "https://idp.example"},
            f"by {GITHUB}: ci has issuer https://idp.example",
        ),
    ],
)
def test_another_identity_or_issuer_is_named_and_does_not_count(sigstore, bundle, fields, says):
    seen = judged(bundle, identified(sigstore, **fields))
    assert seen.standing is Standing.UNTRUSTED
    assert says in seen.says


def test_an_issuer_that_names_the_same_person_is_still_another_issuer(sigstore):
    mail = {"email": "octo@org.example"}
    wanted = {"identity": "octo@org.example", "issuer": "https://accounts.example"}
    forged = sigstore.bundle(STATEMENT, THEN, iss="https://idp.example", **mail)
    good = sigstore.bundle(STATEMENT, THEN, iss="https://accounts.example", **mail)
    assert judged(forged, identified(sigstore, **wanted)).standing is Standing.UNTRUSTED
    assert judged(good, identified(sigstore, **wanted)).standing is Standing.GOOD


def test_the_library_holds_the_certificate_to_the_identity_and_issuer_as_well(sigstore, bundle):
    known = identified(sigstore)
    data = json.dumps(bundle).encode()
    signer = known.verifier.certified(data)
    assert known.verifier.verified(data, signer) == STATEMENT
    for wrong in ({"identity": "somebody"}, {"issuer": "https://idp.example"}):
        with pytest.raises(IntegrityError, match="0 of 2 policies|do not match somebody"):
            known.verifier.verified(data, dataclasses.replace(signer, **wrong))


def test_without_identities_in_channels_yaml_nothing_is_loaded_to_say_so(bundle, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sigstore.models", None)
    seen = judged(bundle)
    assert seen.standing is Standing.UNTRUSTED
    assert "channels.yaml names no identity" in seen.says


def replaced(bundle: dict, *path: str | int, by) -> dict:
    """The bundle with one value changed; `by` is a function of the old one."""
    changed = copy.deepcopy(bundle)
    place = changed
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = by(place[path[-1]])
    return changed


def flipped(text: str) -> str:
    """Base64 of the same bytes with one bit changed in the middle."""
    raw = bytearray(base64.b64decode(text))
    raw[len(raw) // 2] ^= 1
    return base64.b64encode(raw).decode()


def otherwise_signed(certificate: str) -> str:
    """Base64 of the same certificate with the last bit of its signature changed."""
    raw = bytearray(base64.b64decode(certificate))
    raw[-1] ^= 1
    return base64.b64encode(raw).decode()


LOG = ("verificationMaterial", "tlogEntries", 0)
PROOF = (*LOG, "inclusionProof")
PAYLOAD = ("dsseEnvelope", "payload")


def rewritten(payload: str) -> str:
    """Another build of the same engine."""
    return base64.b64encode(base64.b64decode(payload).replace(b"run-1", b"run-2")).decode()


@pytest.mark.parametrize(
    ("path", "by"),
    [
        (PAYLOAD, rewritten),
        (("dsseEnvelope", "payloadType"), lambda _: "application/json"),
        (("dsseEnvelope", "signatures", 0, "sig"), flipped),
        (("dsseEnvelope", "signatures"), lambda old: old * 2),
        (("dsseEnvelope", "signatures"), lambda _: []),
        (("verificationMaterial", "certificate", "rawBytes"), otherwise_signed),
        (("verificationMaterial", "tlogEntries"), lambda _: []),
        (("verificationMaterial", "tlogEntries"), lambda old: old * 2),
        ((*LOG, "integratedTime"), lambda old: str(int(old) + 1)),
        ((*LOG, "integratedTime"), lambda old: str(int(old) + 86_400)),
        ((*LOG, "inclusionPromise"), lambda _: None),
        ((*LOG, "inclusionPromise", "signedEntryTimestamp"), flipped),
        ((*LOG, "canonicalizedBody"), flipped),
        ((*LOG, "logId", "keyId"), flipped),
        ((*LOG, "inclusionProof"), lambda _: None),
        ((*PROOF, "rootHash"), flipped),
        ((*PROOF, "hashes", 0), flipped),
        ((*PROOF, "hashes"), lambda old: old[:-1]),
        ((*PROOF, "logIndex"), lambda old: str(int(old) - 1)),
        ((*PROOF, "treeSize"), lambda old: str(int(old) * 2)),
        ((*PROOF, "checkpoint", "envelope"), lambda old: old.replace("standin", "stendin", 1)),
        ((*PROOF, "checkpoint", "envelope"), lambda old: old.partition("\N{EM DASH}")[0]),
        (("mediaType",), lambda _: "application/json"),
        (("dsseEnvelope",), lambda _: None),
        (("verificationMaterial",), lambda _: {}),
    ],
)
def test_a_bundle_changed_in_any_part_is_bad(sigstore, bundle, path, by):
    seen = judged(replaced(bundle, *path, by=by), identified(sigstore))
    assert seen.standing is Standing.BAD, seen.says


@pytest.mark.parametrize("twice", ["other spelling", "first", "last"])
def test_a_bundle_with_two_envelopes_never_says_what_was_not_signed(sigstore, bundle, twice):
    forged = replaced(bundle, *PAYLOAD, by=rewritten)["dsseEnvelope"]
    rest = {key: value for key, value in bundle.items() if key != "dsseEnvelope"}
    good = bundle["dsseEnvelope"]
    names = ["dsseEnvelope", "dsse_envelope" if twice == "other spelling" else "dsseEnvelope"]
    pair = (good, forged) if twice == "last" else (forged, good)
    both = ",".join(f'"{name}":{json.dumps(one)}' for name, one in zip(names, pair, strict=True))
    data = f"{json.dumps(rest)[:-1]},{both}}}".encode()
    seen = judged(data, identified(sigstore))
    envelope = read_bundle_envelope(data)
    assert envelope is not None
    assert seen.standing is (Standing.GOOD if envelope.content == STATEMENT else Standing.BAD)


def test_what_was_judged_is_what_was_verified_or_it_does_not_count(sigstore, bundle):
    known = identified(sigstore)

    class OtherParser:
        """Reads another statement out of the same bytes than we do."""

        certified = staticmethod(known.verifier.certified)

        def verified(self, bundle: bytes, signer: Certified) -> bytes:
            return known.verifier.verified(bundle, signer).replace(b"run-1", b"run-2")

    seen = judged(bundle, KnownIdentity(entry=known.entry, verifier=OtherParser()))
    assert seen.standing is Standing.BAD
    assert "holds two statements" in seen.says


def test_no_flipped_bit_of_a_bundle_makes_it_say_anything_else(sigstore, bundle):
    data = json.dumps(bundle).encode()
    known = identified(sigstore)
    places = random.Random(7).sample(range(len(data)), 150)
    for place in places:
        changed = bytearray(data)
        changed[place] ^= 1 << place % 8
        for seen in judge_bundle(bytes(changed), ATTACHED, ENGINE, (known,)):
            if seen.standing is Standing.GOOD:  # a field that nothing rests on, e.g. the log's hint
                envelope = read_bundle_envelope(bytes(changed))
                assert envelope is not None
                assert envelope.content == STATEMENT


def test_a_signature_that_no_log_holds_does_not_count(sigstore, bundle):
    logged = sigstore.bundle(statement_bytes("x", ENGINE, "urn:other", {}), THEN)
    # Signed and certified in order, with somebody else's entry in place of its own.
    unlogged = replaced(bundle, *LOG, by=lambda _: logged["verificationMaterial"]["tlogEntries"][0])
    seen = judged(unlogged, identified(sigstore))
    assert seen.standing is Standing.BAD
    assert "does not match" in seen.says or "do not match" in seen.says


def test_a_signature_logged_after_its_certificate_ran_out_does_not_count(sigstore, bundle):
    body = base64.b64decode(bundle["verificationMaterial"]["tlogEntries"][0]["canonicalizedBody"])
    late = sigstore.entry(sigstore.log.append(body, THEN + LIFETIME + timedelta(seconds=1)))
    seen = judged(replaced(bundle, *LOG, by=lambda _: late), identified(sigstore))
    assert seen.standing is Standing.BAD
    in_time = sigstore.entry(sigstore.log.append(body, THEN + LIFETIME))
    seen = judged(replaced(bundle, *LOG, by=lambda _: in_time), identified(sigstore))
    assert seen.standing is Standing.GOOD, seen.says


def test_a_certificate_that_no_certificate_log_saw_does_not_count(sigstore):
    sigstore.authority.stamps = False
    try:
        unseen = sigstore.bundle(STATEMENT, THEN)
    finally:
        sigstore.authority.stamps = True
    seen = judged(unseen, identified(sigstore))
    assert seen.standing is Standing.BAD
    assert "SCT" in seen.says


@pytest.mark.parametrize("part", ["authority", "log", "ct"])
def test_whom_another_instance_vouches_for_does_not_count(sigstore, bundle, part):
    assert judged(bundle, identified(Instance())).standing is Standing.BAD
    # Everything but one service is the trusted instance's own.
    impostor = Instance()
    if part != "authority":
        for name in ("root_key", "key", "root", "intermediate"):
            setattr(impostor.authority, name, getattr(sigstore.authority, name))
    if part != "ct":
        impostor.authority.ct_key = sigstore.authority.ct_key
    if part != "log":
        impostor.log.key = sigstore.log.key
    forged = impostor.bundle(STATEMENT, THEN)
    assert judged(forged, identified(impostor)).standing is Standing.GOOD
    assert judged(forged, identified(sigstore)).standing is Standing.BAD


def test_during_a_change_of_instances_either_root_of_trust_will_do(sigstore, bundle):
    old, new = identified(sigstore, "old"), identified(Instance(), "new")
    assert judged(bundle, new, old).signer == "old"
    assert judged(bundle, new).standing is Standing.BAD


def test_a_bundle_of_another_engine_attached_here_does_not_count(sigstore, bundle):
    seen = judged(bundle, identified(sigstore), engine=OTHER)
    assert seen.standing is Standing.BAD
    assert f"is about engine {ENGINE.short}, attached to {OTHER.short}" in seen.says


def test_an_identity_counts_only_for_what_it_may_sign(sigstore, bundle):
    seen = judged(bundle, identified(sigstore, may_sign=(Role.GATE,)))
    assert seen.standing is Standing.WITHOUT_ROLE
    assert seen.says == "signed by ci, whose identity may sign gate only"


@pytest.mark.parametrize(
    ("revoked_at", "standing"),
    [
        (THEN - timedelta(days=1), Standing.REVOKED),
        (THEN, Standing.REVOKED),
        # Its certificate was still valid, so it may have been made a moment later.
        (THEN + LIFETIME - timedelta(seconds=1), Standing.REVOKED),
        (THEN + LIFETIME, Standing.GOOD),
    ],
)
def test_a_revoked_identity_keeps_what_it_signed_before(sigstore, bundle, revoked_at, standing):
    seen = judged(bundle, identified(sigstore, revoked_at=revoked_at))
    assert seen.standing is standing
    if standing is Standing.REVOKED:
        assert "whose identity is revoked since" in seen.says
        assert "under a certificate valid until 2026-06-01 12:10Z" in seen.says
        listed = identified(sigstore, revoked_at=revoked_at, still_good=(ATTACHED,))
        assert judged(bundle, listed).standing is Standing.GOOD


def test_what_other_tools_attach_is_passed_over(sigstore):
    known = (identified(sigstore),)
    foreign = sigstore.bundle(statement_bytes("x", ENGINE, "https://spdx.dev/Document", {}), THEN)
    assert judge_bundle(json.dumps(foreign).encode(), ATTACHED, ENGINE, known) == ()
    signature = {"mediaType": BUNDLE, "messageSignature": {"signature": "AA=="}}
    assert judge_bundle(json.dumps(signature).encode(), ATTACHED, ENGINE, known) == ()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b'{"mediaType": 1}',
        json.dumps({"mediaType": BUNDLE}).encode(),
        json.dumps({"mediaType": BUNDLE, "dsseEnvelope": [], "messageSignature": 1}).encode(),
    ],
)
def test_what_is_no_bundle_is_bad_and_nothing_worse(sigstore, data):
    assert judged(data, identified(sigstore)).standing is Standing.BAD


def test_a_bundle_is_attached_as_cosign_attaches_one(registry, make_engine, sigstore):
    engine = make_engine("one")
    statement = provenance_statement(engine.digest, "tiny/cpu", BUILD)
    data = json.dumps(sigstore.bundle(statement, THEN)).encode()
    attachment = bundle_attachment(data, statement, THEN)
    attached = registry.engines.attach(
        engine.digest, attachment.artifact_type, attachment.files, attachment.annotations
    )
    manifest = json.loads(registry.engines.read_blob(attached))
    assert manifest["artifactType"] == "application/vnd.dev.sigstore.bundle.v0.3+json"
    assert manifest["subject"]["digest"] == str(engine.digest)
    assert manifest["config"]["mediaType"] == "application/vnd.oci.empty.v1+json"
    (layer,) = manifest["layers"]
    assert layer["mediaType"] == manifest["artifactType"]
    title = f"sha256-{Digest.of(data).hex}.sigstore.json"
    assert layer["annotations"]["org.opencontainers.image.title"] == title
    assert manifest["annotations"] == {
        "dev.sigstore.bundle.content": "dsse-envelope",
        "dev.sigstore.bundle.predicateType": "https://slsa.dev/provenance/v1",
        "org.opencontainers.image.created": "2026-06-01T12:00:00Z",
    }
    release = sample_release(registry, engine)
    signatures = read_signatures(registry, engine.digest, (identified(sigstore),))
    (finding,) = signed_findings((Role.BUILD,), release, {}, signatures)
    assert finding.holds
    assert "signed by ci; may be signed by ci" in finding.says


def test_a_refusal_names_both_sides_and_a_forgery_is_exit_11(registry, make_engine, sigstore):
    engine = make_engine("one")
    statement = provenance_statement(engine.digest, "tiny/cpu", BUILD)
    data = json.dumps(Instance().bundle(statement, THEN)).encode()
    attachment = bundle_attachment(data, statement, THEN)
    registry.engines.attach(engine.digest, attachment.artifact_type, attachment.files)
    release = sample_release(registry, engine)
    signatures = read_signatures(registry, engine.digest, (identified(sigstore),))
    (finding,) = signed_findings((Role.BUILD,), release, {}, signatures)
    assert finding.exit_code is ExitCode.INTEGRITY
    assert "the keyless signature by ci does not verify" in finding.says
    assert "may be signed by ci" in finding.says


def test_a_trust_config_that_is_none_is_said_to_be_none(bundle):
    broken = SigstoreInstance('{"mediaType": "x"}', "the instance of x.json")
    with pytest.raises(InvalidInput, match="x.json: no client trust config"):
        broken.verified(b"", broken.certified(json.dumps(bundle).encode()))


def test_the_public_instance_is_verified_against_without_a_network(bundle, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("asked the network"))
    public = SigstoreInstance(None, "the public instance")
    root = public.trust(refreshed=False).trusted_root
    assert root.get_fulcio_certs()
    with pytest.raises(IntegrityError, match="under the public instance"):
        public.verified(json.dumps(bundle).encode(), public.certified(json.dumps(bundle).encode()))


def test_a_machine_without_any_root_of_trust_says_how_to_get_one(bundle, monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("no directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    public = SigstoreInstance(None, "the public instance")
    with pytest.raises(Unavailable) as error:
        public.verified(b"", public.certified(json.dumps(bundle).encode()))
    assert error.value.name == "trust-root-missing"
    assert error.value.exit_code == 9
    assert "sigstore plumbing update-trust-root" in error.value.hint


def test_without_the_package_it_is_said_what_to_install(sigstore, bundle, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sigstore.verify", None)
    with pytest.raises(Incompatible) as error:
        judged(bundle, identified(sigstore))
    assert error.value.hint == "pip install 'engine-ci[sigstore]'"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"identity": IDENTITY.replace("main", "*")}, "compared exactly"),
        ({"identity": IDENTITY.partition("@")[0]}, "named with its ref"),
        ({"issuer": "github"}, "issuer"),
        ({"issuer": None}, "issuer"),
        ({"public_key": "x"}, "public_key"),
        ({"still_good": (ATTACHED,)}, "still_good is for a signer with revoked_at"),
    ],
)
def test_an_entry_that_nobody_could_meet_is_refused(fields, says):
    entry = {"name": "ci", "may_sign": ["build"], "identity": IDENTITY, "issuer": GITHUB}
    assert TrustedIdentity.model_validate(entry).identity.endswith(WORKFLOW)
    with pytest.raises(ValidationError, match=says):
        TrustedIdentity.model_validate(entry | fields)


def test_a_certificate_for_a_name_that_a_terminal_would_obey_is_nobodys(sigstore):
    shown = sigstore.bundle(STATEMENT, THEN, job_workflow_ref="org/x\x1b[2J@main")
    seen = judged(shown, identified(sigstore))
    assert seen.standing is Standing.BAD
    assert seen.says.isprintable()


def test_a_certificate_for_two_identities_is_nobodys(sigstore, bundle, monkeypatch):
    from cryptography import x509

    from tests.servers import sigstore_ca

    both = [x509.UniformResourceIdentifier(IDENTITY), x509.RFC822Name("octo@org.example")]
    names = x509.SubjectAlternativeName
    monkeypatch.setattr(
        sigstore_ca.x509, "SubjectAlternativeName", lambda _: names(both), raising=True
    )
    ambiguous = sigstore.bundle(STATEMENT, THEN)
    monkeypatch.undo()
    seen = judged(ambiguous, identified(sigstore))
    assert seen.standing is Standing.BAD
    assert "names 2 identities" in seen.says
