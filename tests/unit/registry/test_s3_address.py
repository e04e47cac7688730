"""Reading `s3:` addresses, and what goes wrong before any request is made."""

import subprocess
import sys

import pytest

from engine_registry.backends.s3.address import ChecksumMode, S3Address
from engine_registry.backends.s3.checksums import part_bytes_for
from engine_registry.errors import InvalidInput
from engine_registry.registry import open_registry


def test_a_bucket_and_a_prefix_are_enough():
    address = S3Address.parse("s3://engines/team/llm")
    assert address == S3Address(bucket="engines", prefix="team/llm/")
    assert address.key("registry.json") == "team/llm/registry.json"
    assert str(address) == "s3://engines/team/llm"


def test_a_bucket_alone_needs_no_prefix():
    assert S3Address.parse("s3://engines").key("blobs/x") == "blobs/x"
    assert S3Address.parse("s3://engines/") == S3Address.parse("s3://engines")


def test_every_option_is_read():
    address = S3Address.parse(
        "s3://engines/p?endpoint=https%3A%2F%2Fs3.example&region=eu-1&checksum=md5&path_style=false"
    )
    assert address.endpoint == "https://s3.example"
    assert address.region == "eu-1"
    assert address.checksum is ChecksumMode.MD5
    assert not address.path_style


def test_an_endpoint_of_ones_own_means_path_style_unless_told_otherwise():
    assert S3Address.parse("s3://engines?endpoint=http://minio:9000").path_style
    assert not S3Address.parse("s3://engines").path_style


@pytest.mark.parametrize(
    ("url", "named"),
    [
        ("s3://", "not the name of a bucket"),
        ("s3:///prefix", "not the name of a bucket"),
        ("s3://UPPER/p", "UPPER"),
        ("s3://engines/a//b", "empty"),
        ("s3://engines/a/../b", "'..'"),
        ("s3://engines/%2e%2e/b", "'..'"),
        ("s3://engines?colour=red", "'colour'"),
        ("s3://engines?region=a&region=b", "twice"),
        ("s3://engines?region=", "empty"),
        ("s3://engines?checksum=crc64", "crc32, sha256, md5"),
        ("s3://engines?path_style=yes", "want true or false"),
        ("s3://engines?endpoint=ftp://x", "ftp://x"),
        ("s3://engines?endpoint=localhost:9000", "not http"),
        ("s3://engines/p#x", "'#'"),
    ],
)
def test_a_malformed_address_is_refused_and_says_what_is_wrong(url, named):
    with pytest.raises(InvalidInput) as caught:
        open_registry(url)
    assert caught.value.name == "invalid-registry-address"
    assert named in caught.value.message


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIAPLANTED:planted-secret@engines/p",
        "s3://engines?endpoint=https://user:planted-secret@s3.example",
        "s3://engines?endpoint=https%3A%2F%2Fs3.example%3Ftoken%3Dplanted-secret",
        "s3://engines?secret_key=planted-secret",
        "s3://engines?aws_session_token=planted-secret",
    ],
)
def test_an_address_with_a_credential_is_refused_without_repeating_it(url):
    with pytest.raises(InvalidInput) as caught:
        open_registry(url)
    assert "planted-secret" not in f"{caught.value.message} {caught.value.hint}"


@pytest.mark.parametrize("name", ["", "/etc/passwd", "a/../b", "..", "a//b", "./a"])
def test_a_name_cannot_leave_the_prefix(name):
    with pytest.raises(InvalidInput) as caught:
        S3Address(bucket="engines", prefix="p/").key(name)
    assert caught.value.name == "invalid-stored-name"


@pytest.mark.parametrize(
    ("size_bytes", "parts"), [(1, 1), (64 << 20, 1), (150 * 10**9, 2236), (5 << 40, 9987)]
)
def test_files_of_any_size_fit_into_ten_thousand_parts(size_bytes, parts):
    assert -(-size_bytes // part_bytes_for(size_bytes)) == parts


def test_opening_a_registry_in_a_bucket_loads_no_client_library():
    program = (
        "import sys\n"
        "from engine_registry.registry import open_registry\n"
        "open_registry('s3://engines/p')\n"
        "print(*sorted({m.split('.')[0] for m in sys.modules} & {'boto3', 'botocore', 'urllib3'}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(entry for entry in sys.path if entry)},
    )
    assert done.stdout.strip() == ""


def test_without_boto3_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "boto3.session", None)
    with pytest.raises(InvalidInput) as caught:
        open_registry("s3://engines/p").info()
    assert caught.value.name == "extra-missing"
    assert "engine-ci[s3]" in caught.value.hint
