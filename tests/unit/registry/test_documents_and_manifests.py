"""The pure parts: envelopes, manifests, names."""

import json
from datetime import UTC, datetime

import pytest

from engine_registry.digest import Digest
from engine_registry.documents import (
    BODY_OFFSET,
    canonical_json,
    seal,
    unseal,
    unseal_body,
)
from engine_registry.errors import IntegrityError, InvalidInput
from engine_registry.manifest import (
    EMPTY_DESCRIPTOR,
    MANIFEST,
    Descriptor,
    check_titles,
    engine_manifest,
    file_layer,
    read_manifest,
    referrer_manifest,
)
from engine_registry.record import KeyLink, RegistryInfo

LINK = KeyLink(build_key=Digest.of(b"k"), engine=Digest.of(b"e"))


def test_an_envelope_is_one_line_of_json_with_the_digest_of_its_own_body() -> None:
    data = seal(LINK)
    assert data.count(b"\n") == 1
    parsed = json.loads(data)
    body = data[BODY_OFFSET:-2]
    assert json.loads(body) == parsed["document"]
    assert parsed["digest"] == str(Digest.of(body)) == str(LINK.digest)
    assert unseal(data, KeyLink, "x") == (LINK, LINK.digest)


def test_a_document_of_another_kind_or_with_unknown_fields_is_refused() -> None:
    with pytest.raises(IntegrityError, match="not a RegistryInfo") as caught:
        unseal(seal(LINK), RegistryInfo, "registry.json")
    assert caught.value.name == "document-not-readable"

    class Later(KeyLink):
        added: int = 1

    later = Later(build_key=LINK.build_key, engine=LINK.engine)
    with pytest.raises(IntegrityError, match="added"):
        unseal(seal(later), KeyLink, "x")


@pytest.mark.parametrize("cut", [0, 1, 50, 90, 96, -1])
def test_a_truncated_envelope_is_refused(cut: int) -> None:
    with pytest.raises(IntegrityError) as caught:
        unseal_body(seal(LINK)[:cut], "x")
    assert caught.value.name == "document-damaged"


def test_a_doubled_or_padded_envelope_is_refused() -> None:
    for data in (seal(LINK) * 2, seal(LINK) + b"\n", b" " + seal(LINK)):
        with pytest.raises(IntegrityError):
            unseal_body(data, "x")


def test_canonical_json_sorts_keys_and_keeps_text_as_it_is() -> None:
    assert canonical_json({"b": 1, "a": "ü\n", "Z": None}) == '{"Z":null,"a":"ü\\n","b":1}'.encode()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_canonical_json_refuses_what_json_cannot_say(number: float) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        canonical_json({"x": number})


def test_the_digest_of_a_document_survives_reading_it_back() -> None:
    info = RegistryInfo(created_at=datetime(2026, 3, 1, 12, 0, 0, 123456, tzinfo=UTC))
    again, digest = unseal(seal(info), RegistryInfo, "registry.json")
    assert again.digest == digest == info.digest


def _manifest(*titles: str) -> bytes:
    layers = [file_layer(title, Digest.of(title.encode()), 1) for title in titles]
    return engine_manifest(EMPTY_DESCRIPTOR, layers).to_bytes()


def test_a_manifest_does_not_depend_on_the_order_of_its_files() -> None:
    assert _manifest("a", "b/c") == _manifest("b/c", "a")


def test_a_manifest_reads_back_with_its_oci_names() -> None:
    data = _manifest("a")
    parsed = json.loads(data)
    assert parsed["schemaVersion"] == 2
    assert parsed["mediaType"] == MANIFEST
    assert "artifactType" in parsed
    assert "subject" not in parsed
    manifest = read_manifest(data, Digest.of(data))
    assert manifest.to_bytes() == data
    assert [layer.title for layer in manifest.layers] == ["a"]


def test_a_manifest_is_refused_under_another_digest() -> None:
    with pytest.raises(IntegrityError) as caught:
        read_manifest(_manifest("a"), Digest.of(b"other"))
    assert caught.value.name == "manifest-damaged"


@pytest.mark.parametrize("title", ["../x", "/x", "a/../../x", "a//b", "./a", "a\\b", "a\x00b", ""])
def test_a_hostile_manifest_is_refused_by_name(title: str) -> None:
    layer = Descriptor(
        media_type="application/x",
        digest=Digest.of(b""),
        size=0,
        annotations={"org.opencontainers.image.title": title},
    )
    data = referrer_manifest(EMPTY_DESCRIPTOR, "application/x", [layer], {}).to_bytes()
    with pytest.raises(IntegrityError) as caught:
        read_manifest(data, Digest.of(data))
    assert caught.value.name == "manifest-not-readable"


@pytest.mark.parametrize("titles", [("a", "a"), ("a", "a/b"), ("a/b", "a/b/c/d")])
def test_a_manifest_whose_files_cannot_lie_side_by_side_is_refused(titles: tuple[str, ...]) -> None:
    layers = [file_layer(title, Digest.of(b""), 0) for title in titles]
    data = referrer_manifest(EMPTY_DESCRIPTOR, "application/x", layers, {}).to_bytes()
    with pytest.raises(IntegrityError):
        read_manifest(data, Digest.of(data))
    with pytest.raises(InvalidInput) as caught:
        engine_manifest(EMPTY_DESCRIPTOR, layers)
    assert caught.value.name == "duplicate-file-name"


def test_files_with_a_common_prefix_are_fine() -> None:
    check_titles(["a", "a.b", "ab/c", "ab/d"])


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"null", b'{"schemaVersion":1}'])
def test_what_is_no_manifest_is_refused(data: bytes) -> None:
    with pytest.raises(IntegrityError) as caught:
        read_manifest(data, Digest.of(data))
    assert caught.value.name == "manifest-not-readable"
