"""What reports call outcomes and metrics, for people. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.prefix import cold_blocks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine_pipeline.gates.check_code import CheckCode
    from engine_pipeline.gates.embedding_model import EmbeddingsUsed
    from engine_pipeline.gates.judge_model import JudgeUsed
    from engine_pipeline.gates.report import Report
    from engine_pipeline.gates.template import TemplateResult

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
    "good_share": "Share of good requests",
    "good_per_s": "Good requests per second",
    "must-pass cases": "Cases that must pass",
    "must-pass cases under load": "Cases that must pass, under load",
    "score under load": "Score under load",
    "same answers under load": "Same answers under load",
    "finite log probabilities": "Log probabilities are finite",
    "degenerate answers": "Degenerate answers",
    "against live": "Speed against live, in turn",
    "chat template": "Chat template",
    "performance": "Speed",
    "quality": "Quality",
}


def failures(failed: Mapping[str, int]) -> str:
    """How many requests failed in which way, in one order for a fresh report and a stored one."""
    return ", ".join(f"{count} {kind}" for kind, count in sorted(failed.items())) or "none"


def title(name: str) -> str:
    """What a metric or a finding is called; its own name if it has no better one."""
    if latency := _LATENCY.fullmatch(name):
        return f"{_SERIES[latency.group(1)]}, p{latency.group(2)}"
    if name.startswith("score of "):
        return f"Score, {name.removeprefix('score of ')}"
    return _TITLES.get(name, name)


def template_rows(result: TemplateResult) -> tuple[tuple[str, Outcome, str], ...]:
    """Each golden chat, then each special token that is wrong: name, outcome, why."""
    chats = tuple((chat.id, chat.outcome, chat.reason) for chat in result.chats)
    specials = sorted(result.special_tokens.items())
    wrong = ((f"token {text}", Outcome.FAILED, why) for text, why in specials)
    return (*chats, *wrong)


def prefix_facts(report: Report, live: Report | None = None) -> tuple[tuple[str, str], ...]:
    """What a report says of the blocks that prompts begin with; none if the suite names none."""
    found = report.prefixes
    if found is None:
        return ()
    cold = cold_blocks(found, live.prefixes if live else None)
    named = ", ".join(f"{one.id} {one.digest.short} ({one.cases} cases)" for one in found.blocks)
    facts = [("prefix blocks", f"{found.words}: {named}")]
    if cold:
        facts.append(
            ("starts cold", f"{', '.join(cold)}: not as in live's report, no cache holds it yet")
        )
    return tuple(facts)


def where(report: Report) -> tuple[tuple[str, str], ...]:
    """What was judged, and on what, as names and values for a list of facts."""
    if (served := report.endpoint) is not None:
        return (
            ("endpoint", served.url),
            ("model", served.model),
            ("calls itself", served.named_itself or "nothing"),
            ("differs from the API", served.differences),
            ("device", "not known: somebody else runs it"),
        )
    device = report.device
    assert device is not None
    runtime = ", ".join(f"{name} {value}" for name, value in sorted(device.runtime.items()))
    return (
        ("engine", str(report.engine)),
        ("SKU", device.sku),
        ("host class", device.host_class),
        *([("GPU driver", device.driver)] if device.driver else []),
        ("processor", f"{device.cpu_model}, {device.cores} cores"),
        ("runtime", runtime or "not known"),
    )


class Advised(Protocol):
    """Answers that others helped to judge."""

    @property
    def judge(self) -> JudgeUsed | None:
        """Who decided the checks of kind `judge`."""
        ...

    @property
    def embeddings(self) -> EmbeddingsUsed | None:
        """What told how near texts are."""
        ...

    @property
    def check_code(self) -> Sequence[CheckCode]:
        """What decided the checks of kind `python`."""
        ...


def advisers(report: Advised) -> tuple[tuple[str, str], ...]:
    """Who else judged: names and values for a list of facts; none if the answers were enough."""
    told: list[tuple[str, str]] = []
    if (judge := report.judge) is not None:
        named = f", calls itself {', '.join(judge.named_itself)}" if judge.named_itself else ""
        told.append(
            (
                "judge",
                f"{judge.model} at {judge.endpoint}{named}; prompt {judge.prompt_digest.short}; "
                f"{judge.asked} asked, {judge.unanswered} without a verdict",
            )
        )
    if (model := report.embeddings) is not None:
        told.append(("embeddings", embeddings_words(model)))
    for code in report.check_code:
        copy = ", a working copy" if code.editable else ""
        where = f"{code.distribution} {code.version}{copy}"
        told.append(("check", f"{code.entry_point} of {where}, {code.code.short}"))
    return tuple(told)


def embeddings_words(used: EmbeddingsUsed) -> str:
    """Which model told how near texts are, and how often it was asked."""
    if used.endpoint is not None:
        named = f", calls itself {', '.join(used.named_itself)}" if used.named_itself else ""
        who = f"{used.model} at {used.endpoint}{named}"
    else:
        digest = "" if used.digest is None else f" {used.digest.short}"
        who = f"{used.model}{digest}, {used.pooling} pooling, {used.runtime}"
    size = "" if used.dimension is None else f"; {used.dimension} numbers"
    return f"{who}{size}; {used.asked} texts, {used.unanswered} without an embedding"


def similarity_rows(report: Report) -> tuple[tuple[str, str, str, str], ...]:
    """Each case with a measured similarity: its lowest one, the bar, the case's verdict.

    Those that came least far above their bar, or fell furthest below it, come first.
    """
    lowest: list[tuple[float, tuple[str, str, str, str]]] = []
    for case in report.cases:
        found = [
            check.similarity
            for attempt in case.attempts
            for check in attempt.checks
            if check.similarity is not None
        ]
        if not found:
            continue
        least = min(found, key=lambda one: one.value - one.at_least)
        row = (case.id, f"{least.value:.4f}", f"{least.at_least:g}", VERDICT[case.outcome])
        lowest.append((least.value - least.at_least, row))
    return tuple(row for _, row in sorted(lowest, key=lambda one: one[0]))


def next_step(report: Report) -> str:
    """What whoever reads the verdict does now."""
    if report.engine is None:
        return _next_for_endpoint(report)
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


def _next_for_endpoint(report: Report) -> str:
    no_evidence = "Nothing proves which engine it serves, so this is evidence for no release."
    match report.outcome:
        case Outcome.PASSED:
            return f"It meets the bars. {no_evidence}"
        case Outcome.FAILED:
            return f"It does not meet the bars; judging it again will not help. {no_evidence}"
        case Outcome.ERRORED | Outcome.INCONCLUSIVE | Outcome.SKIPPED:
            return f"Mend what is named above, then run the same command again. {no_evidence}"
