"""Asks an OpenAI-compatible server for one streamed chat answer and times it.

Each request opens a connection of its own: llama.cpp's server offers keep-alive for streamed
answers and closes all the same, so a pooling client loses up to half of its requests. Bytes are
stamped with a monotonic clock in the callback of the event loop (`http_stream`), before they are
looked at.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Self

from engine_pipeline.gates.dialect import PLAIN, Dialect
from engine_pipeline.gates.http_stream import Exchange, Origin, post_request
from engine_pipeline.gates.reply import AnswerStream, ErrorKind, Reply, RequestError, one_line
from engine_pipeline.gates.sse import EventSplitter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    from engine_pipeline.gates.http_stream import Head
    from engine_pipeline.gates.suite import Message, Sampling

_MAX_ANSWER_BYTES = 64 << 20
_ERROR_BODY_BYTES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where to ask.

    Attributes:
        base_url: scheme, host and port; the API lies below `/v1`.
        model: what to send as `model`.
        extra: further fields of each request that make answers reproducible, e.g. to switch a
            prompt cache off.
        dialect: which fields it takes.
    """

    base_url: str
    model: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    api_key: str | None = field(default=None, repr=False)
    dialect: Dialect = PLAIN

    @property
    def as_in_production(self) -> Endpoint:
        """The same, asked as whoever uses it asks: for load, whose answers nobody compares."""
        return replace(self, extra={})


class ChatClient:
    """Streams answers from one endpoint; an async context manager, for one event loop.

    Args:
        endpoint: where to ask.
        timeout_s: longest wait for a whole answer, connecting included.
    """

    def __init__(self, endpoint: Endpoint, *, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._origin: Origin | None = None
        self._fields = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
        if endpoint.api_key is not None:
            self._fields["Authorization"] = f"Bearer {endpoint.api_key}"

    @property
    def endpoint(self) -> Endpoint:
        """Where it asks."""
        return self._endpoint

    async def __aenter__(self) -> Self:
        self._origin = Origin(self._endpoint.base_url)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._origin = None

    async def ask(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        extra: Mapping[str, Any] | None = None,
    ) -> Reply:
        """The answer to one chat; see `put`."""
        chat = {"messages": [message.model_dump(mode="json") for message in messages]}
        return await self.put("/v1/chat/completions", chat, sampling, extra)

    async def put(
        self,
        target: str,
        asked: Mapping[str, Any],
        sampling: Sampling,
        extra: Mapping[str, Any] | None = None,
    ) -> Reply:
        """The answer to one request. One that goes wrong is a reply with `error`, never raised.

        Args:
            target: path of the API, below the endpoint's own.
            asked: the fields that hold the question.
            sampling: how the answer is drawn.
            extra: further fields.

        Raises:
            RuntimeError: the client is not open.
        """
        if self._origin is None:
            msg = "the client is used outside its `async with`"
            raise RuntimeError(msg)
        fields = {
            "model": self._endpoint.model,
            **asked,
            **sampling.model_dump(mode="json"),
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._endpoint.extra,
            **(extra or {}),
        }
        body = json.dumps(self._endpoint.dialect.spoken(fields)).encode()
        answer = _Answer()
        exchange = Exchange(answer.take)
        stream = answer.stream
        try:
            request = post_request(self._origin, target, self._fields, body)
            async with asyncio.timeout(self._timeout_s):
                await exchange.make(self._origin, request)
        except TimeoutError:
            detail = f"no whole answer within {self._timeout_s:g} s"
            stream.error = RequestError(kind=ErrorKind.TIMEOUT, detail=detail)
        except OSError as error:
            kind = ErrorKind.CONNECT if exchange.head is None else ErrorKind.TRUNCATED
            detail = one_line(f"{type(error).__name__}: {error}")
            stream.error = RequestError(kind=kind, detail=detail)
        except (ValueError, TypeError, RecursionError) as error:
            detail = one_line(f"not the stream of this API: {error}")
            stream.error = RequestError(kind=ErrorKind.MALFORMED, detail=detail)
        if exchange.head is not None and exchange.head.status != 200:
            stream.error = answer.refusal(exchange.head.status)
        ended_at = exchange.ended_at if stream.error is None else time.perf_counter()
        reply = stream.reply(sent_at=exchange.sent_at, ended_at=ended_at)
        return reply.without(self._endpoint.api_key)


class _Answer:
    """Makes an `AnswerStream` of a body's bytes, or keeps the words of an error."""

    def __init__(self) -> None:
        self.stream = AnswerStream()
        self._splitter = EventSplitter()
        self._received = 0
        self._words = b""

    def take(self, head: Head, data: bytes, at: float) -> None:
        """Some bytes of the body that came at `at`."""
        if head.status != 200:
            self._words = (self._words + data)[:_ERROR_BODY_BYTES]
            return
        self._received += len(data)
        if self._received > _MAX_ANSWER_BYTES:
            msg = f"more than {_MAX_ANSWER_BYTES} bytes"
            raise ValueError(msg)
        for event in self._splitter.feed(data):
            self.stream.take(event, at)

    def refusal(self, status: int) -> RequestError:
        """What an answer with another status than 200 says."""
        words = self._words.decode(errors="replace")
        return RequestError(
            kind=ErrorKind.HTTP, status=status, detail=one_line(f"HTTP {status}: {words}")
        )
