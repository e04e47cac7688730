"""The part of a report that compares with the live engine, for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired_bars import MOST_ROUNDS
from engine_pipeline.gates.paired_result import Side
from engine_pipeline.gates.stats import percentile

if TYPE_CHECKING:
    from engine_pipeline.gates.paired_result import Comparison, PairedResult, PairedRun

HEAD = ("metric", "live", "candidate", "ratio", "bounds", "bar", "verdict")
_SHOWN_DROPPED = 12


def paired_rows(result: PairedResult) -> list[tuple[str, ...]]:
    """One row of HEAD for each metric; `live` and `candidate` are medians over rounds, in ms."""
    return [_row(one, result) for one in result.comparisons]


def paired_facts(result: PairedResult) -> list[str]:
    """What else there is to say, a sentence each."""
    facts = [f"Live: {_who(result)}."]
    if not result.rounds:
        return facts
    dropped = [made for made in result.rounds if made.dropped is not None]
    facts.append(
        f"Rounds: {len(result.counted)} count, {len(dropped)} were dropped; {result.rule}."
    )
    facts += [f"Round {made.number} was dropped: {made.dropped}." for made in dropped][
        :_SHOWN_DROPPED
    ]
    if len(dropped) > _SHOWN_DROPPED:
        facts.append(f"And {len(dropped) - _SHOWN_DROPPED} more: see report.json.")
    if result.throughput_ratio is not None:
        facts.append(
            f"Tokens per second: {result.throughput_ratio:.3f} × live; this decides nothing."
        )
    if (client := result.client) is not None:
        facts.append(
            f"The client itself adds at most {client.ttft_p50_ms:.2f} ms to a TTFT "
            f"(p95 {client.ttft_p95_ms:.2f} ms) and {client.tpot_p50_ms:.2f} ms to a TPOT: "
            f"what it shows of a server that answers at once, {client.in_flight} in flight."
        )
    return facts


def advice(result: PairedResult, max_rounds: int) -> str | None:
    """What to do about an open verdict that `max_rounds` were allowed for; None if it is not open.

    More rounds settle what is noisy, and not what is disturbed: those are dropped like the others.
    """
    if result.outcome is not Outcome.INCONCLUSIVE:
        return None
    more = [one.more_rounds for one in result.comparisons if one.more_rounds is not None]
    dropped = len(result.rounds) - len(result.counted)
    wanted = len(result.counted) + max(more, default=0)
    if not max_rounds < wanted <= MOST_ROUNDS:
        lost = f": {dropped} of {len(result.rounds)} rounds were dropped" if dropped else ""
        return f"Run the gate again on a quiet machine{lost}; docs/speed.md says what else helps."
    return (
        f"Run the gate again on a quiet machine, or set `max_rounds: {wanted}` under `paired` in "
        "channels.yaml; docs/speed.md says what else helps."
    )


def _who(result: PairedResult) -> str:
    baseline = result.baseline
    if baseline.engine is None:
        return f"nobody ({baseline.why or 'no baseline'})"
    release = f", release {baseline.release}" if baseline.release else ""
    return f"{baseline.named}, engine {baseline.engine.short}{release}"


def _row(one: Comparison, result: PairedResult) -> tuple[str, ...]:
    live, mine = (_typical(one.metric, side, result) for side in (Side.LIVE, Side.CANDIDATE))
    bounds = (
        "" if one.low is None or one.high is None else f"{_times(one.low)} to {_times(one.high)}"
    )
    return (
        one.metric,
        live,
        mine,
        "" if one.ratio is None else _times(one.ratio),
        bounds,
        f"below {1 + one.smallest_change:.2f}",
        str(one.outcome),
    )


def _times(value: float) -> str:
    return f"{value:.3f}" if value < 10 else f"{value:.0f}"


def _typical(metric: str, side: Side, result: PairedResult) -> str:
    """The median over rounds of one engine's percentile."""
    series, _, rest = metric.rpartition("_p")
    q = int(rest.removesuffix("_ms")) / 100
    values = [
        percentile(times, q)
        for made in result.counted
        if (times := _times_of(series, made.run(side)))
    ]
    return f"{percentile(values, 0.5):.4g}" if values else ""


def _times_of(series: str, run: PairedRun) -> tuple[float, ...]:
    return run.ttft_ms if series == "ttft" else run.tpot_ms
