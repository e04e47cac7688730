"""What reports call outcomes and metrics, for people. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from engine_pipeline.gates.outcome import Outcome

if TYPE_CHECKING:
    from engine_pipeline.gates.report import Report

VERDICT = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.ERRORED: "could not judge",
    Outcome.INCONCLUSIVE: "too little evidence",
    Outcome.SKIPPED: "not judged",
}
MEANING = {
    Outcome.PASSED: "judged, and good enough",
    Outcome.FAILED: "judged, and not good enough",
    Outcome.ERRORED: "could not be judged; this says nothing about the engine",
    Outcome.INCONCLUSIVE: "judged, but the evidence is too thin for a verdict",
    Outcome.SKIPPED: "not examined",
}
_LATENCY = re.compile(r"(ttft|tpot|itl|e2e)_p(\d+)_ms")
_SERIES = {
    "ttft": "Time to first token",
    "tpot": "Time per further token",
    "itl": "Gap between tokens",
    "e2e": "Whole answer",
}
_TITLES = {
    "load": "Loads",
    "score": "Score, all cases",
    "output_tokens_per_s": "Output tokens per second",
    "must-pass cases": "Cases that must pass",
    "against live": "Speed against live, in turn",
    "performance": "Speed",
    "quality": "Quality",
}


def title(name: str) -> str:
    """What a metric or a finding is called; its own name if it has no better one."""
    if latency := _LATENCY.fullmatch(name):
        return f"{_SERIES[latency.group(1)]}, p{latency.group(2)}"
    if name.startswith("score of "):
        return f"Score, {name.removeprefix('score of ')}"
    return _TITLES.get(name, name)


def next_step(report: Report) -> str:
    """What whoever reads the verdict does now."""
    again = f"enginectl gate {report.engine.short} --gate {report.gate}"
    match report.outcome:
        case Outcome.PASSED:
            return f"It may go live wherever gate {report.gate} is asked for."
        case Outcome.FAILED:
            return (
                f"It goes live nowhere that gate {report.gate} is asked for. Judging it again "
                "will not help: mend the engine, or change a bar in a review."
            )
        case Outcome.ERRORED:
            return f"Mend what is named above, then judge again: {again}"
        case Outcome.INCONCLUSIVE:
            return f"Judge again on a quieter machine, or ask for more requests: {again}"
        case Outcome.SKIPPED:
            return "Nothing was examined, so nothing may go live on it."
