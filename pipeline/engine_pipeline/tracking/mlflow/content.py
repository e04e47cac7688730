"""What a run shows of a build or of a gate's report: tags, parameters, metrics, files."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine_pipeline.redact import redact
from engine_pipeline.tracking.mlflow import names
from engine_pipeline.tracking.mlflow.gate_metrics import gate_curves, gate_metrics
from engine_pipeline.tracking.mlflow.reading import lock_or_none, report_html, report_markdown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_pipeline.gates.report import Report
    from engine_registry.digest import Digest
    from engine_registry.record import Record
    from engine_registry.refs import ProductRef
    from engine_registry.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """All of a run but its name and times.

    Attributes:
        metrics: by name and step; a single value has step 0.
        artifacts: files by path.
    """

    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, Mapping[int, float]]
    artifacts: Mapping[str, bytes] = field(default_factory=dict)


def of_build(registry: Registry, record: Record) -> Content:
    """A build."""
    return Content(
        tags={
            "engine_ci.kind": "build",
            "engine_ci.engine": str(record.engine),
            "engine_ci.build_key": str(record.build_key),
            "engine_ci.target": record.target,
            "engine_ci.actor": record.built_by.name,
            "engine_ci.actor_proved_by": record.built_by.proved_by,
            "mlflow.user": record.built_by.name,
        },
        params=names.build_params(record, lock_or_none(registry, record)),
        metrics=_single(names.build_metrics(record)),
    )


def of_report(
    registry: Registry,
    report: Report,
    attached: Digest,
    record: Record,
    product: ProductRef,
    links: Mapping[str, str],
) -> Content:
    """A gate's report on an engine.

    Args:
        registry: what else is shown is read from there.
        report: what is shown.
        attached: digest of its manifest.
        record: of the engine's build.
        product: the engine's.
        links: tags that lead to the build's run.
    """
    return Content(
        tags={
            "engine_ci.kind": "gate",
            "engine_ci.engine": str(record.engine),
            "engine_ci.build_key": str(record.build_key),
            "engine_ci.report": str(attached),
            "engine_ci.outcome": str(report.outcome),
            "engine_ci.reasons": names.tag_text(redact("\n".join(report.reasons))),
            "engine_ci.target": record.target,
            **links,
        },
        params=names.gate_params(report),
        metrics={**_single(gate_metrics(report)), **gate_curves(report)},
        artifacts={
            "report.md": report_markdown(registry, attached, report),
            "report.html": report_html(registry, report, product),
        },
    )


def link(record: Record, experiment: str, run_id: str) -> dict[str, str]:
    """Tags of a gate's run that lead to the build's."""
    page = f"#/experiments/{experiment}/runs/{run_id}"
    return {
        "engine_ci.build_run": run_id,
        # MLflow shows it as the run's description.
        "mlflow.note.content": f"[The build of engine {record.engine.short}]({page})",
    }


def _single(metrics: Mapping[str, float]) -> dict[str, dict[int, float]]:
    return {name: {0: value} for name, value in metrics.items()}
