"""The part of a report that compares with parents, for people. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.parity_result import DivergenceKind

if TYPE_CHECKING:
    from engine_pipeline.gates.parity_result import Divergence, ParityResult

HEAD = ("measure", "outcome", "found, and the bar")
TAG_HEAD = ("cases", "n", "parent", "candidate", "lost", "gained", "p")
_SHOWN = 8
_KINDS = {
    DivergenceKind.REAL: "a change of mind",
    DivergenceKind.NEAR_TIE: "a tie-break",
    DivergenceKind.UNKNOWN: "cannot be told: the endpoint gives no log probabilities",
}


def title(result: ParityResult) -> str:
    """Whom the engine is compared with."""
    parent = result.parent
    if parent.engine is None:
        return f"Parity with {parent.named}"
    precision = f", {parent.precision}" if parent.precision else ""
    return f"Parity with {parent.named} (engine {parent.engine.short}{precision})"


def measure_rows(result: ParityResult) -> list[tuple[str, ...]]:
    """One row of HEAD for each measure."""
    return [(one.measure, str(one.outcome), one.reason) for one in result.findings]


def tag_rows(result: ParityResult) -> list[tuple[str, ...]]:
    """One row of TAG_HEAD for all cases and for each tag that differs."""
    return [
        (
            one.tag or "all",
            str(one.cases),
            str(one.parent_passed),
            str(one.candidate_passed),
            str(one.lost),
            str(one.gained),
            f"{one.p:.3g}",
        )
        for one in result.tags
        if one.tag is None or one.lost or one.gained
    ]


def parity_facts(result: ParityResult) -> list[str]:
    """What else there is to say, a sentence each."""
    measures = result.measures
    if measures is None:
        return []
    facts = [
        f"Prompts: {measures.prompts}, {measures.identical} answered alike to the end, "
        f"{measures.near_ties} part at a near-tie, {measures.real} by a change of mind"
        + (f", {measures.unknown} unknown." if measures.unknown else ".")
    ]
    if measures.kl is not None and measures.kl_p95 is not None:
        facts.append(
            f"Positions after the same words: {measures.positions}, {measures.forced} of them "
            f"teacher-forced; KL {measures.kl:.4f} nats on average, p95 {measures.kl_p95:.4f}."
        )
    facts += [f"Not measured: {what}." for what in measures.not_measured]
    unanswered = sorted(result.unanswered.items())
    facts += [f"Not answered: {case}: {why}." for case, why in unanswered[:8]]
    asked = "kept from an earlier run" if result.reused else "asked in this run"
    if result.answers is not None:
        facts.append(f"The parent's answers: {result.answers.short}, {asked}.")
    return facts


def shown_divergences(result: ParityResult) -> tuple[tuple[Divergence, ...], int]:
    """The divergences that are worth reading, and how many more there are."""
    return result.divergences[:_SHOWN], max(len(result.divergences) - _SHOWN, 0)


def divergence_title(one: Divergence, unit: str) -> str:
    """One divergence in a line."""
    margin = "" if one.margin is None else f", margin {one.margin:.2f}"
    return f"{one.case}: after {one.at} of {one.of} {unit}, {_KINDS[one.kind]}{margin}"


def divergence_tokens(one: Divergence, unit: str) -> str:
    """What each says where they part; tokens that are spaces or breaks can be told apart."""
    theirs, mine = (
        "ends" if token is None else f"says {token!r}"
        for token in (one.parent_token, one.candidate_token)
    )
    margin = "" if one.margin is None else f" ({_KINDS[one.kind]}, margin {one.margin:.2f})"
    return f"after {one.at} of {one.of} {unit} the parent {theirs}, the candidate {mine}{margin}"


def divergence_lines(one: Divergence) -> list[str]:
    """Both texts around it."""
    before = f"…{one.shared[-60:]}" if len(one.shared) > 60 else one.shared
    return [
        f"both:      {_plain(before)}",
        f"parent:    {_plain(one.parent_text) or '(its answer is over)'}",
        f"candidate: {_plain(one.candidate_text) or '(its answer is over)'}",
    ]


def _plain(text: str) -> str:
    return text.replace("\n", "⏎")[:80]
