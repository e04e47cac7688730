"""From the runs of a workload to findings: quick enough, and no slower than what is live? Pure.

Nothing is decided on a time that the client blurs, on runs that do not count, or on throughput
alone; each of these has words of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates import stats
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import Finding
from engine_pipeline.gates.speed_runs import BaselineState, Side
from engine_pipeline.gates.workload_bars import REQUEST_BY_REQUEST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from engine_pipeline.gates.paired import Comparison
    from engine_pipeline.gates.speed_report import ClientError, PerformanceResult
    from engine_pipeline.gates.speed_runs import StepResult, WorkloadResult
    from engine_pipeline.gates.workload_bars import AgainstLive, WorkloadBars

_TOKEN_SERIES = ("tpot", "itl", "stall")


def judge_workload(result: WorkloadResult, bars: WorkloadBars) -> tuple[Finding, ...]:
    """A finding for each bar at each step, for the comparison, and for a server in trouble."""
    findings = list(_trouble(result))
    for step in result.steps:
        findings += _limits(result, step, bars)
        if bars.against_live is not None and result.baseline.state is BaselineState.COMPARED:
            findings += _comparisons(result, step, bars, bars.against_live)
    if bars.against_live is not None and result.baseline.state is not BaselineState.COMPARED:
        findings.append(_no_comparison(result, bars, bars.against_live))
    return tuple(findings)


def _trouble(result: WorkloadResult) -> Iterator[Finding]:
    trouble = result.trouble
    if trouble is None:
        return
    is_live = trouble.side is Side.LIVE
    yield Finding(
        name=f"{result.name}: {trouble.side} server",
        # What becomes of the live engine says nothing of the candidate.
        outcome=Outcome.ERRORED if is_live else trouble.outcome,
        reason=trouble.reason,
    )


def _limits(result: WorkloadResult, step: StepResult, bars: WorkloadBars) -> Iterator[Finding]:
    for metric, bar in sorted(bars.ceilings.items()):
        yield _limit(result, step, bars, metric, bar, is_ceiling=True)
    for metric, bar in sorted(bars.floors.items()):
        yield _limit(result, step, bars, metric, bar, is_ceiling=False)


def _limit(
    result: WorkloadResult,
    step: StepResult,
    bars: WorkloadBars,
    metric: str,
    bar: float,
    *,
    is_ceiling: bool,
) -> Finding:
    name = f"{result.name}, {step.level}: {metric}"
    found = step.candidate
    if found is None:
        reason = f"no run counts of {result.rounds_made} made: {_last_spoilt(result)}"
        return Finding(name=name, outcome=Outcome.INCONCLUSIVE, reason=reason)
    if found.unreached:
        reason = f"{found.unreached} of {found.requests} requests never reached the engine: "
        return Finding(name=name, outcome=Outcome.ERRORED, reason=reason + _kinds(found))
    measured = found.metrics.get(metric)
    if measured is None:
        reason = f"not measured, bar {bar:g}: {_why_unmeasured(metric, found)}"
        return Finding(name=name, outcome=Outcome.ERRORED, reason=reason)
    judge = stats.at_most if is_ceiling else stats.at_least
    verdict = judge(measured.estimate, bar, measured.unit)
    value = "beyond measure" if measured.value is None else f"{measured.value:.4g} {measured.unit}"
    side = "most" if is_ceiling else "least"
    reason = f"{value}, want at {side} {bar:g} {measured.unit}: {verdict.why}"
    if found.failed:
        reason += f"; failed requests: {_kinds(found)}"
    outcome = verdict.outcome
    if is_ceiling and (blur := _blur(metric, bar, result.client, bars)) is not None:
        outcome, reason = Outcome.INCONCLUSIVE, f"{blur}; measured: {reason}"
    return Finding(name=name, outcome=outcome, reason=reason)


def _comparisons(
    result: WorkloadResult, step: StepResult, bars: WorkloadBars, against: AgainstLive
) -> Iterator[Finding]:
    for found in step.comparisons:
        name = f"{result.name}, {step.level}: {found.metric} against live"
        outcome, reason = found.outcome, found.reason
        if result.rounds_counted < against.rounds:
            outcome = Outcome.INCONCLUSIVE
            reason = (
                f"{result.rounds_counted} rounds count of {result.rounds_made} made, want "
                f"{against.rounds}: {_last_spoilt(result)}"
            )
        elif (blur := _blur_of(found, step, result, bars)) is not None:
            outcome, reason = Outcome.INCONCLUSIVE, f"{blur}; measured: {reason}"
        yield Finding(name=name, outcome=outcome, reason=reason)


def _blur_of(
    found: Comparison, step: StepResult, result: WorkloadResult, bars: WorkloadBars
) -> str | None:
    series = found.metric if found.metric in REQUEST_BY_REQUEST else found.metric.split("_p")[0]
    typical = step.candidate and step.candidate.metrics.get(f"{series}_p50_ms")
    if not typical or not typical.value:
        return None
    return _blur(found.metric, typical.value, result.client, bars)


def _blur(
    metric: str, time_ms: float, client: ClientError | None, bars: WorkloadBars
) -> str | None:
    """Why the client is too slow to decide on such a time; None if it is quick enough."""
    if client is None or not metric.startswith(("ttft", "e2e", *_TOKEN_SERIES)):
        return None
    error = client.tpot_p95_ms if metric.startswith(_TOKEN_SERIES) else client.ttft_p95_ms
    if error <= bars.client_error * time_ms:
        return None
    return (
        f"the client itself was {error:.3g} ms off at its p95 with {client.in_flight} in flight, "
        f"at most {bars.client_error:.0%} of {time_ms:.4g} ms is allowed: run the gate on a "
        "machine with more free cores"
    )


def _no_comparison(result: WorkloadResult, bars: WorkloadBars, against: AgainstLive) -> Finding:
    skips = {
        BaselineState.SAME: bars.bounds_latency,
        BaselineState.NONE: against.no_baseline == "skip",
    }
    outcome = Outcome.SKIPPED if skips.get(result.baseline.state) else Outcome.INCONCLUSIVE
    return Finding(
        name=f"{result.name}: against live", outcome=outcome, reason=result.baseline.reason
    )


def _last_spoilt(result: WorkloadResult) -> str:
    spoilt = [run for run in result.runs if run.spoilt is not None]
    if not spoilt:
        return "see the server's trouble" if result.trouble else "none was made"
    return f"run {spoilt[-1].number}: {spoilt[-1].spoilt}"


def _why_unmeasured(metric: str, found: PerformanceResult) -> str:
    if metric.endswith("per_gpu"):
        return "the engine uses no GPU"
    if set(found.failed) and sum(found.failed.values()) == found.requests:
        return f"every request failed: {_kinds(found)}"
    return "the server sends no usage, so tokens cannot be counted"


def _kinds(found: PerformanceResult) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(found.failed.items()))
