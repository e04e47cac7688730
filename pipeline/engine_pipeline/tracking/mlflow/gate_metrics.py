"""What a gate measured, as MLflow's metrics: single values, and distributions as curves. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.lane_bars import QUANTILES
from engine_pipeline.gates.latencies import STORED, STORED_IN_TURN, of_rounds, of_samples
from engine_pipeline.gates.paired_result import Side
from engine_pipeline.tracking.mlflow.names import finite, key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from engine_pipeline.gates.lane_result import LaneResult, LaneSample, LaneStep
    from engine_pipeline.gates.measured import Measured
    from engine_pipeline.gates.paired_result import PairedResult
    from engine_pipeline.gates.parity_result import ParityResult
    from engine_pipeline.gates.report import Report, Sample

# MLflow's step is the percentile, so that its own line chart shows the distribution.
_CURVE = "{}{}_ms_by_percentile"


def gate_metrics(report: Report) -> dict[str, float]:
    """Scores, measured speed and comparisons; what was beyond measure is left out.

    `score` is the mean over the cases, as in the gate's own finding.
    """
    values: dict[str, float | None] = {
        "load_s": report.load.load_s,
        "cases": len(report.cases) or None,
        "cases_not_passed": sum(case.outcome != "passed" for case in report.cases)
        if report.cases
        else None,
        "score": sum(case.score for case in report.cases) / len(report.cases)
        if report.cases
        else None,
        **{f"score.{tag.tag}": tag.score for tag in report.tags},
    }
    if report.performance is not None:
        values |= _bounded("", report.performance.metrics)
    for prefix, step in _steps(report.lanes):
        values |= _bounded(prefix, step.metrics)
    if report.paired is not None:
        values |= _paired(report.paired)
    for result in report.parity:
        values |= _parity(result)
    return finite(values)


def gate_curves(report: Report) -> dict[str, dict[int, float]]:
    """Each latency that is stored, by percentile: 1 to 99, failed requests slower than any."""
    curves: dict[str, dict[int, float]] = {}
    if report.performance is not None:
        curves |= _load("", report.performance.samples, report.performance.metrics)
    for prefix, step in _steps(report.lanes):
        curves |= _load(prefix, step.samples, step.metrics)
    if report.paired is not None:
        for side in Side:
            for series in STORED_IN_TURN:
                found = of_rounds(report.paired.counted, side, series)
                curves[_CURVE.format(f"paired.{side}.", series)] = found.by_percentile()
    return {key(name): curve for name, curve in curves.items() if curve}


def _steps(lanes: Sequence[LaneResult]) -> Iterator[tuple[str, LaneStep]]:
    for lane in lanes:
        for step in lane.steps:
            at = "" if step.in_flight is None else f".at_{step.in_flight}"
            yield f"lane.{lane.name}{at}.", step


def _bounded(prefix: str, metrics: Mapping[str, Measured]) -> dict[str, float | None]:
    values: dict[str, float | None] = {}
    for name, measured in metrics.items():
        values |= {
            f"{prefix}{name}": measured.value,
            f"{prefix}{name}.low": measured.low,
            f"{prefix}{name}.high": measured.high,
        }
    return values


def _load(
    prefix: str,
    samples: Sequence[Sample] | Sequence[LaneSample],
    metrics: Mapping[str, Measured],
) -> dict[str, dict[int, float]]:
    curves = {
        _CURVE.format(prefix, series): of_samples(samples, series).by_percentile()
        for series in STORED
    }
    steps = {round(q * 100): metrics.get(f"itl_p{q * 100:.0f}_ms") for q in QUANTILES}
    curves[_CURVE.format(prefix, "itl")] = {
        step: found.value
        for step, found in steps.items()
        if found is not None and found.value is not None
    }
    return curves


def _paired(result: PairedResult) -> dict[str, float | None]:
    values: dict[str, float | None] = {
        "paired.rounds": len(result.counted) if result.rounds else None,
        "paired.output_tokens_per_s.ratio": result.throughput_ratio,
    }
    for one in result.comparisons:
        values |= {
            f"paired.{one.metric}.ratio": one.ratio,
            f"paired.{one.metric}.ratio.low": one.low,
            f"paired.{one.metric}.ratio.high": one.high,
        }
    return values


def _parity(result: ParityResult) -> dict[str, float | None]:
    # MLflow draws what stands before a slash as a folder.
    prefix = f"parity.{result.parent.named.replace('/', '-')}."
    found = result.measures
    values: dict[str, float | None] = {
        f"{prefix}drop{'' if one.tag is None else f'.{one.tag}'}": one.drop
        for one in result.tags
        if one.cases
    }
    if found is None:
        return values
    for name in ("identical", "near_ties", "real", "unknown"):
        values[f"{prefix}{name}_share"] = (
            getattr(found, name) / found.prompts if found.prompts else None
        )
    return values | {
        f"{prefix}prompts": found.prompts,
        f"{prefix}prefix_agreement": found.prefix_agreement,
        f"{prefix}top1_agreement": found.top1_agreement,
        f"{prefix}kl": found.kl,
        f"{prefix}kl_p95": found.kl_p95,
    }
