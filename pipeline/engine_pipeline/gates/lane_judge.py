"""Whether a lane's bars are met. Pure.

A bar that is missed by less than the client itself adds is not missed for sure; and where the
client was late with more requests than its share, nothing is sure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates import stats
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import Finding
from engine_pipeline.nvml.use import RULE

if TYPE_CHECKING:
    from engine_pipeline.gates.lane_bars import LaneBars
    from engine_pipeline.gates.lane_result import LaneResult, LaneStep


def judge_lane(result: LaneResult, bars: LaneBars) -> tuple[Finding, ...]:
    """A finding for each bar at each step; the bars hold at every step."""
    if result.trouble is not None:
        # Whose fault it is, the gate's first finding says.
        reason = f"not judged: {result.trouble}"
        return (Finding(name=result.name, outcome=Outcome.SKIPPED, reason=reason),)
    found: list[Finding] = []
    for step in result.steps:
        at = f" at {step.in_flight}" if len(result.steps) > 1 else ""
        if (late := _late(step, bars)) is not None:
            name = f"{result.name}{at}: client"
            found.append(Finding(name=name, outcome=Outcome.INCONCLUSIVE, reason=late))
            continue
        if (why := too_disturbed(step.disturbed, step.requests)) is not None:
            name = f"{result.name}{at}: GPU"
            found.append(Finding(name=name, outcome=Outcome.INCONCLUSIVE, reason=why))
            continue
        for metric, bar in _wanted(bars):
            outcome, reason = _verdict(metric, bar, step, result)
            found.append(
                Finding(name=f"{result.name}{at}: {metric}", outcome=outcome, reason=reason[:2000])
            )
    return tuple(found)


def too_disturbed(disturbed: int, counted: int) -> str | None:
    """Why nothing is decided, where half of the requests or more do not count."""
    if disturbed == 0 or disturbed < counted:
        return None
    return (
        f"{disturbed} requests do not count, and too few are left: {RULE}; see to cooling and "
        "power, then run the gate again"
    )


def _wanted(bars: LaneBars) -> list[tuple[str, float]]:
    floors = {
        "good_share": bars.min_good_share,
        "good_per_s": bars.min_good_per_s,
        "output_tokens_per_s": bars.min_output_tokens_per_s,
    }
    named = [(name, bar) for name, bar in floors.items() if bar is not None]
    return [*sorted(bars.ceilings.items()), *named]


def _late(step: LaneStep, bars: LaneBars) -> str | None:
    if step.late_share is None or step.late_share <= bars.max_late_share:
        return None
    return (
        f"the client could not keep up: it began with {step.late_share:.1%} of the requests more "
        f"than {bars.max_client_lag_ms:g} ms after their time (p99 {step.lag_p99_ms:g} ms late), "
        f"at most {bars.max_late_share:.0%} may be; measure from another machine or at a lower rate"
    )


def _verdict(metric: str, bar: float, step: LaneStep, result: LaneResult) -> tuple[Outcome, str]:
    if step.unreached:
        why = f"{step.unreached} of {step.requests} requests never reached the engine: "
        return Outcome.ERRORED, why + _kinds(step)
    measured = step.metrics.get(metric)
    if measured is None:
        return Outcome.ERRORED, f"not measured: {_why_not(metric, step)}; bar {bar:g}"
    unit = measured.unit
    is_floor = not metric.endswith("_ms")
    if is_floor:
        verdict, side = stats.at_least(measured.estimate, bar, unit), "least"
    else:
        verdict, side = stats.at_most(measured.estimate, bar, unit), "most"
    outcome, why = verdict.outcome, verdict.why
    if outcome is Outcome.INCONCLUSIVE:
        why += f"; {stats.settled_by(measured.estimate, bar, step.requests)}"
    added = _added_ms(metric, result)
    missed = outcome is Outcome.FAILED and not is_floor
    if missed and measured.estimate.low - added <= bar:
        outcome = Outcome.INCONCLUSIVE
        why = f"beyond the bar by less than the client itself may add ({added:.3g} ms)"
    value = "beyond measure" if measured.value is None else f"{measured.value:.4g} {unit}"
    said = f"{value}, want at {side} {bar:g}: {why}"
    return outcome, said + (f"; failed requests: {_kinds(step)}" if step.failed else "")


def _why_not(metric: str, step: LaneStep) -> str:
    if metric.startswith(("tpot", "output_tokens")):
        return "the server sends no usage, so tokens cannot be counted"
    return f"{step.requests} requests in {step.window_s:g} s are too few to tell"


def _added_ms(metric: str, result: LaneResult) -> float:
    client = result.client
    if client is None:
        return 0.0
    return client.ttft_p95_ms if metric.startswith(("ttft", "e2e")) else client.tpot_p50_ms


def _kinds(step: LaneStep) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(step.failed.items()))
