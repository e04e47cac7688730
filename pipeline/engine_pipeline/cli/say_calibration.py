"""A calibration as people see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.cli.render import Page
    from engine_pipeline.gates.calibration import BarEvidence, CasesEvidence, GateCalibration


def draw(out: Page, found: GateCalibration, said: list[str], path: Path) -> None:
    """Every bar in the noise, what wavers, the warnings, and where it is kept."""
    out.table(
        ("bar", "now", "mean", "deviation", "n", "proposed", "catches", "now catches", "needs"),
        [_row(name, one) for name, one in found.bars.items()],
    )
    if found.cases is not None:
        _draw_cases(out, found.cases, found.runs)
    for line in said:
        out.verdict("warning", line)
    worth = found.worth
    facts: list[tuple[str, object]] = [("kept in", path)]
    if found.dropped:
        facts.append(("disturbed", f"speed of {found.dropped} of {found.runs} runs"))
    needs = f"what catches a change of {worth.change:.0%} or a drop of {worth.drop:.1%}"
    out.facts([*facts, ("needs", needs)])


def _row(name: str, one: BarEvidence) -> tuple[str, ...]:
    return (
        name,
        "-" if one.bar is None else f"{one.bar:g}",
        f"{one.mean:g}",
        f"{one.deviation:g}",
        str(one.n),
        "-" if one.proposed is None else f"{one.proposed:g}",
        _share(one.catches),
        _share(one.catches_now),
        "-" if one.needs is None else f"{one.needs} for {one.of}",
    )


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _draw_cases(out: Page, cases: CasesEvidence, runs: int) -> None:
    for name, one in cases.unsteady.items():
        out.line(f"case {name} passed {one.passed} of {one.asked} times")
    if cases.must_fail_at_most is not None and cases.must:
        # With `under_load` the cases are asked twice in each run.
        noun = "runs" if cases.runs == runs else "passes"
        those = "" if noun == "runs" else f" of {runs} runs"
        who = "the 1 case" if cases.must == 1 else f"all {cases.must} cases"
        out.line(
            f"{who} that must pass did in all {cases.runs} {noun}{those}: by chance one fails in "
            f"at most {cases.must_fail_at_most:.0%} of {noun}, as far as {cases.runs} tell"
        )
