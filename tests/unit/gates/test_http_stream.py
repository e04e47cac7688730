"""One HTTP exchange: framing, however the bytes are cut, and who is asked for a connection."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from engine_pipeline.gates.http_stream import (
    BodyReader,
    ConnectionCut,
    Exchange,
    Head,
    Origin,
    post_request,
)

CHUNKED = (
    b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\nX-One: a: b\r\n\r\n"
    b"5\r\nhello\r\n7;ext=1\r\n, world\r\n0\r\n\r\n"
)
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhellotoo much"
ENDLESS = b"HTTP/1.0 200 OK\r\n\r\nhello"


def read(data: bytes, size: int) -> tuple[BodyReader, bytes]:
    reader = BodyReader()
    parts = [reader.feed(data[at : at + size]) for at in range(0, len(data), size)]
    return reader, b"".join(parts)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_chunks_are_joined_however_the_bytes_are_cut(size):
    reader, body = read(CHUNKED, size)
    assert body == b"hello, world"
    assert reader.head == Head(status=200, fields={"transfer-encoding": "Chunked", "x-one": "a: b"})
    assert reader.ended
    assert not reader.ends_with_connection


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_a_body_of_known_length_ends_there(size):
    reader, body = read(SIZED, size)
    assert (body, reader.ended) == (b"hello", True)


def test_a_body_without_length_ends_with_the_connection():
    reader, body = read(ENDLESS, 1000)
    assert (body, reader.ended, reader.ends_with_connection) == (b"hello", False, True)


def test_a_cut_inside_a_chunk_is_not_the_end():
    reader, body = read(CHUNKED[:-9], 1000)
    assert body == b"hello, wor"
    assert not reader.ended
    assert not reader.ends_with_connection


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000,
    ],
)
def test_what_is_not_http_is_refused(data):
    with pytest.raises(ValueError):  # noqa: PT011
        read(data, 100_000)


def test_an_url_that_names_no_host_is_refused():
    with pytest.raises(ValueError, match="no http or https URL"):
        Origin("ftp://host")
    with pytest.raises(ValueError, match="no http or https URL"):
        Origin("host:80")


def test_a_request_goes_below_the_path_of_the_endpoint_and_names_it():
    sent = post_request(Origin("http://me:pw@host:8080/llm/"), "/v1/x", {"A": "b"}, b"{}")
    head, _, body = sent.partition(b"\r\n\r\n")
    assert head.split(b"\r\n")[0] == b"POST /llm/v1/x HTTP/1.1"
    assert b"Host: host:8080" in head
    assert b"Content-Length: 2" in head
    assert b"pw" not in head
    assert body == b"{}"


def test_a_header_field_cannot_smuggle_another():
    with pytest.raises(ValueError, match="Authorization holds a line break"):
        post_request(Origin("http://host"), "/", {"Authorization": "Bearer a\r\nX: y"}, b"")


async def exchange(answer: bytes, origin: str, *, tls: ssl.SSLContext | None = None) -> bytes:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()

    taken: list[bytes] = []
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls) as server:
        port = server.sockets[0].getsockname()[1]
        to = Origin(origin.format(port=port))
        made = Exchange(lambda _head, data, _at: taken.append(data))
        async with asyncio.timeout(10):
            await made.make(to, post_request(to, "/", {}, b""))
    return b"".join(taken)


def test_every_address_of_a_name_is_tried():
    # Whichever of ::1 and 127.0.0.1 comes first: the server listens on one of them alone.
    assert asyncio.run(exchange(CHUNKED, "http://localhost:{port}")) == b"hello, world"


def test_a_connection_that_ends_before_the_answer_does_is_told_apart():
    with pytest.raises(ConnectionCut):
        asyncio.run(exchange(CHUNKED[:-12], "http://127.0.0.1:{port}"))
    with pytest.raises(ConnectionCut):
        asyncio.run(exchange(b"", "http://127.0.0.1:{port}"))


def certificate(folder: Path) -> Path:
    """A certificate for 127.0.0.1 that signs itself, and its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]),
            critical=False,
        )
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + made.public_bytes(serialization.Encoding.PEM)
    )
    return path


def test_https_is_spoken_with_servers_that_are_trusted_and_no_others(tmp_path, monkeypatch):
    path = certificate(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(path)
    with pytest.raises(ssl.SSLError):
        asyncio.run(exchange(SIZED, "https://127.0.0.1:{port}", tls=serving))
    monkeypatch.setenv("SSL_CERT_FILE", str(path))
    got = asyncio.run(exchange(SIZED, "https://127.0.0.1:{port}", tls=serving))
    assert got == b"hello"
