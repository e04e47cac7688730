"""The client against a server of known behaviour: what it measures, and what it calls what."""

from __future__ import annotations

import asyncio
import socket
import statistics
from typing import Any

import pytest

from engine_pipeline.gates.client import ChatClient, Endpoint
from engine_pipeline.gates.reply import ErrorKind, Reply, RequestError, well_formed
from engine_pipeline.gates.suite import Message, Sampling
from engine_pipeline.gates.testing.chat_server import Behaviour, ChatServer, Truth

MESSAGES = (Message(role="user", content="count for me"),)
SAMPLING = Sampling(temperature=0.0, top_p=1.0, seed=7, max_tokens=32)


def ask(timeout_s: float = 10.0, **behaviour: Any) -> tuple[Reply, Truth]:
    """One request to a server that behaves like this, and what the server says of it."""

    async def act() -> tuple[Reply, Truth]:
        server = ChatServer()
        async with server.listening() as url:
            endpoint = Endpoint(base_url=url, model="m", extra={"behaviour": behaviour})
            async with ChatClient(endpoint, timeout_s=timeout_s) as client:
                return await client.ask(MESSAGES, SAMPLING), server.truths[0]

    return asyncio.run(act())


def test_an_answer_comes_whole_with_usage():
    reply, truth = ask(answer="one two three")
    assert reply.text == "one two three"
    assert reply.error is None
    assert reply.finish_reason == "stop"
    assert (reply.prompt_tokens, reply.completion_tokens, reply.cached_tokens) == (3, 3, 0)
    assert len(reply.event_at) == 3
    assert truth.body["stream"] is True
    assert truth.body["model"] == "m"


def test_sampling_is_sent_in_full_so_that_no_default_of_the_server_decides():
    _, truth = ask()
    sent = {name: truth.body[name] for name in ("temperature", "top_p", "seed", "max_tokens")}
    assert sent == SAMPLING.model_dump()


def test_first_token_time_is_the_servers_own_and_not_that_of_the_role():
    reply, truth = ask(ttft_s=0.2, gap_s=0.02, role_first=True)
    # The client sees each token a little after the server wrote it; never before.
    lags = [seen - wrote for seen, wrote in zip(reply.event_at, truth.wrote_at, strict=True)]
    assert min(lags) >= 0
    assert statistics.median(lags) < 0.05
    assert reply.sent_at <= truth.received_at
    assert reply.ttft_ms is not None
    assert reply.ttft_ms >= 200
    assert reply.e2e_ms >= reply.ttft_ms + 7 * 20


def test_time_per_token_leaves_the_first_one_out():
    reply, truth = ask(ttft_s=0.1, gap_s=0.03)
    served = (truth.wrote_at[-1] - truth.wrote_at[0]) * 1000 / 7
    assert reply.tpot_ms == pytest.approx(served, abs=20)
    assert len(reply.itl_ms) == 7
    assert sum(reply.itl_ms) == pytest.approx(reply.tpot_ms * 7)


def test_several_tokens_in_one_event_are_one_event():
    reply, _ = ask(per_event=4)
    assert reply.completion_tokens == 8
    assert len(reply.event_at) == 2
    assert reply.text == "one two three four five six seven eight"


def test_comment_lines_are_no_tokens():
    reply, _ = ask(comments=True, answer="one two")
    assert reply.error is None
    assert len(reply.event_at) == 2


def test_without_usage_there_is_no_time_per_token():
    reply, _ = ask(usage=False)
    assert reply.error is None
    assert reply.completion_tokens is None
    assert reply.tpot_ms is None


def test_reasoning_and_tool_calls_count_as_first_token_but_are_no_text():
    reply, _ = ask(
        raw='data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
        'data: {"choices":[{"delta":{"reasoning_content":"hm"}}]}\n\n'
        'data: {"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}\n\n'
        'data: {"choices":[{"delta":{"content":"yes"},"finish_reason":"stop"}]}\n\n'
        "data: [DONE]\n\n"
    )
    assert reply.error is None
    assert reply.text == "yes"
    assert len(reply.event_at) == 3


@pytest.mark.parametrize(
    ("behaviour", "name", "engine_fault"),
    [
        ({"status": 500}, "http-500", True),
        ({"status": 400}, "http-400", True),
        ({"status": 401}, "http-401", False),
        ({"status": 503}, "http-503", False),
        ({"status": 302}, "http-302", False),
        ({"close_after": 3}, "truncated", True),
        ({"close_after": 3, "promised_bytes": 100_000}, "truncated", True),
        ({"error_after": 2}, "server", True),
        ({"raw": ""}, "truncated", True),
        ({"raw": "data: {not json\n\n"}, "malformed", True),
        ({"raw": "data: [1, 2]\n\n"}, "malformed", True),
        ({"raw": "data: " + "[" * 100_000 + "\n\n"}, "malformed", True),
        ({"raw": 'data: {"choices":[{"delta":{"content":[1]}}]}\n\n'}, "malformed", True),
        (
            {"raw": 'data: {"choices":[{"delta":{"content":"x"}}]}\n\ndata: [DONE]\n\n'},
            "truncated",
            True,
        ),
        ({"raw": 'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n'}, "truncated", True),
        ({"ttft_s": 5.0}, "timeout", False),
    ],
)
def test_each_way_of_going_wrong_has_its_name(behaviour, name, engine_fault):
    reply, _ = ask(timeout_s=0.5 if "ttft_s" in behaviour else 10.0, **behaviour)
    assert reply.error is not None
    assert reply.error.name == name
    assert reply.error.engine_fault is engine_fault
    assert reply.error.detail


def test_what_came_before_a_cut_is_kept():
    reply, _ = ask(close_after=3)
    assert reply.text == "one two three"
    assert reply.ttft_ms is not None
    assert "after 3 token events without [DONE]" in (reply.error.detail if reply.error else "")


def test_a_server_that_is_not_there_is_a_connect_error():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"

    async def act() -> Reply:
        async with ChatClient(Endpoint(base_url=url, model="m"), timeout_s=5) as client:
            return await client.ask(MESSAGES, SAMPLING)

    reply = asyncio.run(act())
    assert reply.error is not None
    assert reply.error.kind is ErrorKind.CONNECT
    assert not reply.error.engine_fault
    assert reply.ttft_ms is None


def test_a_client_that_is_not_open_is_a_bug_of_the_caller():
    client = ChatClient(Endpoint(base_url="http://127.0.0.1:1", model="m"), timeout_s=1)
    with pytest.raises(RuntimeError, match="async with"):
        asyncio.run(client.ask(MESSAGES, SAMPLING))


def test_many_streams_at_once_are_each_timed_alone():
    async def act() -> tuple[list[Reply], ChatServer]:
        server = ChatServer(Behaviour(ttft_s=0.3))
        async with (
            server.listening() as url,
            ChatClient(Endpoint(base_url=url, model="m"), timeout_s=10) as client,
        ):
            jobs = [client.ask(MESSAGES, SAMPLING) for _ in range(100)]
            return list(await asyncio.gather(*jobs)), server

    replies, server = asyncio.run(act())
    assert [reply.error for reply in replies] == [None] * 100
    # No limit on connections: the last one is not kept waiting for the first.
    assert server.most_in_flight == 100
    assert all(reply.ttft_ms is not None and reply.ttft_ms >= 300 for reply in replies)


def test_the_key_is_sent_but_never_shown():
    endpoint = Endpoint(base_url="http://x", model="m", api_key="s3cret")
    assert "s3cret" not in repr(endpoint)


def test_halves_of_a_character_are_joined_and_a_lone_one_is_replaced():
    assert well_formed("\ud83d" + "\ude00") == "😀"
    assert well_formed("a\ud83d") == "a\ufffd"
    reply, _ = ask(
        raw='data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n'
        'data: {"choices":[{"delta":{"content":"\\ude00"},"finish_reason":"stop"}]}\n\n'
        "data: [DONE]\n\n"
    )
    assert reply.text == "😀"


def test_an_error_is_counted_by_kind_and_status():
    assert RequestError(kind=ErrorKind.HTTP, status=429, detail="x").name == "http-429"
    assert RequestError(kind=ErrorKind.TIMEOUT, detail="x").name == "timeout"
