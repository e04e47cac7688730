"""A report as GitHub annotations: what did not pass, where whoever opens the job sees it. Pure.

A workflow command is one line, `::error title=…::…`; GitHub shows ten errors and ten warnings of a
step and drops the rest, so what matters most is said first and the last one says what is left.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.visible import visible
from engine_pipeline.gates.words import VERDICT, title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.gates.report import CaseResult, Report

# Of each kind and step: docs.github.com, "Workflow commands", limits of annotations.
SHOWN_OF_A_KIND = 10
# Of the file that GITHUB_STEP_SUMMARY names, for each step: docs.github.com, "Job summaries".
SUMMARY_LIMIT_BYTES = 1024 * 1024
_MESSAGE_CHARS = 1000
_KIND = {
    Outcome.FAILED: "error",
    Outcome.ERRORED: "warning",
    Outcome.INCONCLUSIVE: "warning",
}


def workflow_commands(reports: Sequence[Report]) -> list[str]:
    """One command for each bar and case that failed, could not be judged or is open.

    Failed ones are errors, the others warnings. Bars come before cases, cases that must pass before
    others.
    """
    told: dict[str, list[str]] = {"error": [], "warning": []}
    for report in reports:
        for finding in report.findings:
            what = f"{report.gate}: {title(finding.name)}"
            _tell(told, finding.outcome, what, finding.reason)
    for report in reports:
        for case in sorted(report.cases, key=lambda case: not case.must):
            if case.counts:
                _tell(told, case.outcome, f"{report.gate}: case {case.id}", _reason(case))
    return [line for kind, lines in told.items() for line in _bounded(kind, lines)]


def summary(text: str, taken_bytes: int) -> str:
    """As much of a Markdown report as the summary still holds, in whole lines, with a last word."""
    data = text.encode()
    room = SUMMARY_LIMIT_BYTES - taken_bytes
    if len(data) <= room:
        return text
    last = "\nCut here: a job summary holds 1 MiB. The whole report is in the registry.\n"
    kept = data[: max(room - len(last.encode()), 0)].decode(errors="ignore")
    whole = kept[: kept.rfind("\n") + 1]
    return whole + last if whole else ""


def _tell(told: dict[str, list[str]], outcome: Outcome, what: str, reason: str) -> None:
    kind = _KIND.get(outcome)
    if kind is not None:
        told[kind].append(_command(kind, f"{what} {VERDICT[outcome]}", reason))


def _bounded(kind: str, lines: list[str]) -> list[str]:
    left = len(lines) - SHOWN_OF_A_KIND + 1
    if left <= 1:
        return lines
    more = _command(kind, f"{left} more", "they are in the job's summary and in the report")
    return [*lines[: SHOWN_OF_A_KIND - 1], more]


def _command(kind: str, what: str, message: str) -> str:
    said = " ".join(visible(message).split())[:_MESSAGE_CHARS]
    return f"::{kind} title={_property(' '.join(visible(what).split()))}::{_data(said)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def _reason(case: CaseResult) -> str:
    for attempt in case.attempts:
        if attempt.error is not None:
            return attempt.error
        for check in attempt.checks:
            if not check.passed:
                return f"{check.kind}: {check.reason}"
    return VERDICT[case.outcome]
