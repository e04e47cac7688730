"""Checks that others decide: the gate's judge, its embedding model, functions of packages."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, assert_never

from engine_pipeline.gates.asking import request_of
from engine_pipeline.gates.check import CheckVerdict
from engine_pipeline.gates.check_kinds import Consulted, Judged, Python, Similar
from engine_pipeline.gates.judge_model import count_votes
from engine_pipeline.gates.python_check import run_check

if TYPE_CHECKING:
    from collections.abc import Mapping

    from engine_pipeline.gates.check import Answer
    from engine_pipeline.gates.check_code import CheckCode
    from engine_pipeline.gates.embedder import Embedder
    from engine_pipeline.gates.embedding_model import EmbeddingsUsed
    from engine_pipeline.gates.judge_model import JudgeUsed
    from engine_pipeline.gates.llm_judge import LlmJudge
    from engine_pipeline.gates.suite import Case


@dataclass(frozen=True, slots=True, kw_only=True)
class Advisers:
    """Who is asked.

    Attributes:
        judge: None: nobody, and what it should decide stays open.
        embedder: None: the same.
        code: by entry point.
    """

    judge: LlmJudge | None = None
    embedder: Embedder | None = None
    code: Mapping[str, CheckCode] = field(default_factory=dict)

    def judge_used(self) -> JudgeUsed | None:
        """The judge, for a report; None if there is none."""
        return None if self.judge is None else self.judge.used()

    def embeddings_used(self) -> EmbeddingsUsed | None:
        """The embedding model, for a report; None if there is none."""
        return None if self.embedder is None else self.embedder.used()

    async def verdicts(self, case: Case, answer: Answer) -> tuple[CheckVerdict, ...]:
        """A verdict for each check of the case that is not decided by the answer alone."""
        wanted = [check for check in case.checks if isinstance(check, Consulted)]
        return tuple([await self._verdict(check, case, answer) for check in wanted])

    async def _verdict(self, check: Consulted, case: Case, answer: Answer) -> CheckVerdict:
        match check:
            case Judged():
                passed, reason = await self._judged(check, case, answer)
            case Similar():
                return await self._compared(check, case, answer)
            case Python():
                passed, reason = await self._ran(check, case, answer)
            case _:
                assert_never(check)
        return CheckVerdict(
            kind=check.kind, passed=passed is True, reason=reason, errored=passed is None
        )

    async def _judged(self, check: Judged, case: Case, answer: Answer) -> tuple[bool | None, str]:
        if self.judge is None:
            return None, "there is no judge here"
        _, asked = request_of(case)
        conversation: Any = asked.get("messages", asked.get("prompt"))
        said = "\n".join(part for part in (answer.text, *map(str, answer.tool_calls)) if part)
        votes = await self.judge.votes(conversation, said, check.question, check.votes)
        return count_votes(votes)

    async def _compared(self, check: Similar, case: Case, answer: Answer) -> CheckVerdict:
        if self.embedder is None:
            return CheckVerdict(
                kind=check.kind, passed=False, reason="there is no embedding model", errored=True
            )
        recorded = () if case.recorded is None else (case.recorded.text,)
        passed, reason, found = await self.embedder.compare(
            answer.text, check.to or recorded, check.at_least
        )
        return CheckVerdict(
            kind=check.kind,
            passed=passed is True,
            reason=reason,
            errored=passed is None,
            similarity=found,
        )

    async def _ran(self, check: Python, case: Case, answer: Answer) -> tuple[bool | None, str]:
        code = self.code.get(check.entry_point)
        if code is None:
            return None, f"{check.entry_point} is not run here"
        told: dict[str, Any] = {**answer.model_dump(mode="json"), "case": case.id}
        return await run_check(code, check.options, {**told, "tags": list(case.tags)})


NOBODY = Advisers()
