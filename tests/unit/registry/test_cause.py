"""What a person reads of a server that cannot be reached: the operating system's words."""

from __future__ import annotations

import pytest

from engine_registry.backends.s3.address import S3Address
from engine_registry.backends.s3.bucket import Bucket
from engine_registry.cause import cause_of
from engine_registry.errors import Unavailable
from engine_registry.oci.reference import OciRef
from engine_registry.oci.session import Remote

NOWHERE = "no.such.host.invalid"


def chained(outer: Exception, inner: Exception) -> Exception:
    try:
        raise outer from inner
    except Exception as error:
        return error


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ConnectionRefusedError(111, "Connection refused"), "Connection refused"),
        (
            chained(RuntimeError("https://k:secret@host"), OSError(113, "No route to host")),
            "No route to host",
        ),
        (chained(RuntimeError("x"), TimeoutError()), "no answer in time"),
        (RuntimeError("https://k:secret@host"), "RuntimeError"),
    ],
    ids=["itself", "below", "in time", "no words of its own"],
)
def test_the_lowest_words_are_told_and_never_a_librarys_text(error, said):
    assert cause_of(error) == said


@pytest.mark.parametrize(
    ("host", "said"), [("127.0.0.1:1", "Connection refused"), (NOWHERE, "not known")]
)
def test_an_oci_registry_that_is_not_there_is_told_so(host, said):
    remote = Remote(ref=OciRef.parse(f"oci://{host}/team/engine"), sleep=lambda _: None)
    with pytest.raises(Unavailable, match=said):
        remote.request("GET", "tags/list", expect={200})


def test_a_bucket_that_is_not_there_is_told_so_once_before_the_end(monkeypatch, caplog):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    address = S3Address.parse("s3://engines/team?endpoint=http://127.0.0.1:1&region=us-east-1")
    bucket = Bucket(address, sleep=lambda _: None)
    for _ in range(2):
        with pytest.raises(Unavailable, match="Connection refused"):
            bucket.call("get_object", "read a document", Key="x")
    assert [one.getMessage() for one in caplog.records if one.name.startswith("engine")] == [
        f"{address}: cannot read a document: Connection refused; trying again for a while"
    ]
