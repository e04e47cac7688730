"""Which part of a load run is steady, and what flows through it. Pure."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from engine_pipeline.gates import stats

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine_pipeline.gates.reply import Reply


def steady_window(replies: Sequence[Reply], concurrency: int) -> tuple[float, float]:
    """Start and end of the time in which `concurrency` requests were in flight all along.

    It starts when that many have been sent, and ends with the first answer to end after the last
    request was sent, since nothing takes its place.
    """
    sent = sorted(reply.sent_at for reply in replies)
    start = sent[min(concurrency, len(sent)) - 1]
    ends = [reply.ended_at for reply in replies if reply.ended_at > sent[-1]]
    end = min(ends, default=sent[-1])
    return start, end


def open_window(replies: Sequence[Reply]) -> tuple[float, float]:
    """For requests that come when they are due: from the first to the last one sent."""
    sent = [reply.sent_at for reply in replies]
    return min(sent), max(sent)


def tokens_by_slot(replies: Sequence[Reply], start: float, end: float) -> list[float]:
    """Tokens that arrived in each of SLOTS equal parts of the window.

    The tokens of an answer, counted by its usage, are spread evenly over its token events.
    """
    arrived = (
        (at, (reply.completion_tokens or 0) / len(reply.event_at))
        for reply in replies
        for at in reply.event_at
    )
    return amounts_by_slot(arrived, start, end)


def amounts_by_slot(
    amounts: Iterable[tuple[float, float]], start: float, end: float
) -> list[float]:
    """The sum of the amounts, each with its time, in each of SLOTS equal parts of the window."""
    slots = [0.0] * stats.SLOTS
    edges = [start + (end - start) * slot / stats.SLOTS for slot in range(1, stats.SLOTS)]
    for at, amount in amounts:
        if start < at <= end:
            slots[bisect_left(edges, at)] += amount
    return slots
