"""Reports attached to an engine, read and checked, as the promotion rules see them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pydantic import ValidationError

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import (
    CREATED,
    DEVICE,
    DRIVER,
    GATE,
    OUTCOME,
    POLICY,
    RUNTIME,
    SUITE,
    Report,
)
from engine_pipeline.promote.findings import Evidence, counting_evidence
from engine_registry import manifest
from engine_registry.ahead import read_all
from engine_registry.digest import Digest
from engine_registry.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_pipeline.gates.report import Device
    from engine_pipeline.promote.findings import Wanted
    from engine_registry.record import ReferrerLink
    from engine_registry.registry import Registry

REPORT_FILE = "report.json"


def read_report(registry: Registry, engine: Digest, attached: Digest) -> Report:
    """The report behind an attached manifest, checked to be about `engine`.

    Raises:
        NotFound, IntegrityError: bytes are missing, damaged, or of another engine.
    """
    data = registry.engines.read_attachment(attached).get(REPORT_FILE, b"")
    try:
        report = Report.model_validate_json(data)
    except ValidationError as error:
        raise IntegrityError(
            f"report {attached.short} of engine {engine.short}: no readable {REPORT_FILE}",
            hint=f"judge the engine again: `enginectl gate {engine.short} --again`",
            reference="report-damaged",
        ) from error
    if report.engine != engine:
        raise IntegrityError(
            f"report {attached.short} is about {report.subject}, it is attached to {engine.short}",
            hint="run `enginectl verify`",
            reference="report-misplaced",
        )
    return report


def read_evidence(
    registry: Registry, engine: Digest, wanted: Mapping[str, Wanted]
) -> tuple[Evidence, ...]:
    """For each gate the reports that count under the wanted policy and suite, else the newest.

    Only these are opened; which they are is known from the listing.
    """
    links = registry.engines.referrers(engine, manifest.REPORT_ARTIFACT)
    wanted_links = []
    for gate, want in wanted.items():
        same = [link for link in links if link.annotations.get(GATE) == gate]
        fitting = {
            link.manifest: link
            for link in same
            if link.annotations.get(POLICY) == str(want.policy)
            and link.annotations.get(SUITE) == str(want.suite)
            and want.takes(_runtime(link))
        }
        listed = [_listed(link, want) for link in fitting.values()]
        wanted_links += [fitting[one.report] for one in counting_evidence(gate, want, listed)]
        if same and not fitting:
            wanted_links.append(max(same, key=_created))
    read = read_all(registry.stores, lambda link: _evidence(registry, engine, link), wanted_links)
    return tuple(evidence() for evidence in read)


def deciding_report(
    registry: Registry, engine: Digest, gate: str, wanted: Wanted, device: Device
) -> tuple[Report, Digest] | None:
    """The newest report of this gate on this device under what is wanted, if it passed or failed.

    Errored and inconclusive ones decide nothing, so judging again is never skipped for them.
    """
    same = {
        GATE: gate,
        POLICY: str(wanted.policy),
        SUITE: str(wanted.suite),
        DEVICE: device.host_class,
    }
    links = [
        link
        for link in registry.engines.referrers(engine, manifest.REPORT_ARTIFACT)
        if same.items() <= link.annotations.items() and wanted.takes(_runtime(link))
    ]
    newest = max(links, key=_created, default=None)
    if newest is None:
        return None
    report = read_report(registry, engine, newest.manifest)
    decides = report.outcome in {Outcome.PASSED, Outcome.FAILED} and report.device == device
    return (report, newest.manifest) if decides else None


def _runtime(link: ReferrerLink) -> Digest | None:
    text = link.annotations.get(RUNTIME)
    return None if text is None else Digest.parse(text)


def _created(link: ReferrerLink) -> str:
    return link.annotations.get(CREATED, "")


def _listed(link: ReferrerLink, want: Wanted) -> Evidence:
    """What a listing tells of a fitting report: enough to know whether it counts."""
    notes = link.annotations
    created, outcome = _created(link), notes.get(OUTCOME, "")
    return Evidence(
        gate=notes[GATE],
        outcome=Outcome(outcome) if outcome in set(Outcome) else Outcome.ERRORED,
        policy=want.policy,
        suite=want.suite,
        report=link.manifest,
        at=datetime.fromisoformat(created) if created else datetime.min.replace(tzinfo=UTC),
        host_class=notes.get(DEVICE, ""),
        driver=notes.get(DRIVER),
        runtime=_runtime(link),
    )


def _evidence(registry: Registry, engine: Digest, link: ReferrerLink) -> Evidence:
    report = read_report(registry, engine, link.manifest)
    return Evidence(
        gate=report.gate,
        outcome=report.outcome,
        policy=report.policy_digest,
        suite=report.suite,
        report=link.manifest,
        at=report.finished_at,
        host_class=report.host,
        driver=None if report.device is None else report.device.driver,
        runtime=report.runtime_config,
        no_baseline=report.no_baseline,
        quarantine_ends=report.quarantine_ends,
    )
