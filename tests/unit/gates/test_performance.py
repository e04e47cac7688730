"""Making load: what is sent, when it counts, and that the numbers are the server's own."""

from __future__ import annotations

import asyncio
import math
import statistics
from typing import Any

import pytest

from engine_pipeline.gates.client import ChatClient, Endpoint
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.performance import measure
from engine_pipeline.gates.policy import GatePolicy, PerformanceBars, QualityBars
from engine_pipeline.gates.report import PerformanceResult
from engine_pipeline.gates.speed_gate import Speed
from engine_pipeline.gates.testing.chat_server import Behaviour, ChatServer
from engine_pipeline.nvml.use import BoardUse, Reading, use_of
from engine_pipeline.nvml.watch import GpuWatch
from engine_pipeline.progress import Silent


def load(
    *, requests: int = 8, concurrency: int = 2, warmup: int = 3, tokens: int = 6, **behaviour: Any
) -> tuple[PerformanceResult, ChatServer]:
    server = ChatServer(Behaviour(**behaviour))
    bars = PerformanceBars(
        requests=requests,
        concurrency=concurrency,
        warmup_requests=warmup,
        output_tokens=tokens,
        max_ttft_p95_ms=1000,
    )

    async def act() -> PerformanceResult:
        async with (
            server.listening() as url,
            ChatClient(Endpoint(base_url=url, model="m"), timeout_s=5) as client,
        ):
            return await measure(client, bars, progress=Silent(), gone=lambda: None)

    return asyncio.run(act()), server


def prompts(server: ChatServer) -> list[str]:
    return [truth.body["messages"][0]["content"] for truth in server.truths]


def test_warm_up_comes_first_and_is_not_measured():
    result, server = load()
    assert len(server.truths) == 3 + 8
    assert result.requests == len(result.samples) == 8
    assert all(prompt.startswith("-") for prompt in prompts(server)[:3])
    assert not any(prompt.startswith("-") for prompt in prompts(server)[3:])


def test_no_two_prompts_are_equal():
    _, server = load()
    assert len(set(prompts(server))) == len(server.truths)


def test_every_answer_runs_to_its_full_length_where_the_server_can_ignore_its_end():
    result, server = load(answer="short")
    assert result.ignores_eos
    assert {sample.completion_tokens for sample in result.samples} == {6}
    assert all(truth.body["ignore_eos"] for truth in server.truths)


def test_a_server_that_does_not_know_the_field_is_measured_and_the_report_says_so():
    result, _ = load(answer="short", ignores_eos=False)
    assert not result.ignores_eos
    assert result.failed == {}


def test_a_server_that_refuses_the_field_is_measured_without_it():
    result, server = load(answer="short", refused_field="ignore_eos")
    assert not result.ignores_eos
    assert result.failed == {}
    assert not any("ignore_eos" in truth.body for truth in server.truths[-8:])


def test_the_load_is_closed_at_the_stated_concurrency():
    _, server = load(concurrency=4, warmup=1, ttft_s=0.02)
    assert server.most_in_flight == 4


def test_the_numbers_are_the_servers_own():
    result, server = load(requests=12, ttft_s=0.1, gap_s=0.02)
    ttft = result.metrics["ttft_p50_ms"].value
    tpot = result.metrics["tpot_p50_ms"].value
    truths = server.truths[3:]
    served = statistics.median((t.wrote_at[0] - t.received_at) * 1000 for t in truths)
    gaps = statistics.median((t.wrote_at[-1] - t.wrote_at[0]) * 1000 / 5 for t in truths)
    assert ttft == pytest.approx(served, abs=30)
    assert tpot == pytest.approx(gaps, abs=10)


def test_failed_requests_stay_in_the_result():
    result, _ = load(status=500)
    assert result.failed == {"http-500": 8}
    assert result.metrics["ttft_p95_ms"].value is None
    assert not result.ignores_eos


class Boards(GpuWatch):
    """Boards that were slowed down from the `after`-th request on, by the server's word."""

    def __init__(self, server: ChatServer, after: int) -> None:
        super().__init__()
        self._server, self._after = server, after

    def disturbances(self) -> list[tuple[float, float]]:
        return [(self._server.truths[self._after].received_at, math.inf)]

    def use(self, since: float, until: float) -> tuple[BoardUse, ...]:
        return use_of(
            [Reading(at=until, uuid="GPU-a", name="H100", sm_clock_mhz=900)], since, until
        )


@pytest.mark.parametrize(("after", "kept", "disturbed"), [(3 + 6, 6, 2), (0, 8, 8)])
def test_requests_that_a_board_disturbed_are_dropped_and_counted(after, kept, disturbed):
    server = ChatServer(Behaviour(ttft_s=0.01))
    bars = PerformanceBars(
        requests=8, concurrency=1, warmup_requests=3, output_tokens=3, max_ttft_p95_ms=1000
    )

    async def act() -> PerformanceResult:
        async with (
            server.listening() as url,
            ChatClient(Endpoint(base_url=url, model="m"), timeout_s=5) as client,
        ):
            return await measure(
                client,
                bars,
                progress=Silent(),
                gone=lambda: None,
                gpus=Boards(server, after),
            )

    result = asyncio.run(act())
    assert (result.requests, result.disturbed) == (kept, disturbed)
    assert result.gpus[0].sm_clock_median_mhz == 900
    policy = GatePolicy(suite="s", quality=QualityBars(min_score=0.5), performance=bars)
    [finding] = Speed(performance=result).findings(policy)
    # Six requests bound no p95, so they decide nothing either; eight of eight say why.
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert ("8 requests do not count" in finding.reason) is (disturbed == 8)
