"""From what load runs bring home to metrics. Pure.

Several runs of one level are summed up as one: their requests are pooled, their steady windows are
laid side by side. Failed requests stay in: every percentile has them above each measured value.
"""

from __future__ import annotations

import math
from collections import Counter
from functools import reduce
from operator import add
from typing import TYPE_CHECKING

from engine_pipeline.gates import stats
from engine_pipeline.gates.reply import DEFINITIONS, ErrorKind
from engine_pipeline.gates.speed_report import Measured, PerformanceResult, Sample
from engine_pipeline.gates.speed_window import (
    amounts_by_slot,
    open_window,
    steady_window,
    tokens_by_slot,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from engine_pipeline.gates.reply import Reply
    from engine_pipeline.gates.speed_sample import LevelRun, Timed
    from engine_pipeline.gates.workload_bars import Slo

QUANTILES = (0.5, 0.9, 0.95, 0.99)
SPEED_DEFINITIONS = DEFINITIONS | {
    "ttft_open_ms": "request due → first token event; counts waiting to be sent, unlike ttft_ms",
    "stall_ms": "the longest gap between two token events of one answer",
    "goodput_share": "share of all requests that were answered within every limit of the SLO",
    "goodput_per_s": "such requests per second of the steady window",
    "error_share": "share of all requests that failed; a request is sent once, never again",
    "queue_ms_mean": "time in the server's queue, by its own counters; not measured otherwise",
}


def summarise(
    runs: Sequence[LevelRun], *, warmup_requests: int, slo: Slo | None = None, gpus: int = 0
) -> PerformanceResult:
    """The metrics of runs of one level; at least one run with at least one request.

    Args:
        runs: of the same level.
        warmup_requests: how many were sent before each run.
        slo: what a good request is; None counts none.
        gpus: how many the engine uses; throughput is also given for each.
    """
    every = [(run, item) for run in runs for item in run.timed]
    verdicts = [run.failure(item) for run, item in every]
    timed = [item for _, item in every]
    good = [item for item, verdict in zip(timed, verdicts, strict=True) if verdict is None]
    window_s, rates = _rates(runs, good, slo)
    metrics = _latencies(good, failed=len(timed) - len(good)) | rates
    if "output_tokens_per_s" in metrics and gpus:
        metrics["output_tokens_per_s_per_gpu"] = _divided(metrics["output_tokens_per_s"], gpus)
    failed = sum(verdict is not None for verdict in verdicts)
    metrics["error_share"] = Measured.of(stats.share(failed, len(timed)), "share")
    if slo is not None:
        within = sum(slo.met_by(item.reply) for item in good)
        metrics["goodput_share"] = Measured.of(stats.share(within, len(timed)), "share")
    replies = [item.reply for item in good]
    counts = reduce(add, [run.counts for run in runs])
    return PerformanceResult(
        requests=len(timed),
        concurrency=runs[0].level.concurrency or 0,
        warmup_requests=warmup_requests,
        output_tokens=round(_mean([item.planned.output_tokens for item in timed]) or 0),
        ignores_eos=all(run.ignores_eos for run in runs),
        failed=dict(sorted(Counter(verdict for verdict in verdicts if verdict).items())),
        unreached=sum(_unreached(item.reply) for item in timed),
        metrics=metrics,
        prompt_tokens_mean=_mean([reply.prompt_tokens for reply in replies]),
        cached_share=_cached_share(replies),
        tokens_per_event=_tokens_per_event(replies),
        window_s=round(window_s, 3),
        samples=samples_of(runs[0]) if len(runs) == 1 else (),
        runs=len(runs),
        queue_ms_mean=counts.queue_ms_mean,
        server_cached_share=counts.cached_share,
    )


def samples_of(run: LevelRun) -> tuple[Sample, ...]:
    """Each request of a run as it is stored, in the order in which they ended."""
    first = min((item.reply.sent_at for item in run.timed), default=0.0)
    return tuple(_sample(item, run.failure(item), first) for item in run.timed)


def _latencies(good: Sequence[Timed], failed: int) -> dict[str, Measured]:
    failures = [math.inf] * failed
    replies = [item.reply for item in good]
    opened = [item.ttft_open_ms for item in good if item.ttft_open_ms is not None]
    series = {
        "ttft": [r.ttft_ms for r in replies if r.ttft_ms is not None] + failures,
        "ttft_open": opened + failures,
        "e2e": [reply.e2e_ms for reply in replies] + failures,
    }
    tpot = [reply.tpot_ms for reply in replies if reply.tpot_ms is not None]
    if len(tpot) == len(good):
        series["tpot"] = tpot + failures
    if stalls := [max(reply.itl_ms) for reply in replies if reply.itl_ms]:
        series["stall"] = stalls + failures
    metrics = {
        f"{name}_p{q * 100:.0f}_ms": Measured.of(stats.percentile_estimate(samples, q), "ms")
        for name, samples in sorted(series.items())
        for q in QUANTILES
    }
    if gaps := [gap for reply in replies for gap in reply.itl_ms]:
        # The gaps of one answer are not independent of each other.
        answers = sum(bool(reply.itl_ms) for reply in replies)
        metrics |= {
            f"itl_p{q * 100:.0f}_ms": Measured.of(stats.percentile_estimate(gaps, q, answers), "ms")
            for q in QUANTILES
        }
    return metrics


def _rates(
    runs: Sequence[LevelRun], good: Sequence[Timed], slo: Slo | None
) -> tuple[float, dict[str, Measured]]:
    """Length of all steady windows together, and what flowed through them per second.

    Slot k of the whole is made of slot k of each run, so that there are always SLOTS of them.
    """
    kept = set(map(id, good))
    tokens, served = [0.0] * stats.SLOTS, [0.0] * stats.SLOTS
    window_s = 0.0
    for run in runs:
        replies = [item.reply for item in run.timed]
        concurrency = run.level.concurrency
        start, end = steady_window(replies, concurrency) if concurrency else open_window(replies)
        if end <= start:
            continue
        window_s += end - start
        mine = [item.reply for item in run.timed if id(item) in kept]
        tokens = _added(tokens, tokens_by_slot(mine, start, end))
        ended = [(reply.ended_at, 1.0) for reply in mine if slo is not None and slo.met_by(reply)]
        served = _added(served, amounts_by_slot(ended, start, end))
    metrics = {}
    slot_s = window_s / stats.SLOTS
    if window_s > 0 and all(item.reply.completion_tokens is not None for item in good):
        metrics["output_tokens_per_s"] = Measured.of(stats.rate(tokens, slot_s), "tokens/s")
    if window_s > 0 and slo is not None:
        metrics["goodput_per_s"] = Measured.of(stats.rate(served, slot_s), "requests/s")
    return window_s, metrics


def _added(some: Sequence[float], more: Sequence[float]) -> list[float]:
    return [one + other for one, other in zip(some, more, strict=True)]


def _divided(measured: Measured, gpus: int) -> Measured:
    whole = measured.estimate
    each = stats.Estimate(
        n=whole.n,
        needed=whole.needed,
        value=whole.value / gpus,
        low=whole.low / gpus,
        high=whole.high / gpus,
    )
    return Measured.of(each, "tokens/s")


def _unreached(reply: Reply) -> bool:
    """Whether the request says nothing of the engine; one that timed out does."""
    error = reply.error
    return error is not None and not error.engine_fault and error.kind is not ErrorKind.TIMEOUT


def _mean(values: Iterable[int | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 1) if known else None


def _cached_share(replies: Sequence[Reply]) -> float | None:
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


def _sample(item: Timed, verdict: str | None, first: float) -> Sample:
    reply = item.reply
    return Sample(
        ttft_ms=_rounded(reply.ttft_ms),
        tpot_ms=_rounded(reply.tpot_ms),
        e2e_ms=round(reply.e2e_ms, 3),
        prompt_tokens=reply.prompt_tokens,
        completion_tokens=reply.completion_tokens,
        cached_tokens=reply.cached_tokens,
        error=verdict,
        index=item.planned.index,
        sent_s=round(reply.sent_at - first, 3),
        ttft_open_ms=_rounded(item.ttft_open_ms),
        longest_gap_ms=_rounded(max(reply.itl_ms, default=None)),
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
