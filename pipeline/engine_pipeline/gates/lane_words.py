"""The lanes of a report, for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.lane_bars import METRICS
from engine_pipeline.gates.words import failures, title
from engine_pipeline.nvml import use
from engine_pipeline.workload.model import describe

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.lane_result import LaneResult, LaneStep
    from engine_pipeline.gates.measured import Measured
    from engine_pipeline.gates.paired_result import ClientOverhead
    from engine_pipeline.nvml.use import BoardUse

HEAD = ("metric", "p50", "p90", "p95", "p99", "95 % bounds of the p95")
# A board that is busy for less of the time does something else, or nothing.
_AT_WORK = 0.01
_QUANTILES = ("p50", "p90", "p95", "p99")


def metric_of(lanes: Sequence[LaneResult], finding: str) -> tuple[str, Measured] | None:
    """The metric that a finding of a lane is about, such as `interactive at 4: ttft_p95_ms`."""
    where, _, metric = finding.partition(": ")
    for lane in lanes:
        for step in lane.steps:
            at = f" at {step.in_flight}" if len(lane.steps) > 1 else ""
            if where == lane.name + at and metric in step.metrics:
                return metric, step.metrics[metric]
    return None


def lane_facts(lane: LaneResult) -> list[str]:
    """What load it was, a sentence each."""
    said = [f"{name.capitalize()}: {text}." for name, text in describe(lane.workload)]
    said.append(f"Workload {lane.workload.name}, {lane.digest}.")
    if not lane.ignores_eos:
        said.append("The server obeys the end of sequence, so answers are shorter than asked for.")
    if not lane.lengths_known:
        said.append("The server counts no tokens, so a word was taken for one.")
    if lane.client is not None:
        said.append(added(lane.client))
    return said


def added(client: ClientOverhead) -> str:
    """What the client itself adds, in a sentence."""
    return (
        f"The client itself adds at most {client.ttft_p50_ms:.2f} ms to a TTFT "
        f"(p95 {client.ttft_p95_ms:.2f} ms) and {client.tpot_p50_ms:.2f} ms to a TPOT: "
        f"what it shows of a server that answers at once, {client.in_flight} in flight."
    )


def step_title(step: LaneStep) -> str:
    """Which step it is."""
    if step.in_flight is None:
        offered = "" if step.offered_per_s is None else f" ({step.offered_per_s:.3g} requests/s)"
        return f"{step.requests} requests as they came{offered}"
    return f"{step.requests} requests, {step.in_flight} in flight"


def step_facts(step: LaneStep) -> list[str]:
    """What there is to say of a step beside its percentiles, a sentence each."""
    failed = failures(step.failed)
    said = [f"Failed: {failed}."]
    if (share := step.metrics.get("good_share")) is not None:
        said.append(f"Goodput: {_share(share)} of the requests were good{_rate(step)}.")
    if (tokens := step.metrics.get("output_tokens_per_s")) is not None:
        said.append(f"Throughput: {_value(tokens.value)} tokens/s; it decides nothing alone.")
    if step.late_share is not None:
        said.append(
            f"The client began with {step.late_share:.1%} of them late "
            f"(p99 {step.lag_p99_ms:.3g} ms); times count from when a request was due."
        )
    said += gpu_facts(step.gpus, step.disturbed, step.metrics.get("output_tokens_per_s"))
    said.append(
        f"In flight at once: {step.most_in_flight} at most. Tokens on average: "
        f"{_value(step.prompt_tokens_mean)} in, {_value(step.output_tokens_mean)} out; "
        f"{_percent(step.cached_share)} of those in from the prompt cache."
    )
    server = step.server
    if server is None or server.queue_mean_ms is None:
        said.append("Queue time: the server does not tell it.")
    else:
        tail = server.queue_p95_at_most_ms
        said.append(
            f"Queue time, by the server: {server.queue_mean_ms:.4g} ms on average"
            + ("." if tail is None else f", p95 at most {tail:.4g} ms.")
        )
    if server is not None and server.cache_hit_share is not None:
        said.append(f"Prefix cache, by the server: {server.cache_hit_share:.0%} hits.")
    return said


def gpu_facts(gpus: Sequence[BoardUse], disturbed: int, tokens: Measured | None) -> list[str]:
    """How the boards did, a sentence each; nothing where there are none."""
    said = [f"GPU {use.words(board)}." for board in gpus]
    worked = [board for board in gpus if (board.busy_mean_share or 0.0) > _AT_WORK]
    if tokens is not None and tokens.value is not None and worked:
        said.append(
            f"Throughput per GPU at work: {tokens.value / len(worked):.4g} tokens/s "
            f"({len(worked)} of them)."
        )
    if disturbed:
        said.append(f"{disturbed} requests do not count: {use.RULE}.")
    return said


def step_rows(step: LaneStep) -> list[tuple[str, ...]]:
    """One row of HEAD for each kind of time that was measured."""
    rows = []
    for series in dict.fromkeys(name.partition("_")[0] for name in METRICS):
        found = [step.metrics.get(f"{series}_{q}_ms") for q in _QUANTILES]
        if found[0] is None:
            continue
        values = [_value(one.value) if one is not None else "" for one in found]
        tail = found[2]
        rows.append(
            (
                title(f"{series}_p50_ms").partition(",")[0] + ", ms",
                *values,
                "" if tail is None else f"{_value(tail.low)} to {_value(tail.high)}",
            )
        )
    return rows


def _rate(step: LaneStep) -> str:
    rate = step.metrics.get("good_per_s")
    return "" if rate is None else f", {_value(rate.value)} of them per second"


def _share(measured: Measured) -> str:
    low, high = measured.low or 0.0, 1.0 if measured.high is None else measured.high
    return f"{measured.value or 0.0:.1%} ({low:.1%} to {high:.1%})"


def _value(value: float | None) -> str:
    return "beyond measure" if value is None else f"{value:.4g}"


def _percent(share: float | None) -> str:
    return "an unknown share" if share is None else f"{share:.0%}"
