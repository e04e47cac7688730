"""One streamed answer: its events folded into text and times, and what can be wrong with it. Pure.

Times are seconds of one monotonic clock, taken by whoever receives the bytes:

    sent_at    the request's body is handed to the socket; connecting comes before
    event_at   events with content, reasoning or a tool call: not the role, not the usage
    ended_at   end of the stream
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import Any

from engine_pipeline.gates.tool_call import CallStream, ToolCall
from engine_pipeline.redact import masked

# What every report says of its numbers.
DEFINITIONS = {
    "ttft_ms": "request handed to the socket → first event with content, reasoning or a tool call",
    "tpot_ms": "(last token event - first token event) / (completion tokens of the usage - 1)",
    "itl_ms": "gaps between token events of one answer, all answers pooled",
    "e2e_ms": "request handed to the socket → end of the stream",
    "in a lane": "where requests come at times, TTFT and E2E count from when a request was due",
    "failed": "counted by kind; in percentiles each one stands above every measured value",
}
_DONE = "[DONE]"
# The engine was asked and answered that it cannot: context too long, wrong field, own failure.
_ENGINE_STATUS = frozenset({400, 413, 422, 500})


class ErrorKind(StrEnum):
    """What went wrong with a request."""

    CONNECT = "connect"  # no connection, or lost before the first byte of the answer
    TIMEOUT = "timeout"
    HTTP = "http"  # another status than 200
    SERVER = "server"  # the stream carries an error message
    TRUNCATED = "truncated"  # the stream ends without finish_reason and [DONE]
    MALFORMED = "malformed"  # the stream is not what the API promises


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestError:
    """Why there is no whole answer; `status` is that of HTTP errors."""

    kind: ErrorKind
    detail: str
    status: int | None = None

    @property
    def engine_fault(self) -> bool:
        """Whether the engine was reached and answered badly; else nothing was learnt about it."""
        if self.kind is ErrorKind.HTTP:
            return self.status in _ENGINE_STATUS
        return self.kind in {ErrorKind.SERVER, ErrorKind.TRUNCATED, ErrorKind.MALFORMED}

    @property
    def lost_connection(self) -> bool:
        """Whether the server may have died over it."""
        return self.kind in {ErrorKind.CONNECT, ErrorKind.TRUNCATED}

    @property
    def name(self) -> str:
        """What it is counted as: the kind, with the status of HTTP errors."""
        return f"{self.kind}-{self.status}" if self.status is not None else str(self.kind)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One request and what came of it; times are seconds of one monotonic clock.

    Attributes:
        text: the answer's content, without reasoning.
        event_at: arrival of each token event.
        prompt_tokens, completion_tokens, cached_tokens: as the usage says; None if it does not.
        model: what the server calls the model that answered.
    """

    text: str
    finish_reason: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    sent_at: float
    event_at: tuple[float, ...]
    ended_at: float
    error: RequestError | None
    tool_calls: tuple[ToolCall, ...] = ()
    model: str | None = None

    @property
    def ttft_ms(self) -> float | None:
        """Time to the first token; None if none came."""
        return (self.event_at[0] - self.sent_at) * 1000 if self.event_at else None

    @property
    def tpot_ms(self) -> float | None:
        """Time per further token; None without usage or with fewer than two tokens."""
        tokens = self.completion_tokens or 0
        if tokens < 2 or not self.event_at:
            return None
        return (self.event_at[-1] - self.event_at[0]) * 1000 / (tokens - 1)

    @property
    def itl_ms(self) -> tuple[float, ...]:
        """Gaps between token events."""
        return tuple((after - before) * 1000 for before, after in pairwise(self.event_at))

    @property
    def e2e_ms(self) -> float:
        """Time to the end of the stream."""
        return (self.ended_at - self.sent_at) * 1000

    def without(self, secret: str | None) -> Reply:
        """The same, with a secret masked: whole now, whatever pieces it came in, or cut short."""
        told = f"{self.text}{self.tool_calls}{self.model}{self.error}"
        if masked(told, secret) == told:
            return self
        error = self.error
        return replace(
            self,
            text=masked(self.text, secret),
            model=self.model and masked(self.model, secret),
            tool_calls=tuple(
                ToolCall(name=masked(call.name, secret), arguments=masked(call.arguments, secret))
                for call in self.tool_calls
            ),
            error=error and replace(error, detail=masked(error.detail, secret)),
        )


@dataclass(slots=True)
class AnswerStream:
    """What has been seen of one answer so far."""

    texts: list[str] = field(default_factory=list)
    event_at: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    usage: dict[str, Any] = field(default_factory=dict)
    done: bool = False
    error: RequestError | None = None
    calls: CallStream = field(default_factory=CallStream)
    model: str | None = None

    def take(self, data: str, now: float) -> None:
        """Note one event that arrived at `now`."""
        if data == _DONE:
            self.done = True
            return
        event = _object(json.loads(data))
        if error := event.get("error"):
            words = error.get("message", error) if isinstance(error, dict) else error
            self.error = RequestError(kind=ErrorKind.SERVER, detail=one_line(str(words)))
            return
        self.usage = _object(event.get("usage") or self.usage)
        self.model = self.model or _name(event.get("model"))
        for choice in event.get("choices") or ():
            delta = _object(_object(choice).get("delta") or {})
            # `/v1/completions` has its text beside, not within.
            content = delta.get("content") or choice.get("text") or ""
            reasoning = delta.get("reasoning_content") or delta.get("reasoning")
            if content or reasoning or delta.get("tool_calls"):
                self.event_at.append(now)
            if delta.get("tool_calls"):
                self.calls.take(delta["tool_calls"])
            if not isinstance(content, str):
                msg = f"content is {type(content).__name__}, want a string"
                raise TypeError(msg)
            self.texts.append(content)
            self.finish_reason = choice.get("finish_reason") or self.finish_reason

    def reply(self, *, sent_at: float, ended_at: float) -> Reply:
        """The finished answer; a stream without its proper end is an error."""
        error = self.error
        if error is None and not (self.done and self.finish_reason):
            missing = "finish_reason" if self.done else _DONE
            error = RequestError(
                kind=ErrorKind.TRUNCATED,
                detail=f"stream ended after {len(self.event_at)} token events without {missing}",
            )
        details = self.usage.get("prompt_tokens_details") or {}
        return Reply(
            text=well_formed("".join(self.texts)),
            finish_reason=self.finish_reason,
            prompt_tokens=_count(self.usage.get("prompt_tokens")),
            completion_tokens=_count(self.usage.get("completion_tokens")),
            cached_tokens=_count(_object(details).get("cached_tokens")),
            sent_at=sent_at,
            event_at=tuple(self.event_at),
            ended_at=ended_at,
            error=error,
            model=self.model,
            tool_calls=tuple(
                ToolCall(name=well_formed(call.name), arguments=well_formed(call.arguments))
                for call in self.calls.calls
            ),
        )


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        msg = f"{type(value).__name__} where an object is wanted"
        raise TypeError(msg)
    return value


def _name(value: Any) -> str | None:
    return one_line(value)[:200] or None if isinstance(value, str) else None


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def well_formed(text: str) -> str:
    """`text` as it can be stored: halves of a character joined, a half alone replaced by U+FFFD.

    A server that escapes its JSON may put the two halves into two events.
    """
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def one_line(text: str) -> str:
    """`text` on one line and of bounded length, for reasons in reports."""
    return " ".join(well_formed(text).split())[:300]
