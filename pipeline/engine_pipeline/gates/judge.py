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

    from engine_pipeline.gates.policy import PerformanceBars, QualityBars
    from engine_pipeline.gates.report import CaseResult, PerformanceResult

# Scores are sums of fractions: 0.1 + 0.2 must meet a bar of 0.3.
_ROUNDING = 1e-9
_NAMED_CASES = 8


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


def _must_finding(cases: Sequence[CaseResult]) -> Finding:
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
        outcome, reason = Outcome.PASSED, f"all {len(cases)} passed"
    return Finding(name="must-pass cases", outcome=outcome, reason=reason)


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
    if result.failed:
        reason += f"; failed requests: {_kinds(result)}"
    return Finding(name=name, outcome=verdict.outcome, reason=reason)


def _kinds(result: PerformanceResult) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(result.failed.items()))
