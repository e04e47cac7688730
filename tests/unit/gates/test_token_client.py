"""The client that asks for tokens: what it makes of servers that can do more, and less."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from engine_pipeline.gates.client import Endpoint
from engine_pipeline.gates.json_post import NotAnswered
from engine_pipeline.gates.parity_answer import ParityAnswer
from engine_pipeline.gates.suite import Case, Sampling
from engine_pipeline.gates.token_client import (
    NO_FORCING,
    NO_LOGPROBS,
    NO_TOKENISER,
    TokenClient,
)
from tests.servers.logprob_server import PROMPT, LogprobServer

T = TypeVar("T")
CASE = Case.model_validate(
    {
        "id": "one",
        "tags": ["facts"],
        "messages": [{"role": "user", "content": "asked"}],
        "checks": [{"kind": "contains", "all_of": ["is so"]}],
    }
)
SAMPLING = Sampling(temperature=0.9, top_p=1.0, seed=7, max_tokens=16)


def with_client(
    server: LogprobServer, act: Callable[[TokenClient], Coroutine[Any, Any, T]]
) -> tuple[T, list[str]]:
    async def run() -> tuple[T, list[str]]:
        async with server.listening() as url:
            endpoint = Endpoint(base_url=url, model="m", extra={"cache_prompt": False})
            async with TokenClient(endpoint=endpoint, timeout_s=10) as client:
                return await act(client), client.not_measured

    return asyncio.run(run())


def answer_of(server: LogprobServer) -> tuple[ParityAnswer, list[str]]:
    return with_client(server, lambda client: client.answer(CASE, SAMPLING))


def test_an_answer_comes_with_its_tokens_its_verdict_and_the_size_of_its_prompt():
    server = LogprobServer()
    answer, missing = answer_of(server)
    assert [step.token for step in answer.steps] == ["It", " is", " so", "<0>"]
    assert (answer.text, answer.passed, answer.prompt_tokens) == ("It is so", True, len(PROMPT))
    assert missing == []


def test_it_always_asks_at_temperature_nought_with_the_backends_own_fields():
    server = LogprobServer()
    answer_of(server)
    [(_, body)] = server.asked
    assert (body["temperature"], body["cache_prompt"], body["stream"]) == (0.0, False, False)
    assert body["max_tokens"] == 16


def test_an_endpoint_without_logprobs_gives_a_text_and_says_so():
    answer, missing = answer_of(LogprobServer(lists=False))
    assert (answer.steps, answer.text) == ((), "It is so")
    assert missing == [NO_LOGPROBS]


def test_an_endpoint_that_refuses_the_field_is_asked_without_it_and_not_twice_each_time():
    server = LogprobServer(refuses=("logprobs",))

    async def twice(client: TokenClient) -> ParityAnswer:
        await client.answer(CASE, SAMPLING)
        return await client.answer(CASE, SAMPLING)

    answer, missing = with_client(server, twice)
    assert answer.text == "It is so"
    assert missing == [NO_LOGPROBS]
    assert ["logprobs" in body for _, body in server.asked] == [True, True, False, False]


def test_an_endpoint_that_refuses_to_number_its_tokens_still_lists_them():
    answer, missing = answer_of(LogprobServer(refuses=("return_token_ids",)))
    assert [step.token for step in answer.steps] == ["It", " is", " so", "<0>"]
    assert missing == []


def test_a_chat_that_is_refused_for_itself_leaves_the_next_one_its_tokens():
    server = LogprobServer(status=400)

    async def refused_then_answered(client: TokenClient) -> ParityAnswer:
        with pytest.raises(NotAnswered):
            await client.answer(CASE, SAMPLING)
        server.status = 200
        return await client.answer(CASE, SAMPLING)

    answer, missing = with_client(server, refused_then_answered)
    assert len(answer.steps) == 4
    assert missing == []


@pytest.mark.parametrize("way", ["template", "messages"])
def test_a_chats_tokens_are_had_in_either_way_that_servers_offer(way):
    server = LogprobServer(tokenises=way)
    ids, missing = with_client(server, lambda client: client.prompt_ids(CASE, len(PROMPT)))
    assert ids == PROMPT
    assert missing == []


def test_a_prompt_of_another_length_than_the_usage_says_is_not_used():
    ids, [missing] = with_client(LogprobServer(), lambda client: client.prompt_ids(CASE, 9))
    assert ids is None
    assert "2 tokens" in missing
    assert "says 9" in missing


def test_an_endpoint_that_does_not_tokenise_forces_nothing():
    ids, missing = with_client(
        LogprobServer(tokenises=None), lambda client: client.prompt_ids(CASE, None)
    )
    assert (ids, missing) == (None, [NO_TOKENISER])


def test_what_comes_after_given_tokens_is_told():
    step, _ = with_client(LogprobServer(), lambda client: client.next_step([*PROMPT, 1]))
    assert step is not None
    assert (step.token, step.top[1].token) == (" is", "other")


@pytest.mark.parametrize("server", [LogprobServer(takes_ids=False), LogprobServer(lists=False)])
def test_an_endpoint_that_cannot_be_forced_says_so(server):
    step, missing = with_client(server, lambda client: client.next_step([*PROMPT, 1]))
    assert (step, missing) == (None, [NO_FORCING])


@pytest.mark.parametrize(
    ("status", "fault"), [(400, True), (500, True), (429, False), (503, False)]
)
def test_an_error_of_the_server_is_no_answer(status, fault):
    with pytest.raises(NotAnswered) as raised:
        answer_of(LogprobServer(status=status))
    assert (raised.value.refused, raised.value.engine_fault) == (status, fault)


def test_a_server_that_is_not_there_is_nobodys_fault():
    async def run() -> None:
        endpoint = Endpoint(base_url="http://127.0.0.1:9", model="m")
        async with TokenClient(endpoint=endpoint, timeout_s=10) as client:
            await client.answer(CASE, SAMPLING)

    with pytest.raises(NotAnswered) as raised:
        asyncio.run(run())
    assert not raised.value.engine_fault
