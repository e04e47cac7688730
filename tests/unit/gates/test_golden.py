"""Asking a suite: every case is asked as stated, judged by its checks, and nothing is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain, repeat
from typing import Any

import pytest

from engine_pipeline.gates.client import ChatClient, Endpoint
from engine_pipeline.gates.golden import ask_suite
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import ASKED_LIMIT_CHARS, TEXT_LIMIT_CHARS, CaseResult
from engine_pipeline.gates.suite import Suite
from engine_pipeline.gates.testing.chat_server import Behaviour, ChatServer
from engine_pipeline.progress import Silent


class Recording(Silent):
    """Progress that remembers its updates."""

    def __init__(self) -> None:
        self.updates: list[tuple[float, float | None, str]] = []

    def update(self, done: float, total: float | None, unit: str) -> None:
        self.updates.append((done, total, unit))


def case(name: str, want: str = "Paris", **changes: Any) -> dict[str, Any]:
    return {
        "id": name,
        "tags": ["facts"],
        "messages": [{"role": "user", "content": f"question {name}"}],
        "checks": [{"kind": "contains", "all_of": [want]}],
        **changes,
    }


def suite(*cases: dict[str, Any]) -> Suite:
    return Suite.model_validate(
        {
            "name": "demo",
            "owner": "x",
            "description": "x",
            "model": "m",
            "reference": {"spec": "m/t-fp16", "note": "x"},
            "sampling": {"temperature": 0, "top_p": 1, "seed": 40, "max_tokens": 8},
            "cases": cases,
        }
    )


def ask(
    asked: Suite,
    *,
    concurrency: int = 1,
    gone: Callable[[], str | None] = lambda: None,
    **behaviour: Any,
) -> tuple[tuple[CaseResult, ...], ChatServer, Recording]:
    server, progress = ChatServer(Behaviour(**behaviour)), Recording()

    async def act() -> tuple[CaseResult, ...]:
        async with (
            server.listening() as url,
            ChatClient(Endpoint(base_url=url, model="m"), timeout_s=5) as client,
        ):
            return await ask_suite(
                client,
                asked,
                concurrency=concurrency,
                progress=progress,
                gone=gone,
            )

    return asyncio.run(act()), server, progress


def test_each_case_is_judged_by_its_own_checks_in_the_suites_order():
    asked = suite(case("a"), case("b", "Rome"), case("c"))
    results, _, _ = ask(asked, answer="It is Paris .")
    assert [(r.id, r.outcome, r.score) for r in results] == [
        ("a", Outcome.PASSED, 1.0),
        ("b", Outcome.FAILED, 0.0),
        ("c", Outcome.PASSED, 1.0),
    ]
    failed = results[1].attempts[0]
    assert failed.text == "It is Paris ."
    assert [v.kind for v in failed.checks if not v.passed] == ["contains"]


def test_a_case_is_asked_with_its_own_sampling_and_another_seed_each_time():
    asked = suite(case("a", repeats=3, sampling={"max_tokens": 4}))
    results, server, _ = ask(asked, answer="Paris")
    assert [truth.body["seed"] for truth in server.truths] == [40, 41, 42]
    assert {truth.body["max_tokens"] for truth in server.truths} == {4}
    assert len(results[0].attempts) == 3
    assert results[0].agreement == 1.0


def test_the_whole_chat_is_sent():
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Capital?"},
    ]
    _, server, _ = ask(suite(case("a", messages=messages)))
    assert server.truths[0].body["messages"] == messages


@pytest.mark.parametrize("concurrency", [1, 3])
def test_as_many_are_in_flight_as_stated_and_no_more(concurrency):
    asked = suite(*[case(f"c{n}") for n in range(9)])
    results, server, progress = ask(asked, concurrency=concurrency, ttft_s=0.03, answer="Paris")
    assert server.most_in_flight == concurrency
    assert [r.id for r in results] == [f"c{n}" for n in range(9)]
    assert [done for done, _, _ in progress.updates] == list(range(10))
    assert progress.updates[-1] == (9, 9, "cases")


@pytest.mark.parametrize(
    ("behaviour", "outcome", "error"),
    [
        ({"status": 500}, Outcome.FAILED, "http-500"),
        ({"status": 400}, Outcome.FAILED, "http-400"),
        ({"close_after": 1}, Outcome.FAILED, "truncated"),
        ({"status": 503}, Outcome.ERRORED, "http-503"),
    ],
)
def test_an_engine_that_answers_badly_fails_and_one_that_was_not_reached_is_errored(
    behaviour, outcome, error
):
    results, _, _ = ask(suite(case("a")), answer="Paris is it", **behaviour)
    assert results[0].outcome is outcome
    assert results[0].agreement is None
    assert (results[0].attempts[0].error or "").startswith(f"{error}: ")


def test_nothing_more_is_asked_once_the_server_is_gone():
    asked = suite(*[case(f"c{n}") for n in range(4)])
    looks = chain([None] * 2, repeat("the server is gone"))
    results, server, _ = ask(asked, gone=lambda: next(looks), answer="Paris")
    assert [r.outcome for r in results] == [Outcome.PASSED] * 2 + [Outcome.ERRORED] * 2
    assert results[3].attempts[0].error == "not asked: the server is gone"
    assert len(server.truths) == 2


def test_after_a_lost_connection_the_end_of_the_server_is_waited_for():
    looks = chain([None] * 4, repeat("the server crashed"))
    asked = suite(case("a"), case("b"))
    results, server, _ = ask(asked, gone=lambda: next(looks), close_after=0)
    assert [r.outcome for r in results] == [Outcome.ERRORED] * 2
    assert (results[0].attempts[0].error or "").endswith("; the server crashed")
    assert len(server.truths) == 1


def test_a_long_answer_is_judged_whole_and_kept_in_part():
    long = " ".join(f"w{n}" for n in range(2000)) + " Paris"
    results, _, _ = ask(suite(case("a", sampling={"max_tokens": 4000})), answer=long)
    attempt = results[0].attempts[0]
    assert results[0].outcome is Outcome.PASSED
    assert (len(attempt.text), attempt.text_chars) == (TEXT_LIMIT_CHARS, len(long))


def test_a_cut_answer_that_loops_fails_although_its_check_passes():
    results, _, _ = ask(suite(case("a")), answer="Paris is it is it is it is it is it")
    kinds = {v.kind: v.passed for v in results[0].attempts[0].checks}
    assert kinds == {"not-degenerate": False, "contains": True}
    assert results[0].outcome is Outcome.FAILED


def test_a_result_tells_what_was_asked_and_keeps_a_long_question_in_part():
    long = case("b", messages=[{"role": "user", "content": "why? " * 1000}])
    results, _, _ = ask(suite(case("a"), long), answer="Paris")
    assert results[0].asked == "question a"
    assert results[1].asked == ("why? " * 1000)[:ASKED_LIMIT_CHARS]
