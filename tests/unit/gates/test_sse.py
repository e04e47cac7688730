"""Event splitting: any cut of the stream gives the same events."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_pipeline.gates import sse
from engine_pipeline.gates.sse import EventSplitter

STREAM = (
    b": keep-alive\n\n"
    b'data: {"a": 1}\n\n'
    b"event: delta\r\ndata: caf\xc3\xa9\r\nid: 7\r\n\r\n"
    b"data:first\ndata: second\n\n"
    b"\n\n"
    b"data: [DONE]\n\n"
    b"data: never ended"
)
EVENTS = ['{"a": 1}', "café", "first\nsecond", "[DONE]"]


@given(st.lists(st.integers(0, len(STREAM))))
def test_events_are_the_same_however_the_bytes_arrive(cuts):
    splitter = EventSplitter()
    edges = [0, *sorted(cuts), len(STREAM)]
    found = []
    for start, end in pairwise(edges):
        found += splitter.feed(STREAM[start:end])
    assert found == EVENTS


@given(st.binary(max_size=300))
def test_arbitrary_bytes_give_events_or_a_value_error(data):
    try:
        events = EventSplitter().feed(data)
    except ValueError:
        return
    assert all(isinstance(event, str) for event in events)


@pytest.mark.parametrize("chunk", [b"x" * 60, b"data: " + b"x" * 30 + b"\n"])
def test_an_event_without_end_is_refused(monkeypatch, chunk):
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 90)
    splitter = EventSplitter()
    splitter.feed(chunk[:80])
    with pytest.raises(ValueError, match="more than 90 bytes"):
        splitter.feed(chunk * 3)


def test_bytes_that_are_not_utf8_are_refused():
    with pytest.raises(ValueError, match="utf-8"):
        EventSplitter().feed(b"data: \xff\n\n")
