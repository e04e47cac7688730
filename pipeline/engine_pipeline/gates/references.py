"""A suite's references against what an engine says now: what recording it would change."""

from __future__ import annotations

import asyncio
import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.gates.parity_run import AskingEnded, ask_all
from engine_pipeline.gates.template_ask import record_template
from engine_pipeline.gates.template_file import TEMPLATE_FILE, template_text
from engine_registry.errors import CouldNotJudge

if TYPE_CHECKING:
    from pathlib import Path

    from engine_pipeline.gates.starter import Starter
    from engine_pipeline.gates.suite import Reference, Suite
    from engine_pipeline.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherAnswer:
    """A case whose recorded answer the engine does not give.

    Attributes:
        passed: whether what it says passes the case's checks all the same.
    """

    case: str
    recorded: str
    now: str
    passed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reviewed:
    """What a recording would write, and how that differs.

    Attributes:
        text: `template.yaml` as this engine has it.
        diff: its lines against the file that is there, as `diff -u` prints them; none if equal.
        compared: cases with a recorded answer that were asked.
        answers: those of them that the engine answers otherwise.
    """

    text: str
    diff: tuple[str, ...]
    compared: int = 0
    answers: tuple[OtherAnswer, ...] = ()


def review(
    starter: Starter,
    suite: Suite,
    suite_dir: Path,
    reference: Reference,
    *,
    timeout_s: float,
    with_answers: bool,
    progress: Progress,
) -> Reviewed:
    """Serve the engine, ask it, and compare; nothing is written.

    Args:
        starter: of the engine.
        suite: whose references.
        suite_dir: where its `template.yaml` is, or would be.
        reference: who the engine is, as the file names it.
        timeout_s: longest wait for one answer.
        with_answers: also ask every case that has a recorded answer.
        progress: told of each phase.

    Raises:
        DidNotLoad, CouldNotServe: there is no server to ask.
        CouldNotJudge: the server does not tell what it makes of a chat, or stopped answering.
    """
    cases = [case for case in suite.cases if case.recorded is not None] if with_answers else []
    progress.phase("template", f"suite {suite.name}")
    with starter.serve() as server:
        goldens = asyncio.run(
            record_template(server.endpoint, suite.template, reference, timeout_s=timeout_s)
        )
        if cases:
            progress.phase("answers", f"{len(cases)} cases")
        try:
            found = ask_all(server, suite, cases, timeout_s=timeout_s, progress=progress)
        except AskingEnded as error:
            raise CouldNotJudge(
                f"suite {suite.name}: the engine stopped answering: {error.reason}",
                hint="look for trouble with `enginectl doctor`, then run the same command again",
                reference="references-not-answered",
            ) from error
    path = suite_dir / TEMPLATE_FILE
    known = path.read_text(encoding="utf-8") if path.is_file() else ""
    text = template_text(goldens)
    others = [
        OtherAnswer(
            case=case.id, recorded=case.recorded.text, now=answer.text, passed=answer.passed
        )
        for case in cases
        if (answer := found.answers.get(case.id)) is not None
        and case.recorded is not None
        and answer.text != case.recorded.text
    ]
    diff = difflib.unified_diff(
        known.splitlines(), text.splitlines(), "recorded", "this engine", lineterm="", n=2
    )
    return Reviewed(text=text, diff=tuple(diff), compared=len(found.answers), answers=tuple(others))
