"""A report beside the report of what was live when it was made: one row per thing that was judged.

Two reports are of two times, so the difference of their numbers is told without bounds; bounds come
from a comparison in turn, where the report holds one. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import fsum
from typing import TYPE_CHECKING

from engine_pipeline.gates.judge import (
    AGREEMENT_UNDER_LOAD,
    MUST,
    SCORE_UNDER_LOAD,
    mean_score,
)
from engine_pipeline.gates.lane_metrics import SHARE
from engine_pipeline.gates.lane_words import metric_of
from engine_pipeline.gates.markdown_paired import paired_rows
from engine_pipeline.gates.words import title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.measured import Measured
    from engine_pipeline.gates.outcome import Outcome
    from engine_pipeline.gates.paired_result import PairedResult
    from engine_pipeline.gates.report import CaseResult, Finding, Report
    from engine_registry.digest import Digest

# No host is as fast now as then, so speeds of two times are never told without these words.
_APART = "at another time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Live:
    """What was live when the candidate was judged, and how it had been judged itself.

    Attributes:
        named: channel and release, for people.
        attached: digest of the report's manifest.
    """

    named: str
    attached: Digest
    report: Report


@dataclass(frozen=True, slots=True, kw_only=True)
class NoLive:
    """There is nothing to set the candidate beside, and why."""

    reason: str


Beside = Live | NoLive


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table.

    Attributes:
        live: None if there is no baseline or it has no such number.
        bounds: of the candidate's value.
        difference: candidate against live, in words.
        bar: what was wanted.
        outcome: None: reported only.
        reason: why, in the words of the finding.
    """

    name: str
    title: str
    candidate: str
    live: str | None = None
    bounds: str | None = None
    difference: str | None = None
    bar: str | None = None
    outcome: Outcome | None = None
    reason: str = ""


def rows(report: Report, beside: Beside) -> tuple[Row, ...]:
    """A row for each finding, for each metric compared in turn with live, for each other metric."""
    live = beside.report if isinstance(beside, Live) else None
    judged = [_finding_row(finding, report, live) for finding in report.findings]
    names = {row.name for row in judged}
    metrics = report.performance.metrics if report.performance else {}
    rest = [_metric_row(name, report, live) for name in sorted(metrics) if name not in names]
    return (*judged, *_in_turn(report.paired), *rest)


def case_of(live: Beside, case_id: str) -> CaseResult | None:
    """The same case in the live engine's report."""
    cases = live.report.cases if isinstance(live, Live) else ()
    return next((case for case in cases if case.id == case_id), None)


def _in_turn(result: PairedResult | None) -> list[Row]:
    if result is None:
        return []
    made = []
    for one, (name, live, mine, ratio, bounds, bar, _) in zip(
        result.comparisons, paired_rows(result), strict=True
    ):
        made.append(
            Row(
                name=f"paired-{name}",
                title=f"{title(name)}, in turn with live",
                candidate=f"{mine} ms" if mine else "–",
                live=f"{live} ms" if live else None,
                difference=f"{ratio} × live" + (f" ({bounds})" if bounds else "")
                if ratio
                else None,
                bar=f"{bar} × live",
                outcome=one.outcome,
                reason=one.reason,
            )
        )
    return made


def _finding_row(finding: Finding, report: Report, live: Report | None) -> Row:
    if report.performance and finding.name in report.performance.metrics:
        return _metric_row(finding.name, report, live, finding)
    if (found := metric_of(report.lanes, finding.name)) is not None:
        return _lane_row(finding, found, live)
    mine = _score(report, finding.name)
    if mine is None:
        return Row(
            name=finding.name,
            title=title(finding.name),
            candidate=_plain(report, finding),
            live=_plain(live, finding) if live else None,
            outcome=finding.outcome,
            reason=finding.reason,
        )
    theirs = _score(live, finding.name) if live else None
    return Row(
        name=finding.name,
        title=title(finding.name),
        candidate=f"{mine[0]:.3f}",
        live=None if theirs is None else f"{theirs[0]:.3f}",
        difference=None if theirs is None else _score_difference(mine[1], theirs[1]),
        bar=_score_bar(report, finding.name),
        outcome=finding.outcome,
        reason=finding.reason,
    )


def _lane_row(finding: Finding, found: tuple[str, Measured], live: Report | None) -> Row:
    metric, mine = found
    other = metric_of(live.lanes, finding.name) if live else None
    return Row(
        name=finding.name,
        title=f"{title(metric)}, {finding.name.partition(': ')[0]}",
        candidate=_lane_number(mine),
        live=None if other is None else _lane_number(other[1]),
        bounds=None if metric == "good_share" else _bounds(mine),
        outcome=finding.outcome,
        reason=finding.reason,
    )


def _lane_number(measured: Measured) -> str:
    if measured.unit == SHARE and measured.value is not None:
        return f"{measured.value:.1%}"
    return number(measured.value, measured.unit)


def _plain(report: Report, finding: Finding) -> str:
    if finding.name == "load" and report.load.load_s is not None:
        return f"{report.load.load_s:.1f} s"
    again = report.under_load
    if again is not None and finding.name == SCORE_UNDER_LOAD:
        counted = [case for case in again.cases if case.counts]
        return f"{mean_score(counted, report.policy.quality.tag_weights):.3f}"
    if again is not None and finding.name == AGREEMENT_UNDER_LOAD:
        return f"{again.same} of {again.compared}"
    if finding.name == MUST:
        must = [case for case in report.cases if case.must and case.counts]
        return f"{sum(case.outcome == 'passed' for case in must)} of {len(must)}"
    return "–"


def _score(report: Report, name: str) -> tuple[float, tuple[CaseResult, ...]] | None:
    """The score that a finding is about, with the cases behind it; None for other findings."""
    counted = tuple(case for case in report.cases if case.counts)
    weights: dict[str, float] = {}
    if name == "score":
        cases, weights = counted, report.policy.quality.tag_weights
    elif name.startswith("score of "):
        tag = name.removeprefix("score of ")
        cases = tuple(case for case in counted if tag in case.tags)
    else:
        return None
    return (mean_score(cases, weights), cases) if cases else None


def _score_bar(report: Report, name: str) -> str | None:
    quality = report.policy.quality
    bar = (
        quality.min_score
        if name == "score"
        else quality.min_tag_score.get(name.removeprefix("score of "))
    )
    return None if bar is None else f"≥ {bar:.3f}"


def _score_difference(mine: Sequence[CaseResult], theirs: Sequence[CaseResult]) -> str:
    before = {case.id: case.score for case in theirs}
    changes = [case.score - before[case.id] for case in mine if case.id in before]
    worse, better = sum(c < 0 for c in changes), sum(c > 0 for c in changes)
    if not worse and not better:
        return "no case changed"
    parts = [f"{count} {word}" for count, word in ((worse, "worse"), (better, "better")) if count]
    return f"{fsum(changes) / len(changes):+.3f}: {', '.join(parts)}".replace("-", "−")


def _metric_row(
    name: str, report: Report, live: Report | None, finding: Finding | None = None
) -> Row:
    assert report.performance is not None
    mine = report.performance.metrics[name]
    theirs = live.performance.metrics.get(name) if live and live.performance else None
    return Row(
        name=name,
        title=title(name),
        candidate=number(mine.value, mine.unit),
        live=None if theirs is None else number(theirs.value, theirs.unit),
        bounds=_bounds(mine),
        difference=None if theirs is None else _change(name, mine, theirs),
        bar=speed_bar(report, name),
        outcome=finding.outcome if finding else None,
        reason=finding.reason if finding else "",
    )


def speed_bar(report: Report, name: str) -> str | None:
    """The bar on a metric, in words; None if it has none."""
    bar = bar_value(report, name)
    if bar is None:
        return None
    sign, unit = ("≥", "tokens/s") if name.startswith("output") else ("≤", "ms")
    return f"{sign} {bar:,g} {unit}"


def bar_value(report: Report, name: str) -> float | None:
    """The ceiling or floor that the policy sets on a metric; None if it sets none."""
    bars = report.policy.performance
    if bars is None:
        return None
    return {
        "ttft_p95_ms": bars.max_ttft_p95_ms,
        "tpot_p95_ms": bars.max_tpot_p95_ms,
        "output_tokens_per_s": bars.min_output_tokens_per_s,
    }.get(name)


def number(value: float | None, unit: str) -> str:
    """Four significant digits at most, three from a hundred on: `1,234 ms`, `36.2 ms`."""
    if value is None:
        return "beyond measure"
    return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"


def _bounds(item: Measured) -> str:
    if item.high is None:
        return f"{item.n} samples, no upper bound"
    low = number(item.low, "").strip()
    return f"{low} to {number(item.high, item.unit)}"


def _change(name: str, mine: Measured, theirs: Measured) -> str | None:
    if mine.value is None or not theirs.value:
        return None
    share = mine.value / theirs.value - 1
    more, less = ("more", "fewer") if name.startswith("output") else ("slower", "faster")
    if abs(share) < 0.005:
        return f"the same, {_APART}"
    return f"{abs(share):.0%} {more if share > 0 else less}, {_APART}"
