"""A suite's references against what an engine says now: what recording it would change."""

from __future__ import annotations

import asyncio
import difflib
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from engine_pipeline.gates.parity_run import AskingEnded, ask_all
from engine_pipeline.gates.suite import Recorded
from engine_pipeline.gates.template_ask import record_template
from engine_pipeline.gates.template_file import TEMPLATE_FILE, template_text
from engine_registry.errors import CouldNotJudge

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from engine_pipeline.gates.parity_run import Asked
    from engine_pipeline.gates.starter import Starter
    from engine_pipeline.gates.suite import Case, Reference, Suite
    from engine_pipeline.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherAnswer:
    """A case that the engine answers otherwise than recorded.

    Attributes:
        recorded: None: nothing was recorded yet.
        now: its most frequent answer, how often of how many times.
        passed: whether that passes the case's checks.
    """

    case: str
    recorded: str | None
    now: Recorded
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """What a recording would write, and how that differs.

    Attributes:
        text: `template.yaml` as this engine has it.
        diff: its lines against the file that is there, as `diff -u` prints them; none if equal.
        compared: cases that were asked and answered.
        answers: those of them that the engine answers otherwise.
        unanswered: cases that it did not answer, with why.
    """

    text: str
    diff: tuple[str, ...]
    compared: int = 0
    answers: tuple[OtherAnswer, ...] = ()
    unanswered: dict[str, str] = field(default_factory=dict)

    @property
    def recordable(self) -> dict[str, Recorded]:
        """By case, the answers that may be recorded: a reference passes its own checks."""
        return {one.case: one.now for one in self.answers if one.passed}


def review(
    starter: Starter,
    suite: Suite,
    suite_dir: Path,
    reference: Reference,
    *,
    cases: Sequence[Case],
    runs: int,
    timeout_s: float,
    progress: Progress,
) -> Reviewed:
    """Serve the engine, ask it, and compare; nothing is written.

    Args:
        starter: of the engine.
        suite: whose references.
        suite_dir: where its `template.yaml` is, or would be.
        reference: who the engine is, as the file names it.
        cases: those whose answers are compared with what is recorded.
        runs: how often each of them is asked.
        timeout_s: longest wait for one answer.
        progress: told of each phase.

    Raises:
        DidNotLoad, CouldNotServe: there is no server to ask.
        CouldNotJudge: the server does not tell what it makes of a chat, or stopped answering.
    """
    progress.phase("template", f"suite {suite.name}")
    told: list[Asked] = []
    with starter.serve() as server:
        goldens = asyncio.run(
            record_template(server.endpoint, suite.template, reference, timeout_s=timeout_s)
        )
        for number in range(1, runs + 1 if cases else 1):
            progress.phase("answers", f"{len(cases)} cases, run {number} of {runs}")
            try:
                told.append(ask_all(server, suite, cases, timeout_s=timeout_s, progress=progress))
            except AskingEnded as error:
                raise CouldNotJudge(
                    f"suite {suite.name}: the engine stopped answering: {error.reason}",
                    hint="look for trouble with `enginectl doctor`, then run the command again",
                    reference="references-not-answered",
                ) from error
    path = suite_dir / TEMPLATE_FILE
    known = path.read_text(encoding="utf-8") if path.is_file() else ""
    text = template_text(goldens)
    diff = difflib.unified_diff(
        known.splitlines(), text.splitlines(), "recorded", "this engine", lineterm="", n=2
    )
    answered = [case for case in cases if any(case.id in one.answers for one in told)]
    return Reviewed(
        text=text,
        diff=tuple(diff),
        compared=len(answered),
        answers=_others(answered, told),
        unanswered={name: why for one in told for name, why in one.unanswered.items()},
    )


def _others(cases: Sequence[Case], told: Sequence[Asked]) -> tuple[OtherAnswer, ...]:
    found = []
    for case in cases:
        answers = [one.answers[case.id] for one in told if case.id in one.answers]
        [(text, times)] = Counter(answer.text for answer in answers).most_common(1)
        if case.recorded is not None and case.recorded.text == text:
            continue
        found.append(
            OtherAnswer(
                case=case.id,
                recorded=None if case.recorded is None else case.recorded.text,
                now=Recorded(text=text, agreement=round(times / len(told), 4), n=len(told)),
                passed=next(answer.passed for answer in answers if answer.text == text),
            )
        )
    return tuple(found)
