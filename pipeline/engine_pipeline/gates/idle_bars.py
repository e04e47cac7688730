"""Bars that no measurement is needed to doubt: they can hardly fail, or cannot pass. Pure.

Nothing is refused: a bar may be loose for a reason. `enginectl validate` warns of each. Where the
figures of parity come from: the table of planted faults in docs/parity.md.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from engine_pipeline.gates import stats
from engine_pipeline.gates.calibration_bars import Bar, Kind, bars_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from engine_pipeline.gates.lane_bars import LaneBars
    from engine_pipeline.gates.load import Load
    from engine_pipeline.gates.policy import GatePolicy
    from engine_pipeline.gates.suite import Suite
    from engine_pipeline.workload.model import Workload

_LOW_SCORE = 0.1
# Of so few cases, "not all of them lost" is a bar that somebody may mean.
_FEW_CASES = 3
# By bar of parity: from where on even a planted fault meets it, and which.
_MET_BY_FAULTS = {
    "max_kl": (0.7, "an engine with another model's chat template has 0.76"),
    "max_real_divergences": (0.9, "a broken engine parts from its parent at every prompt"),
    "max_tag_drop": (0.9, "only the loss of a whole tag is more"),
    "min_top1_agreement": (0.5, "an engine with a stretched RoPE has 0.35"),
    "min_prefix_agreement": (0.05, "an engine with a shifted vocabulary has 0.04"),
}


def idle_bars(
    gate: str, policy: GatePolicy, suite: Suite, workloads: Mapping[str, Workload]
) -> list[str]:
    """Every bar of a gate that can hardly fail, or never pass, each in one line with its reason."""
    found: list[tuple[str, float, str]] = []
    for bar in bars_of(policy, suite, workloads):
        if bar.value is None:
            continue
        if (why := _of_answers(bar, bar.value)) is not None:
            found.append((bar.name, bar.value, why))
    found += _performance(policy)
    for name, lane in (policy.lanes or {}).items():
        work = lane.workload or workloads[name]
        found += [
            (f"lanes.{name}.{path}", bar, why)
            for path, bar, why in _lane(lane, work, policy.timeout_s)
        ]
    return [f"gate {gate}: {name} {value:.12g}: {why}" for name, value, why in found]


def _of_answers(bar: Bar, value: float) -> str | None:
    match bar.kind:
        case Kind.CASES:
            named = bar.name.startswith("lanes.") or bar.name.endswith("agreement")
            return None if named else _score(bar, value)
        case Kind.DISTANCE:
            return _distance(bar, value)
        case Kind.MEASURED:
            return None


def _score(bar: Bar, value: float) -> str | None:
    fewest = math.ceil(value * bar.of - 1e-9)
    if fewest <= 1 and bar.of > _FEW_CASES:
        return f"can hardly fail: it does only where all {bar.of} cases fail"
    if value <= _LOW_SCORE:
        return f"can hardly fail: it does only where fewer than {fewest} of {bar.of} cases pass"
    return None


def _distance(bar: Bar, value: float) -> str | None:
    name = bar.name.split(".", 1)[1].split(" ", 1)[0]
    edge, why = _MET_BY_FAULTS[name]
    met = value <= edge if bar.is_floor else value >= edge
    return f"can hardly fail: {why}" if met else None


def _performance(policy: GatePolicy) -> Iterator[tuple[str, float, str]]:
    bars = policy.performance
    if bars is None:
        return
    longest_ms = policy.timeout_s * 1000
    if (ttft := bars.max_ttft_p95_ms) is not None and ttft >= longest_ms:
        yield "performance.max_ttft_p95_ms", ttft, _times_out(policy.timeout_s)
    tpot = bars.max_tpot_p95_ms
    if tpot is not None and tpot * (bars.output_tokens - 1) >= longest_ms:
        yield "performance.max_tpot_p95_ms", tpot, _times_out(policy.timeout_s)
    rate = bars.min_output_tokens_per_s
    least = bars.concurrency * bars.output_tokens / policy.timeout_s
    if rate is not None and rate <= least:
        why = f"can hardly fail: answers that all but time out still make {least:.3g} a second"
        yield "performance.min_output_tokens_per_s", rate, why
    yield from _too_few(bars)


def _too_few(bars: Load) -> Iterator[tuple[str, float, str]]:
    if bars.requests >= stats.LEAST_SAMPLES:
        return
    for name in ("max_ttft_p95_ms", "max_tpot_p95_ms"):
        if (bar := getattr(bars, name)) is not None:
            why = f"can never pass: {bars.requests} requests prove no p95; 59 do"
            yield f"performance.{name}", bar, why


def _lane(bars: LaneBars, workload: Workload, timeout_s: float) -> Iterator[tuple[str, float, str]]:
    longest_ms = timeout_s * 1000
    for metric, bar in sorted(bars.ceilings.items()):
        if metric.startswith(("ttft", "e2e")) and bar >= longest_ms:
            yield f"ceilings.{metric}", bar, _times_out(timeout_s)
    slo, share, requests = bars.slo, bars.min_good_share, workload.requests
    if slo is not None:
        asked = [one for one in (slo.max_ttft_ms, slo.max_e2e_ms) if one is not None]
        if slo.max_tpot_ms is None and all(one >= longest_ms for one in asked):
            yield "slo", min(asked), f"asks nothing: {_times_out(timeout_s)}"
    if share is None:
        return
    if share <= _LOW_SCORE:
        yield "min_good_share", share, "can hardly fail: nearly all requests may be bad ones"
    if requests is not None:
        best = stats.share_estimate(requests, requests).low
        if best < share:
            needed = math.ceil(math.log(1 - stats.CONFIDENCE) / math.log(share))
            why = f"can never pass: {requests} requests prove at most {best:.3f}; {needed} do"
            yield "min_good_share", share, why


def _times_out(timeout_s: float) -> str:
    return f"can hardly fail: what takes longer has timed out before ({timeout_s:g} s)"
