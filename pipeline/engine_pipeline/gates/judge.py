"""From answers and measurements to findings: the rules of a gate. Pure.

Scores are judged by their bounds. Attempts that could not be judged might all have passed or all
have failed; only if the bar lies between the two is the finding errored.
"""

from __future__ import annotations

from math import fsum
from typing import TYPE_CHECKING

from engine_pipeline.gates import stats
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import Finding, TagScore
from engine_pipeline.gates.standing import standing_findings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine_pipeline.gates.policy import GatePolicy, PerformanceBars, QualityBars
    from engine_pipeline.gates.report import CaseResult, PerformanceResult
    from engine_pipeline.gates.under_load_result import UnderLoadResult

# Scores are sums of fractions: 0.1 + 0.2 must meet a bar of 0.3.
_ROUNDING = 1e-9
_NAMED_CASES = 8
_REASON_CHARS = 2000
MUST = "must-pass cases"
SCORE_UNDER_LOAD = "score under load"
AGREEMENT_UNDER_LOAD = "same answers under load"


def tag_scores(cases: Sequence[CaseResult], bars: QualityBars) -> tuple[TagScore, ...]:
    """The score of each tag, in order of name."""
    scores = []
    counted = [case for case in cases if case.counts]
    for tag in sorted({tag for case in counted for tag in case.tags}):
        tagged = [case for case in counted if tag in case.tags]
        scores.append(
            TagScore(
                tag=tag,
                cases=len(tagged),
                passed=sum(case.outcome is Outcome.PASSED for case in tagged),
                score=mean_score(tagged),
                bar=bars.min_tag_score.get(tag),
            )
        )
    return tuple(scores)


def judge_quality(cases: Sequence[CaseResult], bars: QualityBars) -> tuple[Finding, ...]:
    """Findings on the score, on each tag with a bar, and on the cases that must pass.

    Cases in quarantine are in none of them; two more findings tell of them, and of flaky cases.
    """
    counted = [case for case in cases if case.counts]
    findings = [_score_finding("score", counted, bars.min_score, bars.tag_weights)]
    for tag, bar in sorted(bars.min_tag_score.items()):
        tagged = [case for case in counted if tag in case.tags]
        findings.append(_score_finding(f"score of {tag}", tagged, bar, {}))
    if must := [case for case in counted if case.must]:
        findings.append(_must_finding(must))
    return (*findings, *standing_findings(cases))


def judge_under_load(
    result: UnderLoadResult, before: Sequence[CaseResult], policy: GatePolicy
) -> tuple[Finding, ...]:
    """Findings on a second pass under load: score, cases that must pass, answers that stayed.

    Args:
        result: of that pass.
        before: results of the first one.
        policy: the gate's, which asks for such a pass.
    """
    bars = policy.under_load
    assert bars is not None
    counted = [case for case in result.cases if case.counts]
    wanted = policy.quality.min_score if bars.min_score is None else bars.min_score
    score = _score_finding(SCORE_UNDER_LOAD, counted, wanted, policy.quality.tag_weights)
    passed = {case.id for case in before if case.outcome is Outcome.PASSED}
    lost = [case.id for case in counted if case.outcome is Outcome.FAILED and case.id in passed]
    if lost:
        told = f"{score.reason}; passed before and not under load: {_names(lost)}"
        score = score.model_copy(update={"reason": told[:_REASON_CHARS]})
    findings = [score]
    if must := [case for case in counted if case.must]:
        findings.append(_must_finding(must, f"{MUST} under load"))
    return (*findings, _agreement_finding(result, len(counted), bars.min_agreement))


def _agreement_finding(result: UnderLoadResult, counted: int, bar: float | None) -> Finding:
    """Cases that could not be compared might all have stayed the same, or none of them."""
    least = result.same / counted if counted else 0.0
    most = (result.same + counted - result.compared) / counted if counted else 1.0
    reason = (
        f"{result.same} of {result.compared} cases answered with the same words, "
        f"{result.concurrency} in flight against {result.before}"
    )
    reason += "" if bar is None else f", want a share of at least {bar:.3f}"
    if counted > result.compared:
        reason += f"; {counted - result.compared} could not be compared"
    if result.different:
        reason += f"; other words: {_names([one.id for one in result.different])}"
    if bar is None:
        outcome, reason = Outcome.SKIPPED, f"{reason}; no bar is set, so it decides nothing"
    elif least >= bar - _ROUNDING:
        outcome = Outcome.PASSED
    elif most < bar - _ROUNDING:
        outcome = Outcome.FAILED
    else:
        outcome = Outcome.ERRORED
    return Finding(name=AGREEMENT_UNDER_LOAD, outcome=outcome, reason=reason[:_REASON_CHARS])


def judge_performance(result: PerformanceResult, bars: PerformanceBars) -> tuple[Finding, ...]:
    """A finding for each bar."""
    wanted = (
        ("ttft_p95_ms", bars.max_ttft_p95_ms),
        ("tpot_p95_ms", bars.max_tpot_p95_ms),
        ("output_tokens_per_s", bars.min_output_tokens_per_s),
    )
    return tuple(_bar_finding(name, bar, result) for name, bar in wanted if bar is not None)


def mean_score(cases: Sequence[CaseResult], weights: Mapping[str, float] | None = None) -> float:
    """The mean of the cases' scores, each as heavy as the heaviest of its tags."""
    return _mean([case.score for case in cases], _weights(cases, weights or {}))


def _weights(cases: Sequence[CaseResult], weights: Mapping[str, float]) -> list[float]:
    heavy = ([weights[tag] for tag in case.tags if tag in weights] for case in cases)
    return [max(found, default=1.0) for found in heavy]


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    if not values:
        return 0.0
    return fsum(v * w for v, w in zip(values, weights, strict=True)) / fsum(weights)


def _score_finding(
    name: str, cases: Sequence[CaseResult], bar: float, tag_weights: Mapping[str, float]
) -> Finding:
    if not cases:
        return Finding(name=name, outcome=Outcome.ERRORED, reason="no case was asked that counts")
    weights = _weights(cases, tag_weights)
    least = _mean([case.score for case in cases], weights)
    most = least + _mean([case.errored / len(case.attempts) for case in cases], weights)
    passed = sum(case.outcome is Outcome.PASSED for case in cases)
    open_ones = sum(case.errored > 0 for case in cases)
    if least >= bar - _ROUNDING:
        outcome = Outcome.PASSED
    elif most < bar - _ROUNDING:
        outcome = Outcome.FAILED
    else:
        outcome = Outcome.ERRORED
    reason = f"{least:.3f}, want at least {bar:.3f} ({passed} of {len(cases)} cases passed"
    reason += f", {open_ones} could not be judged" if open_ones else ""
    reason += f"; weights: {_said_weights(tag_weights)})" if tag_weights else ")"
    return Finding(name=name, outcome=outcome, reason=reason)


def _said_weights(weights: Mapping[str, float]) -> str:
    return ", ".join(f"{tag} {weight:g}" for tag, weight in sorted(weights.items()))


def _must_finding(cases: Sequence[CaseResult], name: str = MUST) -> Finding:
    failed = [case.id for case in cases if case.outcome is Outcome.FAILED]
    errored = [case.id for case in cases if case.outcome is Outcome.ERRORED]
    if failed:
        outcome, reason = (
            Outcome.FAILED,
            f"{_names(failed)} of {len(cases)} failed, want all passed",
        )
    elif errored:
        outcome, reason = Outcome.ERRORED, f"{_names(errored)} of {len(cases)} could not be judged"
    else:
        outcome = Outcome.PASSED
        reason = "the only one passed" if len(cases) == 1 else f"all {len(cases)} passed"
    return Finding(name=name, outcome=outcome, reason=reason)


def _names(ids: list[str]) -> str:
    more = f" and {len(ids) - _NAMED_CASES} more" if len(ids) > _NAMED_CASES else ""
    return ", ".join(ids[:_NAMED_CASES]) + more


def _bar_finding(name: str, bar: float, result: PerformanceResult) -> Finding:
    measured = result.metrics.get(name)
    if result.unreached:
        reason = f"{result.unreached} of {result.requests} requests never reached the engine: "
        reason += _kinds(result)
        return Finding(name=name, outcome=Outcome.ERRORED, reason=reason)
    if measured is None:
        reason = (
            f"not measured: the server sends no usage, so tokens cannot be counted; bar {bar:g}"
        )
        return Finding(name=name, outcome=Outcome.ERRORED, reason=reason)
    if name.startswith("output"):
        verdict, side = stats.at_least(measured.estimate, bar, measured.unit), "least"
    else:
        verdict, side = stats.at_most(measured.estimate, bar, measured.unit), "most"
    value = "beyond measure" if measured.value is None else f"{measured.value:.4g} {measured.unit}"
    reason = f"{value}, want at {side} {bar:g} {measured.unit}: {verdict.why}"
    if verdict.outcome is Outcome.INCONCLUSIVE:
        reason += f"; {stats.settled_by(measured.estimate, bar, result.requests)}"
    if result.failed:
        reason += f"; failed requests: {_kinds(result)}"
    return Finding(name=name, outcome=verdict.outcome, reason=reason)


def _kinds(result: PerformanceResult) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(result.failed.items()))
