"""What a mirror reads from the registry: it does without what cannot be read any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine_pipeline.gates.html.document import to_html
from engine_pipeline.gates.markdown import to_markdown
from engine_pipeline.promote.live_report import report_of_live
from engine_pipeline.promote.release import lock_of
from engine_registry.errors import NotFound

if TYPE_CHECKING:
    from engine_pipeline.gates.report import Report
    from engine_pipeline.spec.lock import BuildLock
    from engine_registry.digest import Digest
    from engine_registry.record import Record
    from engine_registry.refs import ProductRef
    from engine_registry.registry import Registry


def record_of(registry: Registry, engine: Digest, build_key: str) -> Record:
    """The record of one build; raises NotFound if the engine was removed."""
    for record in registry.engines.records(engine):
        if str(record.build_key) == build_key:
            return record
    raise _gone(engine)


def newest_record(registry: Registry, engine: Digest) -> Record:
    """The record of an engine's newest build; raises NotFound if the engine was removed."""
    records = registry.engines.records(engine)
    if not records:
        raise _gone(engine)
    return records[-1]


def report_markdown(registry: Registry, attached: Digest, report: Report) -> bytes:
    """The report for people, as it was stored, or made from the report."""
    files = registry.engines.read_attachment(attached)
    return files.get("report.md") or to_markdown(report).encode()


def report_html(registry: Registry, report: Report, product: ProductRef) -> bytes:
    """The report's page, beside what was live then, `prod` before other channels."""
    there = registry.channels.channels(product)
    channels = sorted(there, key=lambda ref: ref.channel != "prod")
    return to_html(report, report_of_live(registry, report, channels)).encode()


def lock_or_none(registry: Registry, record: Record) -> BuildLock | None:
    """The lock that was built from, if this version reads it."""
    try:
        return lock_of(registry, record)
    except (ValidationError, NotFound):
        return None


def _gone(engine: Digest) -> NotFound:
    return NotFound(
        f"engine {engine.short}: no longer in this registry",
        hint="nothing to do: it was removed before it was mirrored",
        reference="engine-missing",
    )
