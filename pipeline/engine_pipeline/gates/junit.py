"""A report as JUnit XML: a test case for each golden case and for each bar. Pure.

    failure   judged, and not good enough
    error     could not be judged, or too little evidence (`type` says which)
    skipped   not judged

The dialect is the one that Jenkins, GitLab and the GitHub actions for test reports all read: suites
of cases with counts, seconds, a message and a text. The same report gives the same bytes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.visible import visible
from engine_pipeline.gates.words import VERDICT, title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.report import Attempt, CaseResult, Report

_ELEMENT = {
    Outcome.FAILED: "failure",
    Outcome.ERRORED: "error",
    Outcome.INCONCLUSIVE: "error",
    Outcome.SKIPPED: "skipped",
}
_MESSAGE_CHARS = 300


def to_junit(reports: Sequence[Report]) -> str:
    """One document of two suites for each report: its bars and its golden prompts."""
    root = ET.Element("testsuites", name="engine-ci gate")
    suites = [suite for report in reports for suite in (_bars(report), _cases(report))]
    root.extend(suites)
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in suites)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _bars(report: Report) -> ET.Element:
    suite = _suite(report, "bars", [finding.outcome for finding in report.findings])
    properties = ET.SubElement(suite, "properties")
    for name, value in (
        ("engine", report.subject if report.engine is None else str(report.engine)),
        ("suite", f"{report.suite_name} {report.suite}"),
        ("policy", str(report.policy_digest)),
        ("outcome", VERDICT[report.outcome]),
        ("host", report.host),
    ):
        ET.SubElement(properties, "property", name=name, value=visible(value))
    seconds = (report.finished_at - report.started_at).total_seconds()
    suite.set("time", f"{seconds:.3f}")
    for finding in report.findings:
        # A bar takes no time of its own.
        case = _case(suite, title(finding.name), f"{report.gate}.bars", 0.0)
        _add_verdict(case, finding.outcome, finding.reason, finding.reason)
    return suite


def _cases(report: Report) -> ET.Element:
    suite = _suite(report, "golden prompts", [_counted(case) for case in report.cases])
    total = 0.0
    for case in report.cases:
        seconds = sum(attempt.e2e_ms for attempt in case.attempts) / 1000
        total += seconds
        element = _case(suite, case.id, f"{report.gate}.{report.suite_name}", seconds)
        reasons = [reason for attempt in case.attempts for reason in _reasons(attempt)]
        first = reasons[0] if reasons else VERDICT[case.outcome]
        if not case.counts:
            first = f"in quarantine, {VERDICT[case.outcome]}: {first}"
        _add_verdict(element, _counted(case), first, _told(case, reasons))
    suite.set("time", f"{total:.3f}")
    return suite


def _named(report: Report) -> str:
    return report.subject if report.engine is None else report.engine.short


def _counted(case: CaseResult) -> Outcome:
    """A case in quarantine fails nothing."""
    held = not case.counts and case.outcome is not Outcome.PASSED
    return Outcome.SKIPPED if held else case.outcome


def _suite(report: Report, what: str, outcomes: Sequence[Outcome]) -> ET.Element:
    counts = Counter(_ELEMENT.get(outcome) for outcome in outcomes)
    return ET.Element(
        "testsuite",
        name=visible(f"{report.gate} on {_named(report)}: {what}"),
        tests=str(len(outcomes)),
        failures=str(counts["failure"]),
        errors=str(counts["error"]),
        skipped=str(counts["skipped"]),
        timestamp=f"{report.started_at:%Y-%m-%dT%H:%M:%S}",
        hostname=visible(report.device.sku if report.device else "not known"),
    )


def _case(suite: ET.Element, name: str, classname: str, seconds: float) -> ET.Element:
    return ET.SubElement(
        suite, "testcase", name=visible(name), classname=classname, time=f"{seconds:.3f}"
    )


def _add_verdict(case: ET.Element, outcome: Outcome, message: str, text: str) -> None:
    if outcome is Outcome.PASSED:
        return
    one_line = visible(" ".join(message.split()))
    element = ET.SubElement(case, _ELEMENT[outcome], message=one_line[:_MESSAGE_CHARS])
    if outcome is not Outcome.SKIPPED:
        element.set("type", VERDICT[outcome])
        element.text = visible(text)


def _reasons(attempt: Attempt) -> list[str]:
    if attempt.error is not None:
        return [attempt.error]
    return [f"{verdict.kind}: {verdict.reason}" for verdict in attempt.checks if not verdict.passed]


def _told(case: CaseResult, reasons: Sequence[str]) -> str:
    texts = [a.said for a in case.attempts if a.outcome is not Outcome.PASSED and a.said]
    answers = [f"answer: {text}" for text in texts]
    asked = [f"asked: {case.asked}"] if case.asked else []
    return "\n".join([*reasons, *asked, *answers])
