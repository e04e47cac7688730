"""From the replies of a load run to its metrics. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

from engine_pipeline.gates import stats
from engine_pipeline.gates.lane_bars import QUANTILES
from engine_pipeline.gates.measured import Measured
from engine_pipeline.gates.reply import ErrorKind
from engine_pipeline.gates.report import PerformanceResult, Sample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine_pipeline.gates.load import Load
    from engine_pipeline.gates.reply import Reply


def failure(reply: Reply, load: Load, *, ignores_eos: bool) -> str | None:
    """What makes a measured request count as failed; None if it is good.

    An answer without a token, or, where the server ignores the end of sequence, of another length
    than asked for, is a failure as well.
    """
    if reply.error is not None:
        return reply.error.name
    if not reply.event_at:
        return "no-tokens"
    if ignores_eos and reply.completion_tokens != load.output_tokens:
        return "wrong-length"
    return None


def summarise(replies: Sequence[Reply], load: Load, *, ignores_eos: bool) -> PerformanceResult:
    """The metrics of a run; `replies` in any order, at least one."""
    verdicts = [failure(reply, load, ignores_eos=ignores_eos) for reply in replies]
    good = [reply for reply, verdict in zip(replies, verdicts, strict=True) if verdict is None]
    start, end = steady_window(replies, load.concurrency)
    metrics = _latencies(good, failed=len(replies) - len(good))
    if all(reply.completion_tokens is not None for reply in good) and end > start:
        slots = tokens_by_slot(good, start, end)
        metrics["output_tokens_per_s"] = Measured.of(
            stats.rate(slots, (end - start) / stats.SLOTS), "tokens/s"
        )
    return PerformanceResult(
        requests=len(replies),
        concurrency=load.concurrency,
        warmup_requests=load.warmup_requests,
        output_tokens=load.output_tokens,
        ignores_eos=ignores_eos,
        failed=dict(sorted(Counter(verdict for verdict in verdicts if verdict).items())),
        unreached=sum(unreached(reply) for reply in replies),
        metrics=metrics,
        prompt_tokens_mean=mean_of_known([reply.prompt_tokens for reply in good]),
        cached_share=cached_share(good),
        tokens_per_event=_tokens_per_event(good),
        window_s=round(max(end - start, 0.0), 3),
        samples=tuple(
            _sample(reply, verdict) for reply, verdict in zip(replies, verdicts, strict=True)
        ),
    )


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


def tokens_by_slot(replies: Sequence[Reply], start: float, end: float) -> list[float]:
    """Tokens that arrived in each of SLOTS equal parts of the window.

    The tokens of an answer, counted by its usage, are spread evenly over its token events.
    """
    slots = [0.0] * stats.SLOTS
    edges = [start + (end - start) * slot / stats.SLOTS for slot in range(1, stats.SLOTS)]
    for reply in replies:
        each = (reply.completion_tokens or 0) / len(reply.event_at)
        for at in reply.event_at:
            if start < at <= end:
                slots[bisect_left(edges, at)] += each
    return slots


def _latencies(good: Sequence[Reply], failed: int) -> dict[str, Measured]:
    failures = [math.inf] * failed
    ttft = [reply.ttft_ms for reply in good if reply.ttft_ms is not None] + failures
    tpot = [reply.tpot_ms for reply in good if reply.tpot_ms is not None]
    series = {"ttft": ttft, "e2e": [reply.e2e_ms for reply in good] + failures}
    if len(tpot) == len(good):
        series["tpot"] = tpot + failures
    gaps = [gap for reply in good for gap in reply.itl_ms]
    return percentiles(series, gaps=gaps, answers=len(good))


def percentiles(
    series: Mapping[str, Sequence[float]], *, gaps: Sequence[float], answers: int
) -> dict[str, Measured]:
    """p50, p90, p95 and p99 of each series and of the gaps between tokens, as `ttft_p50_ms`.

    Args:
        series: by name; of each, one time of each request.
        gaps: of all answers, pooled; none if there are none.
        answers: how many answers they are of.
    """
    found = {}
    for name, samples in sorted({**series, "itl": gaps}.items()):
        if samples:
            independent = answers if name == "itl" else None
            ordered = sorted(samples)
            for q in QUANTILES:
                estimate = stats.percentile_estimate(ordered, q, independent)
                found[f"{name}_p{q * 100:.0f}_ms"] = Measured.of(estimate, "ms")
    return found


def unreached(reply: Reply) -> bool:
    """Whether the request says nothing of the engine; one that timed out does."""
    error = reply.error
    return error is not None and not error.engine_fault and error.kind is not ErrorKind.TIMEOUT


def mean_of_known(values: Sequence[int | None]) -> float | None:
    """The mean of those that a server told; None if it told none."""
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 1) if known else None


def cached_share(replies: Sequence[Reply]) -> float | None:
    """The share of prompt tokens that came from a cache, where the server tells."""
    known = [
        (reply.cached_tokens, reply.prompt_tokens)
        for reply in replies
        if reply.cached_tokens is not None and reply.prompt_tokens
    ]
    total = sum(prompt for _, prompt in known)
    return round(sum(cached for cached, _ in known) / total, 4) if total else None


def _tokens_per_event(replies: Sequence[Reply]) -> float | None:
    known = [reply for reply in replies if reply.completion_tokens is not None]
    events = sum(len(reply.event_at) for reply in known)
    tokens = sum(reply.completion_tokens or 0 for reply in known)
    return round(tokens / events, 3) if events else None


def _sample(reply: Reply, verdict: str | None) -> Sample:
    return Sample(
        ttft_ms=None if reply.ttft_ms is None else round(reply.ttft_ms, 3),
        tpot_ms=None if reply.tpot_ms is None else round(reply.tpot_ms, 3),
        e2e_ms=round(reply.e2e_ms, 3),
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        cached_tokens=reply.cached_tokens,
        error=verdict,
    )
