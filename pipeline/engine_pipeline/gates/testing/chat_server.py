"""A chat server of known behaviour: the truth that clients and gates are measured against.

Speaks chat completions of the OpenAI API and `/health` over plain asyncio streams. How an answer
is given is a `Behaviour`, the server's own or, field by field, that of the request's field
`behaviour`, so one server can show every way of going wrong. It notes when it wrote each token, in
the clock that `time.perf_counter` reads, which on Linux is the same in every process.

As a process: `python -m engine_pipeline.gates.testing.chat_server --port PORT`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """How an answer is given.

    Attributes:
        answers: last user message → text; others get `answer`. One word is one token.
        ttft_s, gap_s: delay before the first token, and between two.
        status: HTTP status; anything but 200 comes with an error body.
        role_first: a chunk with only the role is sent at once, as many servers do.
        comments: comment lines are sent between events.
        usage: the usage is sent.
        per_event: tokens in one event.
        close_after: the connection is closed after so many tokens, without an end.
        error_after: an error event is sent after so many tokens, then the stream ends.
        exit_after: the process exits with code 70 after so many tokens.
        kill_after: the process kills itself, as if from outside, after so many tokens.
        promised_bytes: a length of the body to announce, whatever is sent.
        raw: sent as the body instead of any of the above.
        refused_field: a request with this field is answered 400.
        ignores_eos: an answer goes on to `max_tokens` where the request says `ignore_eos`.
        structured: what is answered to a request with `response_format`; None answers as to others.
        logprob: of each token, as JSON has it, to requests that want them and no stream; None:
            it gives none.
    """

    answers: dict[str, str] = field(default_factory=dict)
    answer: str = "one two three four five six seven eight"
    ttft_s: float = 0.0
    gap_s: float = 0.0
    status: int = 200
    role_first: bool = True
    comments: bool = False
    usage: bool = True
    per_event: int = 1
    close_after: int | None = None
    error_after: int | None = None
    exit_after: int | None = None
    kill_after: int | None = None
    promised_bytes: int | None = None
    raw: str | None = None
    refused_field: str | None = None
    ignores_eos: bool = True
    structured: str | None = None
    logprob: str | None = None


@dataclass(slots=True)
class Truth:
    """What the server did for one request; times as `time.perf_counter`."""

    body: dict[str, Any]
    received_at: float
    wrote_at: list[float] = field(default_factory=list)


class ChatServer:
    """The server; `truths` has one entry for each chat request, in order of arrival.

    Args:
        behaviour: how answers are given.
        health: the status of `/health`.
        models: what `/v1/models` lists.
        api_key: without it everything is answered 401, and the wrong key is repeated.
    """

    def __init__(
        self,
        behaviour: Behaviour | None = None,
        *,
        health: int = 200,
        models: tuple[str, ...] = ("engine",),
        api_key: str | None = None,
    ) -> None:
        self.behaviour = behaviour or Behaviour()
        self._models = models
        self._api_key = api_key
        self._health = health
        self.truths: list[Truth] = []
        self.in_flight = 0
        self.most_in_flight = 0

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncIterator[str]:
        """Serve on 127.0.0.1 while the block runs; gives the base URL."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", port)
        async with server:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, path, _ = head.split(" ", 2)
            lines = [line.split(": ", 1) for line in head.split("\r\n")[1:] if line]
            fields = {name.lower(): value for name, value in lines}
            given = fields.get("authorization", "")
            if self._api_key is not None and given != f"Bearer {self._api_key}":
                _head(writer, 401, "application/json")
                writer.write(json.dumps({"error": {"message": f"wrong key {given}"}}).encode())
            elif (method, path) == ("POST", "/v1/chat/completions"):
                body = json.loads(await reader.readexactly(int(fields["content-length"])))
                await self._chat(body, writer)
            elif path == "/v1/models":
                _head(writer, 200, "application/json")
                listed = [{"id": name, "object": "model"} for name in self._models]
                writer.write(json.dumps({"object": "list", "data": listed}).encode())
            else:
                _head(writer, self._health if path == "/health" else 404, "application/json")
                writer.write(b"{}")
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _chat(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        truth = Truth(body=body, received_at=time.perf_counter())
        self.truths.append(truth)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            behaviour = replace(self.behaviour, **body.get("behaviour", {}))
            status = 400 if behaviour.refused_field in body else behaviour.status
            if status != 200:
                _head(writer, status, "application/json")
                writer.write(b'{"error": {"message": "not like this"}}')
                return
            if not body.get("stream"):
                _whole(body, behaviour, writer)
                return
            _head(writer, 200, "text/event-stream", behaviour.promised_bytes)
            if behaviour.raw is not None:
                writer.write(behaviour.raw.encode())
                return
            await self._stream(body, behaviour, truth, writer)
        finally:
            self.in_flight -= 1

    async def _stream(
        self,
        body: dict[str, Any],
        behaviour: Behaviour,
        truth: Truth,
        writer: asyncio.StreamWriter,
    ) -> None:
        tokens, finish_reason = _tokens(body, behaviour)
        if behaviour.role_first:
            _event(writer, _delta({"role": "assistant", "content": None}))
            await writer.drain()
        await asyncio.sleep(behaviour.ttft_s)
        for at in range(0, len(tokens), behaviour.per_event):
            if at:
                await asyncio.sleep(behaviour.gap_s)
            if behaviour.comments:
                writer.write(b": still here\n\n")
            if at == behaviour.close_after:
                return
            if at == behaviour.exit_after:
                await writer.drain()
                os._exit(70)
            if at == behaviour.kill_after:
                os.kill(os.getpid(), signal.SIGKILL)
            if at == behaviour.error_after:
                _event(writer, {"error": {"code": 500, "message": "out of slots"}})
                return
            truth.wrote_at.append(time.perf_counter())
            _event(writer, _delta({"content": "".join(tokens[at : at + behaviour.per_event])}))
            await writer.drain()
        _event(writer, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish_reason}]})
        if behaviour.usage:
            _event(writer, {"choices": [], "usage": _usage(body, len(tokens))})
        writer.write(b"data: [DONE]\n\n")


def _whole(body: dict[str, Any], behaviour: Behaviour, writer: asyncio.StreamWriter) -> None:
    """The answer in one piece, for a request that asks for no stream."""
    tokens, finish_reason = _tokens(body, behaviour)
    if behaviour.exit_after is not None and behaviour.exit_after < len(tokens):
        os._exit(70)
    message = {"role": "assistant", "content": "".join(tokens)}
    choice: dict[str, Any] = {"index": 0, "message": message, "finish_reason": finish_reason}
    if behaviour.logprob is not None and body.get("logprobs"):
        number = json.loads(behaviour.logprob)
        choice["logprobs"] = {"content": [{"token": one, "logprob": number} for one in tokens]}
    usage = {"usage": _usage(body, len(tokens))} if behaviour.usage else {}
    _head(writer, 200, "application/json")
    writer.write(json.dumps({"choices": [choice], **usage}).encode())


def _tokens(body: dict[str, Any], behaviour: Behaviour) -> tuple[list[str], str]:
    asked = body["messages"][-1]["content"]
    answer = behaviour.answers.get(asked, behaviour.answer)
    if behaviour.structured is not None and "response_format" in body:
        answer = behaviour.structured
    words = answer.split(" ")
    tokens = [word if at == 0 else f" {word}" for at, word in enumerate(words)]
    limit = body.get("max_tokens", len(tokens))
    if body.get("ignore_eos") and behaviour.ignores_eos:
        tokens += [f" {number}" for number in range(limit - len(tokens))]
    return tokens[:limit], "length" if len(tokens) >= limit else "stop"


def _usage(body: dict[str, Any], tokens: int) -> dict[str, Any]:
    prompt = sum(len(message["content"].split()) for message in body["messages"])
    return {
        "prompt_tokens": prompt,
        "completion_tokens": tokens,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


def _delta(delta: dict[str, Any]) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}


def _event(writer: asyncio.StreamWriter, value: dict[str, Any]) -> None:
    writer.write(f"data: {json.dumps(value)}\n\n".encode())


def _head(
    writer: asyncio.StreamWriter, status: int, content_type: str, size_bytes: int | None = None
) -> None:
    # Without a length the body ends with the connection, as HTTP/1.0 has it.
    length = "" if size_bytes is None else f"Content-Length: {size_bytes}\r\n"
    writer.write(f"HTTP/1.1 {status} x\r\nContent-Type: {content_type}\r\n{length}".encode())
    writer.write(b"Connection: close\r\n\r\n")


def main() -> None:
    """Run as a process, after a start that may go wrong in the ways that the options name."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--behaviour", type=json.loads, default={})
    parser.add_argument("--behaviour-file", type=Path, help="the same, in a file")
    parser.add_argument("--load-s", type=float, default=0.0)
    parser.add_argument("--exit-at-load", type=int, help="exit code")
    parser.add_argument("--last-word", help="what it says on standard error before that")
    parser.add_argument("--never-ready", action="store_true", help="health answers 503")
    parser.add_argument("--kill-at-load", action="store_true")
    parser.add_argument("--ignore-sigterm", action="store_true")
    options = parser.parse_args()
    if options.ignore_sigterm:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    print("loading", flush=True)
    time.sleep(options.load_s)
    if options.exit_at_load is not None:
        print(options.last_word or "error: wrong tensor shape", file=sys.stderr, flush=True)
        sys.exit(options.exit_at_load)
    if options.kill_at_load:
        os.kill(os.getpid(), signal.SIGKILL)
    with suppress(KeyboardInterrupt):
        file = options.behaviour_file
        fields = options.behaviour if file is None else json.loads(file.read_text())
        server = ChatServer(Behaviour(**fields), health=503 if options.never_ready else 200)
        asyncio.run(_serve_for_ever(server, options.port))


async def _serve_for_ever(server: ChatServer, port: int) -> None:
    async with server.listening(port):
        print(f"process {os.getpid()} listens on {port}", flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    main()
