"""Envelopes and statements: what is read, what is refused, and that nothing else can happen."""

from __future__ import annotations

import base64
import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_pipeline.trust.policy import Role
from engine_pipeline.trust.statements import gate_statement, read_claim
from engine_registry.attestation import parse_statement, statement_bytes
from engine_registry.digest import Digest
from engine_registry.dsse import (
    IN_TOTO,
    MAX_CONTENT_BYTES,
    MAX_ENVELOPE_BYTES,
    Envelope,
    Signature,
    read_envelope,
    signing_input,
)
from engine_registry.errors import IntegrityError

ENGINE = Digest.of(b"engine")
GOOD = {
    "payloadType": IN_TOTO,
    "payload": "aGVsbG8=",
    "signatures": [{"keyid": "k", "sig": "/+A="}],
}


def test_the_signing_input_is_the_example_of_the_specification():
    # protocol.md of DSSE: PAE("http://example.com/HelloWorld", "hello world")
    expected = b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    assert signing_input("http://example.com/HelloWorld", b"hello world") == expected


@given(
    content=st.binary(min_size=1, max_size=200),
    signatures=st.lists(
        st.builds(
            Signature,
            key_id=st.text("abcdef0123456789", max_size=64),
            value=st.binary(min_size=1, max_size=64),
        ),
        min_size=1,
        max_size=16,
    ),
)
def test_an_envelope_reads_back_as_it_was_written(content, signatures):
    envelope = Envelope(content=content, signatures=tuple(signatures))
    assert read_envelope(envelope.to_bytes()) == envelope


def test_url_safe_base64_a_missing_key_id_and_unknown_fields_are_read():
    value = {**GOOD, "signatures": [{"sig": "_-A=", "more": 1}], "more": 1}
    (signature,) = read_envelope(json.dumps(value).encode()).signatures
    assert signature == Signature(key_id="", value=b"\xff\xe0")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"payloadType": "application/json"}, "content type 'application/json'"),
        ({"payloadType": None}, "content type 'None'"),
        ({"payload": "aGVsbG8"}, "no base64"),
        ({"payload": "aGVsbG8=\n"}, "no base64"),
        ({"payload": "aGVsbG9="}, "left-over bits"),
        ({"payload": "aGVs-+8="}, "no base64"),
        ({"payload": ""}, "no base64 text"),
        ({"payload": 7}, "no base64 text"),
        ({"payload": "A" * (MAX_CONTENT_BYTES // 3 * 4 + 8)}, "characters"),
        ({"signatures": []}, "0 signatures"),
        ({"signatures": [{"sig": "AA=="}] * 17}, "17 signatures"),
        ({"signatures": {}}, "no list of signatures"),
        ({"signatures": ["x"]}, "a signature is a JSON str"),
        ({"signatures": [{"keyid": "a"}]}, "sig is no base64 text"),
        ({"signatures": [{"keyid": "\x1b[2J", "sig": "AA=="}]}, "no plain text"),
        ({"signatures": [{"keyid": ["a"], "sig": "AA=="}]}, "no plain text"),
    ],
)
def test_an_envelope_that_is_not_exact_is_refused(change, says):
    with pytest.raises(IntegrityError, match="signature envelope") as refused:
        read_envelope(json.dumps({**GOOD, **change}).encode())
    assert says in refused.value.message


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"\xff",
        b'{"payload":"AA==","payload":"AA=="}',
        b"[" * 200_000,
        b" " * (MAX_ENVELOPE_BYTES + 1),
    ],
)
def test_bytes_that_are_no_envelope_are_refused(data):
    with pytest.raises(IntegrityError):
        read_envelope(data)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
PARTS = st.fixed_dictionaries(
    {},
    optional={
        "payloadType": JSON | st.just(IN_TOTO),
        "payload": JSON | st.binary(max_size=40).map(lambda b: base64.b64encode(b).decode()),
        "signatures": JSON
        | st.lists(
            st.fixed_dictionaries({}, optional={"keyid": JSON, "sig": JSON | st.just("AA==")}),
            max_size=3,
        ),
    },
)


@given(data=st.binary(max_size=300) | PARTS.map(lambda v: json.dumps(v).encode()))
def test_no_bytes_make_the_envelope_parser_do_anything_but_read_or_refuse(data):
    with contextlib.suppress(IntegrityError):
        envelope = read_envelope(data)
        assert read_envelope(envelope.to_bytes()) == envelope


STATEMENTS = st.fixed_dictionaries(
    {},
    optional={
        "_type": JSON | st.just("https://in-toto.io/Statement/v1"),
        "subject": JSON
        | st.lists(
            st.fixed_dictionaries(
                {"digest": JSON | st.fixed_dictionaries({"sha256": JSON | st.just(ENGINE.hex)})}
            ),
            max_size=2,
        ),
        "predicateType": JSON
        | st.sampled_from(["https://slsa.dev/provenance/v1", "urn:engine-ci:gate-report:1"]),
        "predicate": JSON | st.dictionaries(st.sampled_from(["report", "engine"]), JSON),
    },
)


@given(data=st.binary(max_size=200) | STATEMENTS.map(lambda v: json.dumps(v).encode()))
def test_no_bytes_make_the_statement_parser_do_anything_but_read_or_refuse(data):
    with contextlib.suppress(IntegrityError):
        claim = read_claim(data)
        assert claim is None or claim.role in Role


def test_a_statement_says_what_it_is_about_and_survives_reading():
    report = Digest.of(b"report")
    claim = read_claim(gate_statement(ENGINE, report, {"gate": "core"}))
    assert claim is not None
    assert (claim.role, claim.about, claim.engine) == (Role.GATE, report, ENGINE)


def test_a_kind_of_statement_that_means_nothing_here_makes_no_claim():
    assert read_claim(statement_bytes("x", ENGINE, "https://example.org/x", {})) is None


def test_a_statement_about_two_things_is_refused():
    value = json.loads(statement_bytes("x", ENGINE, "https://example.org/x", {}))
    value["subject"] *= 2
    with pytest.raises(IntegrityError):
        parse_statement(json.dumps(value).encode())
