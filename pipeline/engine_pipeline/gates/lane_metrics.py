"""From the requests of one step of a lane to its metrics. Pure.

In an open loop times count from when a request was due, not from when it was sent: what a slow
server, or a slow client, made it wait is part of what whoever asked has waited.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.gates import stats
from engine_pipeline.gates.lane_result import LaneSample, LaneStep, ServerSaid
from engine_pipeline.gates.measured import Measured
from engine_pipeline.gates.speed import (
    cached_share,
    mean_of_known,
    percentiles,
    steady_window,
    tokens_by_slot,
    unreached,
)
from engine_pipeline.nvml.use import overlaps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.lane_bars import LaneBars, Slo
    from engine_pipeline.gates.reply import Reply
    from engine_pipeline.workload.requests import Planned

NOT_SENT = "not-sent"
# The unit of a share.
SHARE = "of requests"
GOODPUT = ("good_share", "good_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One request of a lane and what came of it; times of one monotonic clock.

    Attributes:
        due_at: when it was to be sent; None in a closed loop.
        began_at: when the client began with it: connecting and sending come after.
        reply: None: it was never sent, since so many were waiting already.
    """

    planned: Planned
    due_at: float | None
    began_at: float
    reply: Reply | None

    @property
    def lag_ms(self) -> float:
        """How late the client was."""
        return 0.0 if self.due_at is None else max(self.began_at - self.due_at, 0.0) * 1000

    def wait_ms(self, until: float) -> float:
        """From when it was due, or sent, until then."""
        assert self.reply is not None
        since = self.reply.sent_at if self.due_at is None else self.due_at
        return (until - since) * 1000


def failure(sent: Sent, *, ignores_eos: bool) -> str | None:
    """What makes a request count as failed; None if it is good. See `speed.failure`."""
    reply = sent.reply
    if reply is None:
        return NOT_SENT
    if reply.error is not None:
        return reply.error.name
    if not reply.event_at:
        return "no-tokens"
    if ignores_eos and reply.completion_tokens != sent.planned.output_tokens:
        return "wrong-length"
    return None


def summarise_step(
    sent: Sequence[Sent],
    bars: LaneBars,
    *,
    in_flight: int | None,
    most_in_flight: int,
    ignores_eos: bool,
    server: ServerSaid | None = None,
) -> LaneStep:
    """The metrics of one step; `sent` in any order, at least one."""
    verdicts = [failure(one, ignores_eos=ignores_eos) for one in sent]
    good = [one for one, verdict in zip(sent, verdicts, strict=True) if verdict is None]
    replies = [one.reply for one in good if one.reply is not None]
    start, end = _window(sent, in_flight)
    began = min(one.began_at if one.due_at is None else one.due_at for one in sent)
    samples = tuple(
        _sample(one, verdict, began) for one, verdict in zip(sent, verdicts, strict=True)
    )
    metrics = _latencies(good, samples)
    metrics |= _tokens(replies, start, end)
    is_open = in_flight is None
    lags = [one.lag_ms for one in sent]
    step = LaneStep(
        in_flight=in_flight,
        requests=len(sent),
        most_in_flight=most_in_flight,
        failed=dict(sorted(Counter(verdict for verdict in verdicts if verdict).items())),
        unreached=sum(one.reply is not None and unreached(one.reply) for one in sent),
        metrics=metrics,
        late_share=None,
        lag_p99_ms=round(stats.percentile(lags, 0.99), 3) if is_open else None,
        offered_per_s=round(len(sent) / (end - start), 3) if is_open and end > start else None,
        window_s=round(max(end - start, 0.0), 3),
        prompt_tokens_mean=mean_of_known([reply.prompt_tokens for reply in replies]),
        output_tokens_mean=mean_of_known([reply.completion_tokens for reply in replies]),
        cached_share=cached_share(replies),
        server=server,
        samples=samples,
    )
    return judged_by(step, bars)


def judged_by(step: LaneStep, bars: LaneBars) -> LaneStep:
    """The same step, with goodput and lateness as these bars have them.

    From what is stored alone, so that another SLO needs no other measurement.
    """
    metrics = {name: found for name, found in step.metrics.items() if name not in GOODPUT}
    if bars.slo is not None:
        metrics |= _goodput(step, bars.slo)
    late = sum(sample.lag_ms > bars.max_client_lag_ms for sample in step.samples)
    share = None if step.in_flight is not None else round(late / len(step.samples), 4)
    return step.model_copy(update={"metrics": metrics, "late_share": share})


def undisturbed(sent: Sequence[Sent], spans: Sequence[tuple[float, float]]) -> list[Sent]:
    """Those during which no board was slowed down by what is not its own."""
    return [
        one
        for one in sent
        if one.reply is None or not overlaps(one.began_at, one.reply.ended_at, spans)
    ]


def is_good(sample: LaneSample, slo: Slo) -> bool:
    """Whether a request met all that the SLO asks; one that failed did not.

    One answered with a single token has no time per further token, and is not held to one.
    """
    if sample.error is not None or sample.ttft_ms is None:
        return False
    wanted = (
        (sample.ttft_ms, slo.max_ttft_ms),
        (sample.tpot_ms, slo.max_tpot_ms),
        (sample.e2e_ms, slo.max_e2e_ms),
    )
    return all(bar is None or value is None or value <= bar for value, bar in wanted)


def _window(sent: Sequence[Sent], in_flight: int | None) -> tuple[float, float]:
    """The time that rates are taken over: all in flight, or from the first due to the last."""
    if in_flight is None:
        due = [one.due_at for one in sent if one.due_at is not None]
        return min(due), max(due)
    replies = [one.reply for one in sent if one.reply is not None]
    return steady_window(replies, in_flight)


def _latencies(good: Sequence[Sent], samples: Sequence[LaneSample]) -> dict[str, Measured]:
    failures = [math.inf] * (len(samples) - len(good))
    whole = [sample for sample in samples if sample.error is None]
    series = {
        "ttft": [one.ttft_ms for one in whole if one.ttft_ms is not None] + failures,
        "e2e": [one.e2e_ms for one in whole] + failures,
    }
    # An answer of one token has none after the first; without usage nothing is known of any.
    told = [one for one in whole if one.completion_tokens is not None]
    if len(told) == len(whole):
        series["tpot"] = [one.tpot_ms for one in whole if one.tpot_ms is not None] + failures
    gaps = [gap for one in good if one.reply is not None for gap in one.reply.itl_ms]
    return percentiles(series, gaps=gaps, answers=len(good))


def _goodput(step: LaneStep, slo: Slo) -> dict[str, Measured]:
    """Good requests: their share, and how many a second came or were sent."""
    samples = step.samples
    met = [sample for sample in samples if is_good(sample, slo)]
    found = {"good_share": Measured.of(stats.share_estimate(len(met), len(samples)), SHARE)}
    times = sorted(sample.at_s for sample in samples)
    if step.in_flight is None:
        start, end = times[0], times[-1]
    else:
        start = times[min(step.in_flight, len(times)) - 1]
        # The stored length is rounded; the last one was sent before its end.
        end = max(start + step.window_s, times[-1])
    if step.window_s <= 0 or end <= start:
        return found
    slot_s = (end - start) / stats.SLOTS
    counts = [0.0] * stats.SLOTS
    for sample in met:
        if sample.at_s >= start:
            counts[min(int((sample.at_s - start) / slot_s), stats.SLOTS - 1)] += 1
    found["good_per_s"] = Measured.of(stats.rate(counts, slot_s), "requests/s")
    return found


def _tokens(replies: Sequence[Reply], start: float, end: float) -> dict[str, Measured]:
    """Tokens per second; none where the server does not count them."""
    if end <= start or not replies or any(one.completion_tokens is None for one in replies):
        return {}
    tokens = tokens_by_slot(replies, start, end)
    slot_s = (end - start) / stats.SLOTS
    return {"output_tokens_per_s": Measured.of(stats.rate(tokens, slot_s), "tokens/s")}


def _sample(one: Sent, verdict: str | None, began: float) -> LaneSample:
    reply = one.reply
    planned = one.planned
    at = one.due_at if one.due_at is not None else (reply.sent_at if reply else one.began_at)
    first = None if reply is None or not reply.event_at else one.wait_ms(reply.event_at[0])
    return LaneSample(
        at_s=round(at - began, 6),
        lag_ms=round(one.lag_ms, 3),
        ttft_ms=None if first is None else round(first, 3),
        tpot_ms=None if reply is None or reply.tpot_ms is None else round(reply.tpot_ms, 3),
        e2e_ms=0.0 if reply is None else round(one.wait_ms(reply.ended_at), 3),
        prompt_asked=planned.prompt_tokens,
        output_asked=planned.output_tokens,
        prompt_tokens=None if reply is None else reply.prompt_tokens,
        completion_tokens=None if reply is None else reply.completion_tokens,
        cached_tokens=None if reply is None else reply.cached_tokens,
        error=verdict,
    )
