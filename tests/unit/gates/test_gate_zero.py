"""Gate zero after load: numbers that are numbers, and answers that are answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from engine_pipeline.gates.client import Endpoint
from engine_pipeline.gates.dialect import Dialect
from engine_pipeline.gates.first_words import look_at_first_words
from engine_pipeline.gates.gate_zero import judge_degenerate
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import CaseResult, Finding
from engine_pipeline.gates.suite import Suite
from tests.servers.logprob_server import LogprobServer
from tests.unit.gates.test_golden import ask as ask_golden
from tests.unit.gates.test_golden import case, suite

LOOP = "Paris " * 48
LOOPS_WANTED = {
    "checks": [
        {"kind": "contains", "all_of": ["Paris"]},
        {"kind": "not-degenerate", "allow_loops": True},
    ]
}


def look(server: LogprobServer, asked: Suite, **endpoint: Any) -> Finding:
    async def act() -> Finding:
        async with server.listening() as url:
            place = Endpoint(base_url=url, model="m", **endpoint)
            return await look_at_first_words(place, asked, timeout_s=5)

    return asyncio.run(act())


RAW = case("raw", messages=[], prompt="Once upon a time")


@pytest.mark.parametrize("asked", [case("chat"), RAW], ids=["chat", "raw prompt"])
@pytest.mark.parametrize("older", [False, True], ids=["list of tokens", "parallel lists"])
@pytest.mark.parametrize(
    ("logprob", "outcome"),
    [
        (-0.1, Outcome.PASSED),
        # llama.cpp writes the logarithm of 0 as the lowest float: a number all the same.
        (-3.4e38, Outcome.PASSED),
        (float("nan"), Outcome.FAILED),
        (float("-inf"), Outcome.FAILED),
        (None, Outcome.FAILED),
    ],
)
def test_log_probabilities_have_to_be_finite_numbers_in_every_shape_that_servers_send_them(
    asked, older, logprob, outcome
):
    found = look(LogprobServer(logprob=logprob, older=older), suite(asked))
    assert (found.name, found.outcome) == ("finite log probabilities", outcome)
    if outcome is Outcome.FAILED:
        assert f"are not finite numbers: {logprob} for" in found.reason


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (LogprobServer(lists=False), "the endpoint gives no log probabilities"),
        (LogprobServer(refuses=("logprobs",)), 'HTTP 400: {"error": "unknown field logprobs'),
        (LogprobServer(status=500), "HTTP 500"),
    ],
)
def test_an_endpoint_that_gives_no_log_probabilities_is_told_of_and_not_failed(server, words):
    found = look(server, suite(case("a")))
    assert found.outcome is Outcome.SKIPPED
    assert words in found.reason


def test_a_prompt_that_is_refused_spoils_no_other():
    asked = suite(case("a"), case("b"), RAW)
    found = look(LogprobServer(takes_ids=False), asked)
    assert found.outcome is Outcome.PASSED
    assert "are finite numbers; no answer with log probabilities to raw: " in found.reason


def test_nobody_else_is_asked_for_log_probabilities_where_one_question_found_no_server():
    async def act() -> Finding:
        async with LogprobServer().listening() as url:
            closed = Endpoint(base_url=url, model="m")
        return await look_at_first_words(closed, suite(case("a"), case("b")), timeout_s=5)

    found = asyncio.run(act())
    assert found.outcome is Outcome.SKIPPED
    assert "to a: " in found.reason
    assert "to b: " not in found.reason


def test_a_handful_of_prompts_from_all_over_the_suite_is_asked_briefly_and_greedily():
    server = LogprobServer()
    tools = [{"type": "function", "function": {"name": "f", "parameters": {}}}]
    cases = [case(f"c{n}", sampling={"temperature": 1.0, "max_tokens": 900}) for n in range(20)]
    asked = suite(case("tool", tools=tools), *cases)
    found = look(
        server, asked, extra={"cache_prompt": False}, dialect=Dialect(dropped=frozenset({"seed"}))
    )
    assert found.reason == f"all {4 * len(server.says) * 3} of the first words are finite numbers"
    bodies = [body for _, body in server.asked]
    said = [body["messages"][-1]["content"] for body in bodies]
    assert said == ["question c0", "question c5", "question c10", "question c15"]
    for body in bodies:
        assert (body["temperature"], body["max_tokens"], body["stream"]) == (0.0, 16, False)
        assert (body["cache_prompt"], body["logprobs"], "seed" in body) == (False, True, False)


def judged(asked: Suite, **behaviour: Any) -> tuple[CaseResult, ...]:
    return ask_golden(asked, **behaviour)[0]


def test_one_looping_answer_fails_whatever_else_was_answered():
    long = {"sampling": {"max_tokens": 64}}
    results = judged(
        suite(case("good"), case("loops", **long)),
        answers={"question loops": LOOP},
        answer="It is Paris.",
    )
    [found] = judge_degenerate(results)
    assert (found.name, found.outcome) == ("degenerate answers", Outcome.FAILED)
    assert found.reason == ("1 of 2, want none: loops: loop: 'Paris' 48 times in a row")


def test_a_case_may_be_meant_to_repeat_itself():
    results = judged(suite(case("loops", sampling={"max_tokens": 64}, **LOOPS_WANTED)), answer=LOOP)
    assert results[0].outcome is Outcome.PASSED
    [found] = judge_degenerate(results)
    assert (found.outcome, found.reason) == (Outcome.PASSED, "none of 1")


def test_a_case_that_may_loop_may_still_not_be_empty():
    results = judged(suite(case("loops", **LOOPS_WANTED)), answer="…")
    assert judge_degenerate(results)[0].outcome is Outcome.FAILED


def test_a_degenerate_answer_under_load_fails_as_one_without_does():
    good = judged(suite(case("a")), answer="It is Paris.")
    bad = judged(suite(case("a", sampling={"max_tokens": 64})), answer=LOOP)
    [found] = judge_degenerate(good, bad)
    assert found.outcome is Outcome.FAILED
    assert "a under load: loop" in found.reason


def test_a_case_in_quarantine_fails_nothing_by_its_loops():
    held = {"owner": "Ada", "until": "2999-01-01", "reason": "under repair"}
    results = judged(suite(case("a", quarantine=held, sampling={"max_tokens": 64})), answer=LOOP)
    assert judge_degenerate(results)[0].outcome is Outcome.SKIPPED


def test_where_nothing_was_answered_nothing_is_said_of_answers():
    results = judged(suite(case("a")), status=503)
    [found] = judge_degenerate(results)
    assert (found.outcome, found.reason) == (Outcome.SKIPPED, "nothing was answered")
