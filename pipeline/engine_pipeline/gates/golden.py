"""Asks a server every case of a suite and judges each answer by the case's checks."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from engine_pipeline.gates.check import Answer, judge_all
from engine_pipeline.gates.ending import settle
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import (
    ASKED_LIMIT_CHARS,
    TEXT_LIMIT_CHARS,
    Attempt,
    CaseResult,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from engine_pipeline.gates.check import CheckVerdict
    from engine_pipeline.gates.client import ChatClient
    from engine_pipeline.gates.reply import Reply
    from engine_pipeline.gates.suite import Case, Suite
    from engine_pipeline.progress import Progress


async def ask_suite(
    client: ChatClient,
    suite: Suite,
    *,
    concurrency: int,
    progress: Progress,
    gone: Callable[[], str | None],
) -> tuple[CaseResult, ...]:
    """The result of each case, in the suite's order.

    Args:
        client: an open client.
        suite: the cases; repeat k of a case (from 0) is asked with the seed plus k.
        concurrency: how many are asked at once.
        progress: told after each answer.
        gone: says why there is no server any more; nothing further is asked then.
    """
    attempts: dict[str, list[Attempt]] = {case.id: [] for case in suite.cases}
    work = iter([(case, repeat) for case in suite.cases for repeat in range(case.repeats)])
    total = sum(case.repeats for case in suite.cases)
    progress.update(0, total, "cases")

    async def ask_on() -> None:
        for case, repeat in work:
            if (why := gone()) is not None:
                attempts[case.id].append(_not_asked(why))
                continue
            reply = await _ask(client, suite, case, repeat)
            attempt = _judged(case, reply)
            if reply.error is not None and reply.error.lost_connection:
                await settle(gone)
                if (why := gone()) is not None:
                    # What a dead server owes is told once, by its end, and not by each answer.
                    attempt = _cut_off(attempt, why)
            attempts[case.id].append(attempt)
            progress.update(sum(map(len, attempts.values())), total, "cases")

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(ask_on())
    return tuple(_result(case, attempts[case.id]) for case in suite.cases)


async def _ask(client: ChatClient, suite: Suite, case: Case, repeat: int) -> Reply:
    sampling = suite.sampling_of(case)
    seeded = sampling.model_copy(update={"seed": sampling.seed + repeat})
    return await client.ask(case.messages, seeded)


def _judged(case: Case, reply: Reply) -> Attempt:
    error = reply.error
    checks: tuple[CheckVerdict, ...] = ()
    if error is None:
        answer = Answer(text=reply.text, finish_reason=reply.finish_reason)
        checks = judge_all(case.checks, answer)
        passed = all(verdict.passed for verdict in checks)
        outcome = Outcome.PASSED if passed else Outcome.FAILED
    else:
        outcome = Outcome.FAILED if error.engine_fault else Outcome.ERRORED
    return Attempt(
        outcome=outcome,
        text=reply.text[:TEXT_LIMIT_CHARS],
        text_chars=len(reply.text),
        finish_reason=reply.finish_reason,
        completion_tokens=reply.completion_tokens,
        e2e_ms=round(reply.e2e_ms, 3),
        checks=checks,
        error=f"{error.name}: {error.detail}" if error else None,
    )


def _cut_off(attempt: Attempt, why: str) -> Attempt:
    return attempt.model_copy(
        update={"outcome": Outcome.ERRORED, "error": f"{attempt.error}; {why}"}
    )


def _not_asked(why: str) -> Attempt:
    return Attempt(
        outcome=Outcome.ERRORED,
        text="",
        text_chars=0,
        finish_reason=None,
        completion_tokens=None,
        e2e_ms=0.0,
        error=f"not asked: {why}",
    )


def _result(case: Case, attempts: list[Attempt]) -> CaseResult:
    outcomes = {attempt.outcome for attempt in attempts}
    if Outcome.FAILED in outcomes:
        outcome = Outcome.FAILED
    elif Outcome.ERRORED in outcomes:
        outcome = Outcome.ERRORED
    else:
        outcome = Outcome.PASSED
    answers = Counter(attempt.text for attempt in attempts if attempt.error is None)
    most = answers.most_common(1)
    return CaseResult(
        id=case.id,
        tags=case.tags,
        must=case.must,
        outcome=outcome,
        score=sum(attempt.outcome is Outcome.PASSED for attempt in attempts) / len(attempts),
        agreement=most[0][1] / answers.total() if most else None,
        attempts=tuple(attempts),
        asked=case.messages[-1].content[:ASKED_LIMIT_CHARS],
    )
