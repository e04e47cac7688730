"""Metrics of a load run: failures stay in, the steady window is the steady one, tokens add up."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_pipeline.gates.policy import PerformanceBars
from engine_pipeline.gates.prompts import prompt
from engine_pipeline.gates.reply import ErrorKind, Reply, RequestError
from engine_pipeline.gates.speed import failure, steady_window, summarise, tokens_by_slot

BARS = PerformanceBars(requests=4, concurrency=2, output_tokens=4, max_ttft_p95_ms=100)


def reply(sent_at: float = 0.0, **changes: Any) -> Reply:
    """Four tokens, the first after 100 ms, then one every 10 ms."""
    return Reply(
        **{
            "text": "a b c d",
            "finish_reason": "length",
            "prompt_tokens": 20,
            "completion_tokens": 4,
            "cached_tokens": 5,
            "sent_at": sent_at,
            "event_at": tuple(sent_at + 0.1 + 0.01 * n for n in range(4)),
            "ended_at": sent_at + 0.14,
            "error": None,
            **changes,
        }
    )


def broken(kind: ErrorKind, status: int | None = None) -> Reply:
    return reply(error=RequestError(kind=kind, status=status, detail="x"))


def test_the_metrics_of_equal_requests_are_those_of_one():
    result = summarise([reply(n * 0.15) for n in range(4)], BARS, ignores_eos=True)
    values = {name: item.value for name, item in result.metrics.items()}
    assert values["ttft_p50_ms"] == values["ttft_p95_ms"] == pytest.approx(100, abs=0.01)
    assert values["tpot_p95_ms"] == values["itl_p95_ms"] == pytest.approx(10, abs=0.01)
    assert values["e2e_p95_ms"] == pytest.approx(140, abs=0.01)
    assert (result.prompt_tokens_mean, result.cached_share) == (20, 0.25)
    assert result.tokens_per_event == 1.0
    assert result.failed == {}
    assert len(result.samples) == 4


def test_a_failed_request_is_counted_by_kind_and_stands_above_every_value():
    replies = [reply(), reply(), reply(), broken(ErrorKind.HTTP, 500)]
    result = summarise(replies, BARS, ignores_eos=True)
    assert result.failed == {"http-500": 1}
    assert result.unreached == 0
    assert result.metrics["ttft_p95_ms"].value is None
    assert result.metrics["ttft_p50_ms"].value == pytest.approx(100, abs=0.01)
    assert result.metrics["ttft_p95_ms"].n == 4
    assert result.samples[3].error == "http-500"


@pytest.mark.parametrize(
    ("kind", "status", "unreached"),
    [
        (ErrorKind.CONNECT, None, 1),
        (ErrorKind.HTTP, 401, 1),
        (ErrorKind.TIMEOUT, None, 0),
        (ErrorKind.TRUNCATED, None, 0),
    ],
)
def test_only_requests_that_say_nothing_of_the_engine_are_unreached(kind, status, unreached):
    assert summarise([reply(), broken(kind, status)], BARS, ignores_eos=True).unreached == unreached


def test_an_answer_of_another_length_fails_where_the_end_of_sequence_is_ignored():
    short = reply(completion_tokens=3)
    assert failure(short, BARS, ignores_eos=True) == "wrong-length"
    assert failure(short, BARS, ignores_eos=False) is None


def test_an_answer_without_a_token_is_a_failure():
    assert failure(reply(event_at=()), BARS, ignores_eos=False) == "no-tokens"


def test_without_usage_nothing_is_said_of_tokens():
    blind = reply(completion_tokens=None, prompt_tokens=None, cached_tokens=None)
    result = summarise([blind, blind], BARS, ignores_eos=False)
    assert "tpot_p95_ms" not in result.metrics
    assert "output_tokens_per_s" not in result.metrics
    assert result.prompt_tokens_mean is None
    assert result.cached_share is None


def test_a_run_of_failures_alone_has_no_throughput_but_a_verdict():
    result = summarise([broken(ErrorKind.TRUNCATED)] * 4, BARS, ignores_eos=True)
    assert result.failed == {"truncated": 4}
    assert result.metrics["ttft_p95_ms"].low is None
    assert result.metrics["output_tokens_per_s"].value == 0


def test_the_steady_window_leaves_ramp_and_drain_out():
    replies = [
        reply(0.0, ended_at=1.0),
        reply(0.4, ended_at=2.0),  # from here on two are in flight
        reply(1.0, ended_at=3.0),
        reply(2.0, ended_at=9.0),  # the last to be sent: at 3.0 nothing takes the third's place
    ]
    assert steady_window(replies, 2) == (0.4, 3.0)


def test_tokens_fall_into_the_slot_they_arrived_in():
    # Ten tokens in two events of five.
    one = reply(completion_tokens=10, event_at=(0.05, 0.95))
    assert tokens_by_slot([one], 0.0, 1.0) == [5, 0, 0, 0, 0, 0, 0, 0, 0, 5]


@given(
    st.lists(
        st.tuples(st.floats(0, 10), st.lists(st.floats(0, 10), min_size=1, max_size=20)),
        min_size=1,
        max_size=8,
    )
)
def test_no_token_of_the_window_is_lost_or_counted_twice(shapes):
    replies = [
        reply(sent, event_at=tuple(sorted(events)), completion_tokens=len(events))
        for sent, events in shapes
    ]
    inside = sum(2.0 < at <= 7.0 for one in replies for at in one.event_at)
    assert sum(tokens_by_slot(replies, 2.0, 7.0)) == pytest.approx(inside)


def test_a_steady_stream_has_its_own_rate():
    bars = BARS.model_copy(update={"concurrency": 1})
    stream = [
        reply(
            n * 0.4, event_at=tuple(n * 0.4 + 0.1 * k for k in range(1, 5)), ended_at=n * 0.4 + 0.4
        )
        for n in range(20)
    ]
    rate = summarise(stream, bars, ignores_eos=True).metrics["output_tokens_per_s"]
    assert rate.value == pytest.approx(10, rel=0.02)
    assert rate.low is not None
    assert rate.low > 9


def test_prompts_are_distinct_stable_and_about_as_long_as_asked():
    texts = [prompt(index, 40)[0].content for index in range(-20, 200)]
    assert len(set(texts)) == len(texts)
    assert texts[20] == prompt(0, 40)[0].content
    assert {len(text.split()) for text in texts} == {40}
    words = [tuple(text.split()[5:]) for text in texts]
    assert len(set(words)) == len(words)
