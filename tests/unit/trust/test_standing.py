"""What a signature is worth: every way in which it can count and in which it cannot."""

from __future__ import annotations

import base64
import dataclasses
import json
from datetime import UTC, datetime

import pytest

from engine_pipeline.trust.policy import Role
from engine_pipeline.trust.rules import good_signatures, signed_findings
from engine_pipeline.trust.signatures import (
    ENVELOPE_FILE,
    is_signed_with,
    read_signatures,
    sealed,
    sign_builds,
    sign_release,
    sign_report,
    sign_reports,
)
from engine_pipeline.trust.standing import NOT_LOOKED_FOR, Standing, judge_envelope
from engine_registry.dsse import ENVELOPE, Envelope, read_envelope
from engine_registry.errors import ExitCode, IntegrityError, NotFound
from engine_registry.testing.samples import sample_engine, sample_release, sample_report
from tests.unit.trust.conftest import known

REVOKED_AT = datetime(2026, 11, 30, tzinfo=UTC)


def envelope_bytes(registry, engine) -> bytes:
    (link,) = registry.engines.referrers(engine, ENVELOPE)
    return registry.engines.read_attachment(link.manifest)[ENVELOPE_FILE]


def put_envelope(registry, engine, data: bytes):
    return registry.engines.attach(engine, ENVELOPE, [(ENVELOPE_FILE, data, ENVELOPE)])


def standings(registry, engine, *keys) -> list[Standing]:
    return [seen.standing for seen in read_signatures(registry, engine, keys).seen]


def build_finding(registry, release, *keys):
    signatures = read_signatures(registry, release.content.engine, keys)
    (finding,) = signed_findings((Role.BUILD,), release, {}, signatures)
    return finding


@pytest.fixture
def signed(registry, make_engine, make_key):
    """An engine whose build is signed, its release and the key."""
    engine, key = make_engine("one"), make_key()
    sign_builds(registry, engine.digest, key)
    return engine.digest, sample_release(registry, engine), key


def test_a_signature_by_a_trusted_key_counts(registry, signed):
    _, release, key = signed
    finding = build_finding(registry, release, known(key))
    assert finding.holds
    assert "signed by ci; may be signed by ci" in finding.says


def test_signing_again_with_the_same_key_attaches_nothing_new(registry, signed):
    engine, _, key = signed
    sign_builds(registry, engine, key)
    assert len(registry.engines.referrers(engine, ENVELOPE)) == 1


def tampered(data: bytes, part: str) -> bytes:
    """The envelope with one part changed as somebody would who can write to the registry."""
    value = json.loads(data)
    signature = value["signatures"][0]
    match part:
        case "payload":
            content = base64.b64decode(value["payload"]).replace(b"run-1", b"run-2")
            value["payload"] = base64.b64encode(content).decode()
        case "payload of no statement":
            value["payload"] = base64.b64encode(b"{}").decode()
        case "signature":
            raw = bytearray(base64.b64decode(signature["sig"]))
            raw[7] ^= 1
            signature["sig"] = base64.b64encode(raw).decode()
        case "short signature":
            signature["sig"] = "AA=="
        case "payload type":
            value["payloadType"] = "application/json"
        case "predicate type":
            content = base64.b64decode(value["payload"])
            content = content.replace(b"https://slsa.dev/provenance/v1", b"urn:engine-ci:release:1")
            value["payload"] = base64.b64encode(content).decode()
        case "key id":
            signature["keyid"] = "0" * 64
    return json.dumps(value).encode()


@pytest.mark.parametrize(
    ("part", "standing", "code"),
    [
        ("payload", Standing.BAD, ExitCode.INTEGRITY),
        ("payload of no statement", Standing.BAD, ExitCode.INTEGRITY),
        ("signature", Standing.BAD, ExitCode.INTEGRITY),
        ("short signature", Standing.BAD, ExitCode.INTEGRITY),
        ("payload type", Standing.BAD, ExitCode.INTEGRITY),
        ("predicate type", Standing.BAD, ExitCode.INTEGRITY),
        ("key id", Standing.UNTRUSTED, ExitCode.POLICY),
    ],
)
def test_an_envelope_changed_in_any_part_does_not_count(
    registry, make_engine, signed, part, standing, code
):
    engine, _, key = signed
    other = make_engine("two")
    data = tampered(envelope_bytes(registry, engine), part)
    # The same bytes, so that only what was changed can be what is wrong.
    (seen,) = judge_envelope(data, other.digest, engine, (known(key),))
    assert seen.standing is standing
    put_envelope(registry, other.digest, data)
    finding = build_finding(registry, sample_release(registry, other), known(key))
    assert not finding.holds
    assert finding.exit_code is code


def test_every_flipped_bit_of_an_envelope_is_found(registry, signed):
    engine, _, key = signed
    data = envelope_bytes(registry, engine)
    whole = read_envelope(data)
    for place in range(len(data)):
        flipped = bytearray(data)
        flipped[place] ^= 1
        judged = judge_envelope(bytes(flipped), engine, engine, (known(key),))
        good = any(seen.standing is Standing.GOOD for seen in judged)
        if good:  # the name of the key id may be spoilt: it is a hint, and all keys are tried
            read = read_envelope(bytes(flipped))
            assert (read.content, read.signatures[0].value) == (
                whole.content,
                whole.signatures[0].value,
            )
            assert read.signatures[0].key_id == ""


def test_a_signature_of_another_engine_attached_here_does_not_count(registry, make_engine, signed):
    engine, _, key = signed
    other = make_engine("two")
    put_envelope(registry, other.digest, envelope_bytes(registry, engine))
    finding = build_finding(registry, sample_release(registry, other), known(key))
    assert not finding.holds
    assert finding.exit_code is ExitCode.INTEGRITY
    assert f"is about engine {engine.short}, attached to {other.digest.short}" in finding.says


def test_an_unknown_key_is_named_and_does_not_count(registry, signed, make_key):
    _, release, key = signed
    finding = build_finding(registry, release, known(make_key(), "release-team"))
    assert not finding.holds
    assert finding.exit_code is ExitCode.POLICY
    assert key.public.key_id[:12] in finding.says
    assert "may be signed by release-team" in finding.says


def test_a_key_counts_only_for_what_it_may_sign(registry, signed):
    _, release, key = signed
    finding = build_finding(registry, release, known(key, "lab", may_sign=(Role.GATE,)))
    assert not finding.holds
    assert "signed by lab, whose key may sign gate only; may be signed by nobody" in finding.says


def test_nothing_by_a_revoked_key_counts_except_what_is_listed(registry, signed):
    engine, release, key = signed
    revoked = build_finding(registry, release, known(key, revoked_at=REVOKED_AT))
    assert not revoked.holds
    assert "revoked since 2026-11-30" in revoked.says
    (link,) = registry.engines.referrers(engine, ENVELOPE)
    assert str(link.manifest) in revoked.hint
    listed = known(key, revoked_at=REVOKED_AT, still_good=(link.manifest,))
    good = build_finding(registry, release, listed)
    assert good.holds
    assert "nobody" not in good.says


def test_one_good_signature_among_others_is_enough(registry, signed, make_key):
    engine, release, key = signed
    sign_builds(registry, engine, make_key())
    put_envelope(registry, engine, tampered(envelope_bytes_of(registry, engine, key), "signature"))
    found = standings(registry, engine, known(key))
    assert sorted(found) == sorted([Standing.GOOD, Standing.UNTRUSTED, Standing.BAD])
    assert build_finding(registry, release, known(key)).holds


def envelope_bytes_of(registry, engine, key) -> bytes:
    for link in registry.engines.referrers(engine, ENVELOPE):
        data = registry.engines.read_attachment(link.manifest)[ENVELOPE_FILE]
        if read_envelope(data).signatures[0].key_id == key.public.key_id:
            return data
    raise AssertionError


def test_two_signatures_in_one_envelope_are_judged_each(registry, signed, make_key):
    engine, release, key = signed
    other = make_key()
    envelope = read_envelope(envelope_bytes(registry, engine))
    second = read_envelope(sealed(envelope.content, Role.BUILD, other).files[0][1]).signatures[0]
    both = Envelope(content=envelope.content, signatures=(*envelope.signatures, second))
    judged = judge_envelope(both.to_bytes(), engine, engine, (known(other),))
    assert [seen.standing for seen in judged] == [Standing.UNTRUSTED, Standing.GOOD]
    judged = judge_envelope(both.to_bytes(), engine, engine, (known(key), known(other, "b")))
    assert [(seen.standing, seen.signer) for seen in judged] == [
        (Standing.GOOD, "ci"),
        (Standing.GOOD, "b"),
    ]
    # One signature never stands in for another: key ids swapped, neither verifies.
    crossed = (
        dataclasses.replace(envelope.signatures[0], key_id=other.public.key_id),
        dataclasses.replace(second, key_id=key.public.key_id),
    )
    swapped = Envelope(content=envelope.content, signatures=crossed)
    judged = judge_envelope(swapped.to_bytes(), engine, engine, (known(key), known(other, "b")))
    assert [seen.standing for seen in judged] == [Standing.BAD, Standing.BAD]
    assert build_finding(registry, release, known(key)).holds


def test_a_signature_without_a_key_id_is_tried_with_every_key(registry, signed, make_key):
    engine, _, key = signed
    envelope = read_envelope(envelope_bytes(registry, engine))
    nameless = dataclasses.replace(envelope.signatures[0], key_id="")
    data = dataclasses.replace(envelope, signatures=(nameless,)).to_bytes()
    keys = (known(make_key(), "a"), known(key, "b"))
    (seen,) = judge_envelope(data, engine, engine, keys)
    assert (seen.standing, seen.signer) == (Standing.GOOD, "b")
    (seen,) = judge_envelope(data, engine, engine, keys[:1])
    assert seen.standing is Standing.UNTRUSTED


def test_a_report_is_signed_one_by_one_and_the_one_that_decides_must_be(registry, signed):
    engine, release, key = signed
    older = sample_report(registry, engine, "passed")
    sign_report(registry, engine, older, key)
    newer = sample_report(registry, engine, "failed")
    signatures = read_signatures(registry, engine, (known(key),))
    (replayed,) = signed_findings((Role.GATE,), release, {"core": (newer,)}, signatures)
    assert not replayed.holds
    assert f"report {newer.short} of gate core: not signed" in replayed.says
    (good,) = signed_findings((Role.GATE,), release, {"core": (older,)}, signatures)
    assert good.holds
    sign_reports(registry, engine, key)
    signatures = read_signatures(registry, engine, (known(key),))
    assert all(f.holds for f in signed_findings((Role.GATE,), release, {"a": (newer,)}, signatures))


def test_a_release_signature_counts_for_that_release_alone(registry, signed, make_engine):
    engine, release, key = signed
    sign_release(registry, release, key)
    signatures = read_signatures(registry, engine, (known(key),))
    (good,) = signed_findings((Role.RELEASE,), release, {}, signatures)
    assert good.holds
    relabelled = release.model_copy(update={"number": 99})
    (other,) = signed_findings((Role.RELEASE,), relabelled, {}, signatures)
    assert not other.holds
    assert good_signatures((Role.RELEASE,), release, (), signatures) == tuple(
        seen.envelope for seen in signatures.seen if seen.claim.role is Role.RELEASE
    )


def test_nothing_looked_for_is_nothing_found(registry, signed):
    _, release, _ = signed
    findings = signed_findings(tuple(Role), release, {"core": (release.digest,)}, NOT_LOOKED_FOR)
    assert [finding.holds for finding in findings] == [False] * 3


def test_what_is_reused_must_have_been_signed_by_this_very_key(registry, signed, make_key):
    engine, _, key = signed
    assert is_signed_with(registry, engine, Role.BUILD, engine, key.public)
    assert not is_signed_with(registry, engine, Role.GATE, engine, key.public)
    assert not is_signed_with(registry, engine, Role.BUILD, engine, make_key().public)


def test_what_is_no_provenance_is_not_signed(registry, make_key):
    engine = sample_engine(registry)
    with pytest.raises(IntegrityError, match="no in-toto statement"):
        sign_builds(registry, engine.digest, make_key())
    assert not registry.engines.referrers(engine.digest, ENVELOPE)


def test_a_report_that_is_not_attached_is_not_signed(registry, signed):
    engine, _, key = signed
    with pytest.raises(NotFound, match="has no report"):
        sign_report(registry, engine, engine, key)


def test_an_attestation_of_a_foreign_kind_is_passed_over(registry, signed):
    engine, _, key = signed
    from engine_registry.attestation import statement_bytes

    foreign = sealed(statement_bytes("x", engine, "https://spdx.dev/Document", {}), Role.BUILD, key)
    assert judge_envelope(foreign.files[0][1], engine, engine, (known(key),)) == ()
