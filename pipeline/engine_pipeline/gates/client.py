"""Asks an OpenAI-compatible server for one streamed chat answer and times it. The home of aiohttp.

Each request opens a connection of its own: llama.cpp's server offers keep-alive for streamed
answers and closes all the same, so a pooling client loses up to half of its requests. Bytes are
stamped with a monotonic clock as they arrive, before they are looked at.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from engine_pipeline.gates.reply import AnswerStream, ErrorKind, Reply, RequestError, one_line
from engine_pipeline.gates.sse import EventSplitter

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import TracebackType

    import aiohttp

    from engine_pipeline.gates.suite import Message, Sampling

_MAX_ANSWER_BYTES = 64 << 20
_ERROR_BODY_BYTES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where to ask.

    Attributes:
        base_url: scheme, host and port; the API lies below `/v1`.
        model: what to send as `model`.
        extra: further fields of each request, e.g. to switch a prompt cache off.
    """

    base_url: str
    model: str
    extra: Mapping[str, Any] = field(default_factory=dict)
    api_key: str | None = field(default=None, repr=False)


class ChatClient:
    """Streams answers from one endpoint; an async context manager, for one event loop.

    Args:
        endpoint: where to ask.
        timeout_s: longest wait for a whole answer, connecting included.
    """

    def __init__(self, endpoint: Endpoint, *, timeout_s: float) -> None:
        self._endpoint = endpoint
        self._timeout_s = timeout_s
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        import aiohttp

        trace = aiohttp.TraceConfig()
        trace.on_request_chunk_sent.append(_stamp_sent)
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
        if self._endpoint.api_key is not None:
            headers["Authorization"] = f"Bearer {self._endpoint.api_key}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            timeout=aiohttp.ClientTimeout(total=self._timeout_s),
            headers=headers,
            trace_configs=[trace],
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def ask(
        self,
        messages: Sequence[Message],
        sampling: Sampling,
        extra: Mapping[str, Any] | None = None,
    ) -> Reply:
        """The answer to one chat. A request that goes wrong is a reply with `error`, never raised.

        Raises:
            RuntimeError: the client is not open.
        """
        import aiohttp

        if self._session is None:
            msg = "the client is used outside its `async with`"
            raise RuntimeError(msg)
        body = {
            "model": self._endpoint.model,
            "messages": [message.model_dump(mode="json") for message in messages],
            **sampling.model_dump(mode="json"),
            "stream": True,
            "stream_options": {"include_usage": True},
            **self._endpoint.extra,
            **(extra or {}),
        }
        stream = AnswerStream(sent_at=time.perf_counter())
        try:
            async with self._session.post(
                f"{self._endpoint.base_url}/v1/chat/completions",
                json=body,
                allow_redirects=False,
                trace_request_ctx=stream,
            ) as response:
                stream.started = True
                await _read(response, stream)
        except TimeoutError:
            detail = f"no whole answer within {self._timeout_s:g} s"
            stream.error = RequestError(kind=ErrorKind.TIMEOUT, detail=detail)
        except (aiohttp.ClientError, OSError) as error:
            kind = ErrorKind.TRUNCATED if stream.started else ErrorKind.CONNECT
            detail = one_line(f"{type(error).__name__}: {error}")
            stream.error = RequestError(kind=kind, detail=detail)
        except (ValueError, TypeError, RecursionError) as error:
            detail = one_line(f"not the stream of this API: {error}")
            stream.error = RequestError(kind=ErrorKind.MALFORMED, detail=detail)
        return stream.reply(time.perf_counter())


async def _read(response: aiohttp.ClientResponse, stream: AnswerStream) -> None:
    if response.status != 200:
        body = await response.content.read(_ERROR_BODY_BYTES)
        stream.error = RequestError(
            kind=ErrorKind.HTTP,
            status=response.status,
            detail=one_line(f"HTTP {response.status}: {body.decode(errors='replace')}"),
        )
        return
    splitter = EventSplitter()
    received = 0
    async for chunk in response.content.iter_any():
        now = time.perf_counter()
        received += len(chunk)
        if received > _MAX_ANSWER_BYTES:
            msg = f"more than {_MAX_ANSWER_BYTES} bytes"
            raise ValueError(msg)
        for data in splitter.feed(chunk):
            stream.take(data, now)


async def _stamp_sent(_session: object, context: Any, _params: object) -> None:
    context.trace_request_ctx.sent_at = time.perf_counter()
