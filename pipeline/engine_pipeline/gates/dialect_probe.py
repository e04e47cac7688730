"""Finds out, by asking, which fields of a request an endpoint takes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine_pipeline.gates.chat import Message
from engine_pipeline.gates.client import ChatClient
from engine_pipeline.gates.dialect import PLAIN, Dialect
from engine_pipeline.gates.reply import ErrorKind
from engine_pipeline.redact import redact
from engine_registry.errors import InvalidInput, Unavailable

if TYPE_CHECKING:
    from engine_pipeline.gates.client import Endpoint
    from engine_pipeline.gates.reply import Reply, RequestError
    from engine_pipeline.gates.suite import Sampling

_HELLO = (Message(role="user", content="Say yes."),)
# Some servers refuse to answer in fewer.
_TOKENS = 16
# What a request can do without, in the order in which it is left out.
_DISPENSABLE = ("seed", "stream_options", "top_p", "temperature")
_TOKENS_FIELD = ("max_tokens", "max_completion_tokens")
_REFUSED = frozenset({400, 415, 422, 501})
_KEY = frozenset({401, 403})
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504, 529})


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How an endpoint takes requests.

    Attributes:
        tells_usage: its streams end with the number of tokens.
        named_itself: what it calls the model.
    """

    dialect: Dialect
    tells_usage: bool
    named_itself: str | None


async def find_manners(endpoint: Endpoint, sampling: Sampling, *, timeout_s: float) -> Manners:
    """Ask one short question until it is taken: at most a dozen requests.

    Fields that a refusal names go first; one that went without being named is tried again.

    Raises:
        InvalidInput: it refuses the key, the model, or every form of the question.
        Unavailable: it does not answer, or not now.
    """
    asked = sampling.model_copy(update={"max_tokens": _TOKENS})
    dialect, named = PLAIN, set[str]()
    reply = await _say(endpoint, dialect, asked, timeout_s)
    while reply.error is not None:
        _unless_a_refusal(endpoint, reply.error)
        changed = _changed(dialect, reply.error.detail, named)
        if changed is None:
            raise InvalidInput(
                f"{endpoint.base_url} refuses every form of a chat: "
                f"{redact(reply.error.detail, endpoint.api_key)}",
                hint="try the same with curl: it takes no chat completions, or other fields",
                reference="endpoint-refuses-chats",
            )
        dialect = changed
        reply = await _say(endpoint, dialect, asked, timeout_s)
    for field in sorted(dialect.dropped - named):
        fuller = replace(dialect, dropped=dialect.dropped - {field})
        again = await _say(endpoint, fuller, asked, timeout_s)
        if again.error is None:
            dialect, reply = fuller, again
    return Manners(
        dialect=dialect,
        tells_usage=reply.completion_tokens is not None,
        named_itself=reply.model,
    )


def _changed(dialect: Dialect, detail: str, named: set[str]) -> Dialect | None:
    """A dialect with one field less, or with another name for one; None if there is no more."""
    old, new = _TOKENS_FIELD
    if not dialect.renamed and re.search(rf"\b{old}\b", detail):
        return replace(dialect, renamed=((old, new),))
    left = [field for field in _DISPENSABLE if field not in dialect.dropped]
    told = [field for field in left if re.search(rf"\b{field}\b", detail)]
    named.update(told[:1])
    if told or left:
        return replace(dialect, dropped=dialect.dropped | {(told or left)[0]})
    return None if dialect.renamed else replace(dialect, renamed=((old, new),))


async def _say(endpoint: Endpoint, dialect: Dialect, sampling: Sampling, timeout_s: float) -> Reply:
    async with ChatClient(replace(endpoint, dialect=dialect), timeout_s=timeout_s) as client:
        return await client.ask(_HELLO, sampling)


def _unless_a_refusal(endpoint: Endpoint, error: RequestError) -> None:
    """Return if leaving fields out might help; raise if not."""
    if error.kind is ErrorKind.HTTP and error.status in _REFUSED:
        return
    where, detail = endpoint.base_url, redact(error.detail, endpoint.api_key)
    if error.kind is ErrorKind.HTTP and error.status in _KEY:
        given = "the key" if endpoint.api_key else "a request without a key"
        raise InvalidInput(
            f"{where} refuses {given}: HTTP {error.status}",
            hint="name the environment variable with the right key: --api-key-env NAME",
            reference="endpoint-key-refused",
        )
    if error.kind is ErrorKind.HTTP and error.status not in _BUSY:
        raise InvalidInput(
            f"{where} does not take chats with model {endpoint.model!r}: {detail}",
            hint="check address and model: --endpoint URL --model NAME",
            reference="endpoint-other-api",
        )
    if error.kind in {ErrorKind.MALFORMED, ErrorKind.SERVER}:
        raise InvalidInput(
            f"{where} answers a chat, but not as a stream of this API: {detail}",
            hint="it has to stream chat completions with server-sent events",
            reference="endpoint-no-stream",
        )
    raise Unavailable(
        f"{where}: {detail}",
        hint="check that the server is up and not busy, then run the command again",
        reference="endpoint-unavailable",
    )
