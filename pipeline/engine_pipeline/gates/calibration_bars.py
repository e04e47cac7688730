"""Every bar of a gate that measuring again and again says something of. Pure.

A bar is named by its path in the gate, as `channels.yaml` has it: `quality.min_score`,
`lanes.chat.ceilings.ttft_p95_ms`. A lane of several steps, and a gate with several parents, have
such a bar at each: ` at 4`, ` with prod`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import fsum
from typing import TYPE_CHECKING, Any

from engine_pipeline.gates.check_kinds import Similar
from engine_pipeline.gates.judge import mean_score
from engine_pipeline.gates.load import Load
from engine_pipeline.workload.arrival import Concurrency
from engine_registry.digest import Digest
from engine_registry.documents import canonical_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from engine_pipeline.gates.examine import Asked
    from engine_pipeline.gates.lane_bars import LaneBars
    from engine_pipeline.gates.parity_bars import ParityBars
    from engine_pipeline.gates.parity_result import ParityResult
    from engine_pipeline.gates.policy import GatePolicy
    from engine_pipeline.gates.report import CaseResult
    from engine_pipeline.gates.speed_gate import Speed
    from engine_pipeline.gates.suite import Case, Suite
    from engine_pipeline.workload.model import Workload

PERFORMANCE, QUALITY, UNDER_LOAD, PARITY = "performance", "quality", "under_load", "parity"
SPEED_METRICS = {
    "max_ttft_p95_ms": "ttft_p95_ms",
    "max_tpot_p95_ms": "tpot_p95_ms",
    "min_output_tokens_per_s": "output_tokens_per_s",
}
_FLOORS = ("min_good_share", "min_good_per_s", "min_output_tokens_per_s")
_PARITY = ("min_prefix_agreement", "max_real_divergences", "min_top1_agreement", "max_kl")
# What decides on bars of parity that have no path in one number: judged by a test of its own.
MAX_TAG_DROP = "max_tag_drop"


class Kind(StrEnum):
    """What a bar is held against."""

    MEASURED = "measured"  # a time or a rate: spreads from run to run
    CASES = "cases"  # a share of cases that pass, or of requests that are good ones
    DISTANCE = "distance"  # how far answers are from a parent's


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One bar.

    Attributes:
        name: its path in the gate, and at which step or with which parent.
        part: of the gate, as `basis_of` names it.
        value: as it stands; None: measured all the same, and no bar is set.
        is_floor: whether more is better.
        of: requests, cases or prompts that one value comes from; 0: not known beforehand.
        weights: of the cases of a score; none: all count alike.
    """

    name: str
    part: str
    kind: Kind
    value: float | None
    is_floor: bool
    of: int
    weights: tuple[float, ...] = ()


def bars_of(policy: GatePolicy, suite: Suite, workloads: Mapping[str, Workload]) -> tuple[Bar, ...]:
    """Every bar of a gate, in the order of the policy."""
    found = list(_quality(policy, suite.cases))
    if (speed := policy.performance) is not None:
        for name in SPEED_METRICS:
            found.append(
                Bar(
                    name=f"{PERFORMANCE}.{name}",
                    part=PERFORMANCE,
                    kind=Kind.MEASURED,
                    value=getattr(speed, name),
                    is_floor=name.startswith("min"),
                    of=speed.requests,
                )
            )
    for name, lane in (policy.lanes or {}).items():
        found += _lane(name, lane, lane.workload or workloads[name])
    if policy.parity is not None:
        found += _of_parity(policy.parity, suite)
    return tuple(found)


def basis_of(
    policy: GatePolicy, suite: Suite, workloads: Mapping[str, Workload]
) -> dict[str, Digest]:
    """What each part of a gate measures, bars left out; with another one a calibration is void."""
    asked: dict[str, Any] = {
        "concurrency": policy.concurrency,
        "sampling": suite.sampling.model_dump(mode="json"),
        "cases": [_asked_of(case) for case in suite.cases],
    }
    weights = dict(policy.quality.tag_weights)
    found: dict[str, dict[str, Any]] = {QUALITY: asked | {"weights": weights}}
    if policy.under_load is not None:
        shown = policy.under_load.model_dump(mode="json", include={"concurrency", "tags"})
        found[UNDER_LOAD] = asked | {"weights": weights, "under_load": shown}
    if policy.performance is not None:
        load = policy.performance.model_dump(mode="json", include=set(Load.model_fields))
        found[PERFORMANCE] = load
    for name, lane in (policy.lanes or {}).items():
        workload = lane.workload or workloads[name]
        slo = None if lane.slo is None else lane.slo.model_dump(mode="json")
        found[f"lanes.{name}"] = {"workload": str(workload.digest), "slo": slo}
    if policy.parity is not None:
        how = {"parent", "prompts", "forced_tokens", "near_tie_logprob"}
        found[PARITY] = asked | policy.parity.model_dump(mode="json", include=how)
    return {part: Digest.of(canonical_json(plain)) for part, plain in found.items()}


def _asked_of(case: Case) -> dict[str, Any]:
    """A case without what it once answered, unless an answer is compared with that."""
    compared = any(isinstance(check, Similar) and not check.to for check in case.checks)
    return case.model_dump(mode="json", exclude=set() if compared else {"recorded"})


def values_of_answers(asked: Asked, policy: GatePolicy) -> dict[str, float]:
    """What one run shows of the bars on answers."""
    counted = [case for case in asked.cases if case.counts]
    values = {f"{QUALITY}.min_score": mean_score(counted, policy.quality.tag_weights)}
    for tag in policy.quality.min_tag_score:
        tagged = [case for case in counted if tag in case.tags]
        values[f"{QUALITY}.min_tag_score.{tag}"] = mean_score(tagged)
    again = asked.under_load
    if again is not None:
        loaded = [case for case in again.cases if case.counts]
        values[f"{UNDER_LOAD}.min_score"] = mean_score(loaded, policy.quality.tag_weights)
        if again.compared:
            values[f"{UNDER_LOAD}.min_agreement"] = again.same / again.compared
    return values


def values_of_speed(speed: Speed) -> dict[str, float]:
    """What one run shows of the bars on speed; what is beyond measure is left out."""
    values: dict[str, float | None] = {}
    if speed.performance is not None:
        for name, metric in SPEED_METRICS.items():
            if metric in speed.performance.metrics:
                found = speed.performance.metrics[metric].value
                values[f"{PERFORMANCE}.{name}"] = found
    for lane in speed.lanes:
        for step in lane.steps:
            at = _at(step.in_flight, len(lane.steps))
            for metric, measured in step.metrics.items():
                path = f"ceilings.{metric}" if metric.endswith("_ms") else f"min_{metric}"
                values[f"lanes.{lane.name}.{path}{at}"] = measured.value
    return {name: value for name, value in values.items() if value is not None}


def values_of_parity(results: Sequence[ParityResult], bars: ParityBars) -> dict[str, float]:
    """What one comparison with each parent shows; parents that are not there are left out.

    Results are in the order in which the bars name parents.
    """
    values: dict[str, float | None] = {}
    for parent, result in zip(bars.parent, results, strict=True):
        measures = result.measures
        if measures is None:
            continue
        found = (
            measures.prefix_agreement,
            measures.real / measures.prompts,
            measures.top1_agreement,
            measures.kl,
        )
        beside = _with(parent, len(results))
        for name, value in zip(_PARITY, found, strict=True):
            values[f"{PARITY}.{name}{beside}"] = value
        drops = [one.drop for one in result.tags]
        values[f"{PARITY}.{MAX_TAG_DROP}{beside}"] = max(drops, default=None)
    return {name: value for name, value in values.items() if value is not None}


def _quality(policy: GatePolicy, cases: Sequence[Case]) -> Iterator[Bar]:
    bars = policy.quality
    weights = tuple(
        max((bars.tag_weights[tag] for tag in case.tags if tag in bars.tag_weights), default=1.0)
        for case in cases
    )
    yield _score(f"{QUALITY}.min_score", QUALITY, bars.min_score, len(cases), weights)
    for tag, bar in sorted(bars.min_tag_score.items()):
        tagged = sum(tag in case.tags for case in cases)
        yield _score(f"{QUALITY}.min_tag_score.{tag}", QUALITY, bar, tagged)
    again = policy.under_load
    if again is not None:
        judged = [at for at, case in enumerate(cases) if again.judges(case.tags)]
        bar = bars.min_score if again.min_score is None else again.min_score
        heavy = tuple(weights[at] for at in judged)
        yield _score(f"{UNDER_LOAD}.min_score", UNDER_LOAD, bar, len(judged), heavy)
        name = f"{UNDER_LOAD}.min_agreement"
        yield _score(name, UNDER_LOAD, again.min_agreement, len(judged))


def _score(
    name: str, part: str, bar: float | None, of: int, weights: tuple[float, ...] = ()
) -> Bar:
    return Bar(
        name=name, part=part, kind=Kind.CASES, value=bar, is_floor=True, of=of, weights=weights
    )


def _lane(name: str, bars: LaneBars, workload: Workload) -> Iterator[Bar]:
    wanted = [(f"ceilings.{metric}", bar) for metric, bar in sorted(bars.ceilings.items())]
    wanted += [(one, bar) for one in _FLOORS if (bar := getattr(bars, one)) is not None]
    arrival = workload.arrival
    steps = arrival.steps if isinstance(arrival, Concurrency) else (None,)
    of = workload.requests or 0
    if workload.duration_s is not None and not isinstance(arrival, Concurrency):
        of = round(arrival.rate_per_s * workload.duration_s)
    for step in steps:
        for path, bar in wanted:
            yield Bar(
                name=f"lanes.{name}.{path}{_at(step, len(steps))}",
                part=f"lanes.{name}",
                kind=Kind.CASES if path == "min_good_share" and of else Kind.MEASURED,
                value=bar,
                is_floor=path.startswith("min"),
                of=of,
            )


def _of_parity(bars: ParityBars, suite: Suite) -> Iterator[Bar]:
    prompts = min(bars.prompts or len(suite.cases), len(suite.cases))
    for parent in bars.parent:
        for name in (*_PARITY, MAX_TAG_DROP):
            if (bar := getattr(bars, name)) is not None:
                yield Bar(
                    name=f"{PARITY}.{name}{_with(parent, len(bars.parent))}",
                    part=PARITY,
                    kind=Kind.DISTANCE,
                    value=bar,
                    is_floor=name.startswith("min"),
                    of=prompts,
                )


def _at(step: int | None, steps: int) -> str:
    return f" at {step}" if steps > 1 else ""


def _with(parent: str, parents: int) -> str:
    return f" with {parent}" if parents > 1 else ""


def effective(weights: Sequence[float]) -> float:
    """As how many cases of equal weight these count (Kish)."""
    return fsum(weights) ** 2 / fsum(one * one for one in weights)


def unsteady(runs: Sequence[Sequence[CaseResult]]) -> dict[str, tuple[int, int]]:
    """Cases that did not always pass: by id, how often they did and how often they were asked."""
    passed: dict[str, list[float]] = {}
    asked: dict[str, int] = {}
    for cases in runs:
        for case in cases:
            passed.setdefault(case.id, []).append(case.score * len(case.attempts))
            asked[case.id] = asked.get(case.id, 0) + len(case.attempts)
    counts = {name: round(fsum(found)) for name, found in passed.items()}
    return {name: (n, asked[name]) for name, n in counts.items() if n < asked[name]}
