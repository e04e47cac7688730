"""Making a lane's load on a server of known behaviour."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable
from typing import Any

import pytest

from engine_pipeline.gates import lane_run
from engine_pipeline.gates.client import ChatClient, Endpoint
from engine_pipeline.gates.lane_bars import LaneBars
from engine_pipeline.gates.lane_result import LaneResult
from engine_pipeline.gates.testing.chat_server import Behaviour, ChatServer
from engine_pipeline.progress import Silent
from engine_pipeline.workload.model import Workload

WORKLOAD = {
    "name": "w",
    "prompt_tokens": {"kind": "uniform", "low": 30, "high": 90},
    "output_tokens": {"kind": "uniform", "low": 2, "high": 6},
    "arrival": {"kind": "poisson", "rate_per_s": 100},
    "requests": 30,
    "warmup_requests": 6,
}


def run(
    server: ChatServer | None = None,
    *,
    gone: Callable[[], str | None] = lambda: None,
    most_in_flight: int = 1024,
    **changes: Any,
) -> tuple[LaneResult, ChatServer]:
    server = server or ChatServer(Behaviour(ttft_s=0.02))
    bars = LaneBars.model_validate(
        {"workload": {**WORKLOAD, **changes}, "ceilings": {"ttft_p95_ms": 1000}}
    )
    assert isinstance(bars.workload, Workload)
    workload = bars.workload

    async def act() -> LaneResult:
        async with (
            server.listening() as url,
            ChatClient(Endpoint(base_url=url, model="m"), timeout_s=10) as client,
        ):
            return await lane_run.run_lane(
                client,
                "lane",
                workload,
                bars,
                progress=Silent(),
                gone=gone,
                most_in_flight=most_in_flight,
            )

    return asyncio.run(act()), server


def chats(server: ChatServer) -> list[dict[str, Any]]:
    return [truth.body for truth in server.truths]


def test_requests_are_of_the_lengths_that_the_workload_says():
    result, _ = run()
    [step] = result.steps
    assert result.lengths_known
    assert result.ignores_eos
    assert step.failed == {}
    assert step.requests == len(step.samples) == 30
    for sample in step.samples:
        assert sample.prompt_tokens == pytest.approx(sample.prompt_asked, abs=3)
        assert sample.completion_tokens == sample.output_asked
    assert len({one.prompt_asked for one in step.samples}) > 10


def test_warm_up_comes_first_and_no_measured_prompt_was_seen_before():
    result, server = run()
    assert len(chats(server)) == 6 + 30
    asked = [body["messages"][0]["content"] for body in chats(server)]
    assert len(set(asked)) == 36
    assert result.steps[0].requests == 30


def test_requests_come_at_their_times_though_no_answer_has_come():
    # 30 requests of a third of a second each, over a third of a second.
    server = ChatServer(Behaviour(ttft_s=0.3))
    result, _ = run(server)
    [step] = result.steps
    assert step.most_in_flight > 10
    asked = sorted(one.at_s for one in step.samples)
    received = sorted(truth.received_at for truth in server.truths[6:])
    gaps = [b - a for a, b in itertools.pairwise(asked)]
    seen = [b - a for a, b in itertools.pairwise(received)]
    assert sum(seen) == pytest.approx(sum(gaps), abs=0.15)
    assert step.late_share is not None


def test_what_a_stalled_server_makes_others_wait_is_counted():
    """Coordinated omission: a client that waits for answers would see one slow request alone."""

    class Stalling(ChatServer):
        asked = 0

        async def _chat(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
            self.asked += 1
            if self.asked == 12:
                self.until = time.perf_counter() + 0.4
            while time.perf_counter() < getattr(self, "until", 0.0):
                await asyncio.sleep(0.01)
            await super()._chat(body, writer)

    result, _ = run(Stalling(Behaviour()))
    slow = [one for one in result.steps[0].samples if (one.ttft_ms or 0) > 100]
    assert len(slow) > 8


def test_a_closed_loop_keeps_each_step_in_flight():
    server = ChatServer(Behaviour(ttft_s=0.02))
    result, _ = run(server, arrival={"kind": "concurrency", "steps": [1, 5]}, requests=10)
    assert [step.in_flight for step in result.steps] == [1, 5]
    assert [step.most_in_flight for step in result.steps] == [1, 5]
    asked = [body["messages"][0]["content"] for body in chats(server)]
    assert len(set(asked)) == len(asked) == 6 + 20


def test_a_closed_loop_may_end_with_the_time():
    result, _ = run(arrival={"kind": "concurrency", "steps": [2]}, requests=None, duration_s=1.0)
    assert result.steps[0].requests > 20


def test_a_request_that_comes_while_too_many_wait_is_not_sent_and_has_failed():
    result, server = run(ChatServer(Behaviour(ttft_s=0.5)), most_in_flight=4)
    [step] = result.steps
    assert step.failed["not-sent"] == 26
    assert len(chats(server)) == 6 + 4


def test_a_client_that_is_held_up_is_seen_to_be_late(monkeypatch):
    whole = lane_run.text

    def slowly(*args: Any) -> str:
        time.sleep(0.03)  # as a client does that has too much to do
        return whole(*args)

    monkeypatch.setattr(lane_run, "text", slowly)
    result, _ = run()
    [step] = result.steps
    assert step.late_share is not None
    assert step.late_share > 0.5
    assert max(one.lag_ms for one in step.samples) > 100


def test_prompts_share_what_the_workload_says():
    _, server = run(shared_prefix={"share": 0.5, "prefixes": 2}, warmup_requests=2)
    begun = {body["messages"][0]["content"].split()[0] for body in chats(server)[2:]}
    assert begun == {"P0", "P1"}


def test_a_server_that_counts_no_tokens_is_measured_and_the_result_says_so():
    result, _ = run(ChatServer(Behaviour(usage=False)))
    assert not result.lengths_known
    assert not result.ignores_eos
    assert result.steps[0].failed == {}


def test_a_server_that_refuses_to_ignore_the_end_of_sequence_is_asked_without():
    server = ChatServer(Behaviour(refused_field="ignore_eos"))
    result, _ = run(server)
    assert not result.ignores_eos
    assert not [body for body in chats(server)[2:] if "ignore_eos" in body]


def test_a_server_that_is_gone_ends_the_lane():
    result, _ = run(
        gone=lambda: "the server exited",
        arrival={"kind": "concurrency", "steps": [1, 2]},
        requests=3,
    )
    assert len(result.steps) == 1
    assert result.trouble == "the server exited"
