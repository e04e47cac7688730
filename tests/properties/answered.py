"""Ways in for what servers answer: streams, JSON, metrics, and an OCI registry's lists.

The real clients read them; only the connection is one that gives the bytes at hand.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self, cast

import requests
from urllib3 import HTTPResponse

from engine_pipeline.gates.client import ChatClient, Endpoint
from engine_pipeline.gates.consult import Advisers
from engine_pipeline.gates.golden import attempt_of
from engine_pipeline.gates.http_stream import Origin
from engine_pipeline.gates.json_post import NotAnswered, post_json
from engine_pipeline.gates.server_metrics import between, parse
from engine_pipeline.gates.similarity import NoEmbedding, read_embedding
from engine_pipeline.gates.suite import Case, Sampling
from engine_pipeline.gates.token_client import TokenClient
from engine_registry.backends.memory import memory_stores
from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError
from engine_registry.manifest import MANIFEST, Descriptor
from engine_registry.oci.challenge import read_challenge
from engine_registry.oci.manifests import Manifests
from engine_registry.oci.package import carriers
from engine_registry.oci.pull import RemoteOrigin
from engine_registry.oci.reference import OciRef
from engine_registry.oci.session import Remote
from engine_registry.refs import ReleaseRef
from engine_registry.registry import Registry
from engine_registry.testing.samples import (
    SAMPLE_PRODUCT,
    TickingClock,
    sample_engine,
    sample_release,
)
from engine_registry.transfer_cargo import read_cargo
from engine_registry.transfer_origin import StoreOrigin
from tests.properties.parser import Parser
from tests.unit.gates.test_server_metrics import LLAMA, VLLM

ASKED = Endpoint(base_url="http://fuzzed.example", model="m")
SAMPLING = Sampling(temperature=0.0, top_p=1.0, seed=7, max_tokens=8)
CASE = Case.model_validate(
    {
        "id": "capital",
        "tags": ["facts"],
        "messages": [{"role": "user", "content": "Capital of Japan?"}],
        "tools": [{"type": "function", "function": {"name": "now"}}],
        "checks": [
            {"kind": "contains", "all_of": ["Tokyo"]},
            {"kind": "json", "schema": {"type": "object"}},
            {"kind": "tool-call", "calls": [{"name": "now"}]},
        ],
    }
)
_INDEX = "application/vnd.oci.image.index.v1+json"


def answers() -> dict[str, Parser]:
    """What servers say."""
    return {
        "stream": Parser(_streams(), _streamed),
        "chat answer": Parser(_chat_answers(), _answered),
        "tokens": Parser((b'{"tokens": [1, 2, 3]}',), _tokens),
        "embedding": Parser((b'{"model": "e", "data": [{"embedding": [0.5, 1]}]}',), _embedding),
        "server metrics": Parser((VLLM.encode(), LLAMA.encode()), _metrics),
        "challenge": Parser(
            (
                b'Bearer realm="https://auth.example/token",service="r",scope="repository:x:pull"',
                b'Basic realm="r", Bearer realm="https://auth.example/\\"t\\"", error="invalid"',
            ),
            _challenge,
        ),
        **_registry_answers(),
    }


def _no(why: object) -> IntegrityError:
    """A refusal that is no exception of ours: a value with words, or nothing at all."""
    return IntegrityError(str(why), hint="as the caller has it")


# ---- engines' servers


class _Arriving(Origin):
    """Connects to an answer that is there already, and comes in two pieces."""

    def __init__(self, data: bytes) -> None:
        super().__init__(ASKED.base_url)
        self._data = data

    async def connect(self, protocol: Callable[[], asyncio.Protocol]) -> asyncio.Transport:
        receiver, half = protocol(), len(self._data) // 2
        loop = asyncio.get_running_loop()
        loop.call_soon(receiver.data_received, self._data[:half])
        loop.call_soon(receiver.data_received, self._data[half:])
        loop.call_soon(receiver.connection_lost, None)
        deaf = SimpleNamespace(write=lambda _: None, abort=lambda: None)
        return cast("asyncio.Transport", deaf)


def _streamed(data: bytes, _: Path) -> object:
    async def ask() -> object:
        async with ChatClient(ASKED, timeout_s=60) as client:
            client._origin = _Arriving(data)
            reply = await client.ask(CASE.messages, SAMPLING)
        attempt = await attempt_of(CASE, reply, Advisers(), lambda: None)
        attempt.model_dump_json()
        if reply.error is not None:
            raise _no(reply.error.detail)
        return attempt

    return asyncio.run(ask())


def _streams() -> tuple[bytes, ...]:
    def event(delta: dict[str, Any], **more: Any) -> str:
        return f"data: {json.dumps({'choices': [{'index': 0, 'delta': delta, **more}]})}\n\n"

    words = "".join(event({"content": word}) for word in ("To", "ky", "o é 東"))
    call = {"index": 0, "id": "c", "function": {"name": "now", "arguments": '{"at": 1}'}}
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 4,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    end = event({}, finish_reason="stop")
    end += f"data: {json.dumps({'model': 'm', 'choices': [], 'usage': usage})}\n\n"
    body = f": up\n\n{words}{event({'tool_calls': [call]})}{end}data: [DONE]\n\n".encode()
    kind = b"Content-Type: text/event-stream\r\n"
    chunks = b"".join(
        b"%x\r\n%b\r\n" % (len(piece), piece) for piece in (body[:40], body[40:], b"")
    )
    whole = b"HTTP/1.1 200 OK\r\n" + kind
    return (
        whole + b"\r\n" + body,
        whole + b"Content-Length: %d\r\n\r\n" % len(body) + body,
        whole + b"Transfer-Encoding: chunked\r\n\r\n" + chunks,
    )


class _Session:
    """Answers every request with the same body."""

    status = 200

    def __init__(self, data: bytes) -> None:
        self._data = data

    def post(self, *_: object, **__: object) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return None

    async def close(self) -> None:
        return None

    @property
    def content(self) -> Self:
        return self

    async def iter_any(self) -> AsyncIterator[bytes]:
        yield self._data


def _asking(data: bytes) -> TokenClient:
    client = TokenClient(endpoint=ASKED, timeout_s=60)
    client._session = cast("Any", _Session(data))
    return client


def _answered(data: bytes, _: Path) -> object:
    async def ask() -> object:
        answer = await _asking(data).answer(CASE, SAMPLING)
        return answer.model_dump_json(), await _asking(data).next_step([1, 2])

    try:
        return asyncio.run(ask())
    except NotAnswered as error:
        raise _no(error.detail) from error


def _tokens(data: bytes, _: Path) -> object:
    try:
        found = asyncio.run(_asking(data).ids_of("Tokyo"))
    except NotAnswered as error:
        raise _no(error.detail) from error
    if found is None:
        raise _no("it tells no tokens")
    return found


def _chat_answers() -> tuple[bytes, ...]:
    token = {"token": "Tok", "id": 5, "bytes": [84, 111, 107], "logprob": -0.5}
    chat = {
        "model": "m",
        "choices": [
            {
                "message": {
                    "content": "Tokyo",
                    "tool_calls": [{"function": {"name": "now", "arguments": {"at": 1}}}],
                },
                "finish_reason": "stop",
                "token_ids": [5],
                "logprobs": {"content": [{**token, "top_logprobs": [token]}]},
            }
        ],
        "usage": {"prompt_tokens": 9},
    }
    old = {
        "choices": [
            {
                "text": "Tokyo",
                "finish_reason": "length",
                "logprobs": {
                    "tokens": ["To", "kyo"],
                    "token_logprobs": [-0.1, -0.2],
                    "top_logprobs": [{"To": -0.1, "Ky": -3}, {"kyo": -0.2}],
                },
            }
        ]
    }
    return json.dumps(chat).encode(), json.dumps(old).encode()


def _embedding(data: bytes, _: Path) -> object:
    session = cast("Any", _Session(data))
    try:
        found = asyncio.run(post_json(session, ASKED.base_url, "/v1/embeddings", {}, timeout_s=60))
        return read_embedding(found)
    except NotAnswered as error:
        raise _no(error.detail) from error
    except NoEmbedding as error:
        raise _no(error) from error


def _metrics(data: bytes, _: Path) -> object:
    said = between(parse(""), parse(data.decode(errors="replace")))
    if said is None:
        raise _no("it says nothing of itself")
    return said.model_dump_json()


# ---- OCI registries


def _challenge(data: bytes, _: Path) -> object:
    found = read_challenge(data.decode("latin-1"))
    if found is None:
        raise _no("it asks for nothing that can be answered")
    return found


class _Registry(Remote):
    """An OCI registry that answers from a table, by the last part of a path."""

    def __init__(self, table: dict[str, bytes], kinds: dict[str, str]) -> None:
        super().__init__(ref=OciRef.parse("oci://fuzzed.example/team/engine"))
        self._table = table
        self._kinds = kinds

    def request(self, method: str, where: str, **options: Any) -> requests.Response:
        name = where.rpartition("/")[2]
        answer = requests.Response()
        answer.url = f"{self.base}{where}"
        answer.status_code = 200 if name in self._table else 404
        answer.headers["Content-Type"] = self._kinds.get(where, MANIFEST)
        answer.raw = HTTPResponse(BytesIO(self._table.get(name, b"")), preload_content=False)
        if answer.status_code not in options["expect"]:
            raise self._refusal(method, answer)
        return answer


def _registry_answers() -> dict[str, Parser]:
    clock = TickingClock()
    registry = Registry(memory_stores(clock), clock)
    engine = sample_engine(registry, "one")
    sample_release(registry, engine)
    cargo = read_cargo(StoreOrigin(registry.stores), engine.digest, ReleaseRef(SAMPLE_PRODUCT, 1))
    whole = engine.manifest.to_bytes()
    packed = carriers(cargo, Descriptor(media_type=MANIFEST, digest=engine.digest, size=len(whole)))
    table = {str(engine.digest): whole}
    for carrier, document in packed:
        table[str(Digest.of(carrier.to_bytes()))] = carrier.to_bytes()
        table[str(Digest.of(document))] = document
    subject, where = engine.digest, f"referrers/{engine.digest}"

    def listing(*manifests: bytes) -> bytes:
        entries = [
            {"mediaType": MANIFEST, "digest": str(Digest.of(data)), "size": len(data)}
            for data in manifests
        ]
        index = {"schemaVersion": 2, "mediaType": _INDEX, "manifests": entries}
        return json.dumps(index).encode()

    def index(data: bytes, _: Path) -> object:
        server = Manifests(_Registry({str(subject): data}, {where: _INDEX}))
        by_tag = Manifests(_Registry({f"sha256-{subject.hex}": data}, {}))
        return server.referrers(subject), by_tag.referrers(subject)

    def loaded(carrier: bytes, document: bytes = b"") -> object:
        """From a registry that is hostile, not damaged: what it made has the right digest."""
        made = {str(Digest.of(data)): data for data in (carrier, document)}
        pulled = {**table, **made, f"sha256-{subject.hex}": listing(carrier)}
        return RemoteOrigin(_Registry(pulled, {})).load(subject)

    def carrying(document: bytes) -> object:
        carrier = json.loads(packed[0][0].to_bytes())
        carrier["layers"][0] |= {"digest": str(Digest.of(document)), "size": len(document)}
        return loaded(json.dumps(carrier).encode(), document)

    manifests = tuple(carrier.to_bytes() for carrier, _ in packed)
    return {
        "oci index": Parser((listing(*manifests),), index),
        "oci manifest": Parser(manifests, lambda data, _: loaded(data)),
        "oci document": Parser((packed[0][1],), lambda data, _: carrying(data)),
    }
