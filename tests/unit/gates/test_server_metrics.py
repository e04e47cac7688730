"""What servers say of themselves, and what is said of those that say nothing."""

from __future__ import annotations

import asyncio

import pytest

from engine_pipeline.gates.client import Endpoint
from engine_pipeline.gates.lane_result import ServerSaid
from engine_pipeline.gates.server_metrics import Reading, ServerMetrics, between, parse

VLLM = """\
# HELP vllm:request_queue_time_seconds Histogram of time spent in WAITING phase for request.
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_bucket{engine="0",le="0.3",model_name="m"} 90.0
vllm:request_queue_time_seconds_bucket{engine="0",le="0.5",model_name="m"} 99.0
vllm:request_queue_time_seconds_bucket{engine="0",le="+Inf",model_name="m"} 100.0
vllm:request_queue_time_seconds_count{engine="0",model_name="m"} 100.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="m"} 12.5
vllm:prefix_cache_queries_total{engine="0"} 1000.0
vllm:prefix_cache_hits_total{engine="0"} 250.0
vllm:time_to_first_token_seconds_sum 7
"""
LLAMA = """\
llamacpp:prompt_tokens_total 300
llamacpp:prompt_tokens_cached_total 100
llamacpp:predicted_tokens_seconds nan
"""


def test_queue_time_and_cache_hits_are_those_of_the_time_between():
    before = parse(VLLM)
    grown = VLLM.replace(" 90.0", " 91.0").replace(" 99.0", " 199.0").replace(" 100.0", " 200.0")
    after = parse(grown.replace("12.5", "32.5").replace("1000.0", "1400.0").replace("250", "550"))
    assert between(before, after) == ServerSaid(
        queue_mean_ms=200.0, queue_p95_at_most_ms=500.0, cache_hit_share=0.75
    )


def test_a_queue_beyond_the_last_edge_has_no_upper_bound():
    found = between(parse(""), parse('sglang:queue_time_seconds_bucket{le="+Inf"} 5\n'))
    assert found is None


def test_llama_cpp_tells_cache_hits_and_no_queue_time():
    assert between(Reading(), parse(LLAMA)) == ServerSaid(cache_hit_share=0.25)


def test_labels_are_added_up():
    lines = [f'sglang:queue_time_seconds_sum{{dp_rank="{n}"}} {n + 1}' for n in range(2)]
    assert parse("\n".join(lines)).values == {"sglang:queue_time_seconds_sum": 3.0}


def test_a_server_that_was_started_again_in_between_tells_nothing():
    before = parse(VLLM)
    fewer = {name: value / 2 for name, value in before.values.items()}
    bins = {name: dict.fromkeys(of, 0.0) for name, of in before.bins.items()}
    assert between(before, Reading(values=fewer, bins=bins)) is None


@pytest.mark.parametrize("text", ["", "[]", '[{"iter": 1}]', "vllm:x", "a{ b", "\x00" * 100])
def test_what_is_not_prometheus_text_says_nothing(text):
    assert parse(text) == Reading()


def read(answers: dict[str, bytes]) -> tuple[list[Reading | None], list[str]]:
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path = head.split(" ")[1]
        asked.append(path)
        status = b"200 OK" if path in answers else b"404 no"
        writer.write(b"HTTP/1.1 " + status + b"\r\n\r\n" + answers.get(path, b""))
        writer.close()

    async def act() -> list[Reading | None]:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            metrics = ServerMetrics(Endpoint(base_url=f"http://127.0.0.1:{port}", model="m"))
            return [await metrics.read(), await metrics.read()]

    return asyncio.run(act()), asked


def test_metrics_are_looked_for_where_each_server_keeps_them_and_once_only():
    found, asked = read({"/metrics": b'[{"iter": 1}]', "/prometheus/metrics": LLAMA.encode()})
    assert found[0] == found[1] == parse(LLAMA)
    assert asked == ["/metrics", "/prometheus/metrics", "/prometheus/metrics"]


def test_a_server_without_metrics_is_asked_no_more():
    found, asked = read({})
    assert found == [None, None]
    assert asked == ["/metrics", "/prometheus/metrics"]


def test_a_server_that_is_gone_says_nothing():
    metrics = ServerMetrics(Endpoint(base_url="http://127.0.0.1:1", model="m"))
    assert asyncio.run(metrics.read()) is None
