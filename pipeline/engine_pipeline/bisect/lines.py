"""The lines that a gate's report will have, known before anything is judged. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from engine_pipeline.gates.calibration_bars import SPEED_METRICS
from engine_pipeline.gates.first_words import LOGPROBS
from engine_pipeline.gates.gate_zero import DEGENERATE
from engine_pipeline.gates.judge import AGREEMENT_UNDER_LOAD, MUST, SCORE_UNDER_LOAD
from engine_pipeline.gates.paired_gate import PAIRED
from engine_pipeline.gates.template_ask import TEMPLATE
from engine_pipeline.yaml_problems import nearest
from engine_registry.errors import InvalidInput

if TYPE_CHECKING:
    from engine_pipeline.bisect.bisect import Criterion
    from engine_pipeline.gates.policy import GatePolicy
    from engine_pipeline.gates.suite import Suite

_NAMED_CASES = 12


def check_criterion(criterion: Criterion, gate: str, policy: GatePolicy, suite: Suite) -> None:
    """Refuse a case or a line that no report of this gate can have.

    Raises:
        InvalidInput: names those that there are.
    """
    if criterion.case is not None:
        cases = [case.id for case in suite.cases]
        if criterion.case not in cases:
            raise _unknown("case", criterion.case, f"suite {suite.name}", cases, "--case")
    if criterion.bar is not None:
        lines = lines_of(policy, suite)
        begins = tuple(policy.lanes or {})
        begins += ("parity with ",) if policy.parity is not None else ()
        if criterion.bar not in lines and not criterion.bar.startswith(begins):
            # What a lane and a parent add is only known once they were measured.
            shown = [*lines, *(f"{begin.strip()} …" for begin in begins)]
            raise _unknown("line", criterion.bar, f"a report of gate {gate}", shown, "--bar")


def lines_of(policy: GatePolicy, suite: Suite) -> tuple[str, ...]:
    """Findings that can pass and fail, in the order of the report; without lanes and parity."""
    lines = ["load", LOGPROBS, DEGENERATE]
    if suite.template is not None:
        lines.append(TEMPLATE)
    lines += ["score", *(f"score of {tag}" for tag in sorted(policy.quality.min_tag_score))]
    must = [case for case in suite.cases if case.must]
    if must:
        lines.append(MUST)
    again = policy.under_load
    if again is not None:
        lines.append(SCORE_UNDER_LOAD)
        if any(again.judges(case.tags) for case in must):
            lines.append(f"{MUST} under load")
        if again.min_agreement is not None:
            lines.append(AGREEMENT_UNDER_LOAD)
    if policy.performance is not None:
        bars = policy.performance
        lines += [line for bar, line in SPEED_METRICS.items() if getattr(bars, bar) is not None]
    if policy.paired is not None:
        lines.append(PAIRED)
    return tuple(lines)


def _unknown(what: str, name: str, owner: str, known: list[str], option: str) -> InvalidInput:
    close = nearest(name, known)
    meant = f"; did you mean {close}?" if close else ""
    listed = ", ".join(known[:_NAMED_CASES])
    listed += f" and {len(known) - _NAMED_CASES} more" if len(known) > _NAMED_CASES else ""
    return InvalidInput(
        f"{option}: {owner} has no {what} {name!r}{meant}; it has {listed}",
        hint=f"name one of them with {option}",
        reference=f"unknown-{what}",
    )
