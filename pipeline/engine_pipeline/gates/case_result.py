"""What came of each golden prompt, as a report stores it. Pure."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine_pipeline.gates.check import CheckVerdict
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.suite import Quarantine
from engine_pipeline.gates.tool_call import ToolCall
from engine_registry.documents import Value
from engine_registry.refs import Slug

TEXT_LIMIT_CHARS = 2000
ASKED_LIMIT_CHARS = 500
Count = Annotated[int, Field(ge=0)]


class Attempt(Value):
    """One answer to one case.

    Attributes:
        text: at most TEXT_LIMIT_CHARS of it; the checks saw all `text_chars`.
        error: why there is no whole answer.
        tool_calls: what it called, each with at most TEXT_LIMIT_CHARS of arguments.
    """

    outcome: Outcome
    text: str
    text_chars: Count
    finish_reason: str | None
    completion_tokens: int | None
    e2e_ms: float
    checks: tuple[CheckVerdict, ...] = ()
    error: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def said(self) -> str:
        """Its words, and under them what it called."""
        return "\n".join([self.text, *map(str, self.tool_calls)]).strip("\n")


class CaseResult(Value):
    """One case.

    Attributes:
        asked: the last message that was sent, at most ASKED_LIMIT_CHARS of it.
        outcome: failed if any attempt failed, else errored if any could not be judged.
        score: share of the attempts that passed.
        agreement: share of the answers that are the most frequent one, as far as they are kept;
            None without an answer.
        quarantine: as the suite says it; `counts` is False while it was in force.
    """

    id: Slug
    tags: tuple[Slug, ...]
    must: bool
    outcome: Outcome
    score: float
    agreement: float | None
    attempts: Annotated[tuple[Attempt, ...], Field(min_length=1)]
    asked: str = ""
    quarantine: Quarantine | None = None
    counts: bool = True

    @property
    def is_flaky(self) -> bool:
        """Whether it passed and failed."""
        return {Outcome.PASSED, Outcome.FAILED} <= {one.outcome for one in self.attempts}

    @property
    def errored(self) -> int:
        """Attempts that could not be judged."""
        return sum(attempt.outcome is Outcome.ERRORED for attempt in self.attempts)


class TagScore(Value):
    """The score over the cases of one tag; `bar` None: reported only."""

    tag: Slug
    cases: Count
    passed: Count
    score: float
    bar: float | None = None
