"""Asks a server every case of a suite and judges each answer by the case's checks."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING

from engine_pipeline.gates.asking import request_of
from engine_pipeline.gates.check import Answer, judge_all
from engine_pipeline.gates.consult import NOBODY
from engine_pipeline.gates.ending import settle
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.report import (
    ASKED_LIMIT_CHARS,
    TEXT_LIMIT_CHARS,
    Attempt,
    CaseResult,
)
from engine_pipeline.gates.tool_call import ToolCall

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from engine_pipeline.gates.check import CheckVerdict
    from engine_pipeline.gates.client import ChatClient
    from engine_pipeline.gates.consult import Advisers
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
    advisers: Advisers = NOBODY,
    today: date | None = None,
) -> tuple[CaseResult, ...]:
    """The result of each case, in the suite's order.

    Args:
        client: an open client.
        suite: the cases; repeat k of a case (from 0) is asked with the seed plus k.
        concurrency: how many are asked at once.
        progress: told after each answer.
        gone: says why there is no server any more; nothing further is asked then.
        advisers: who decides what the answer alone does not.
        today: of which quarantines are over; None: all of them hold.
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
            attempt = await _judged(case, reply, advisers)
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
    return tuple(_result(case, attempts[case.id], today) for case in suite.cases)


async def _ask(client: ChatClient, suite: Suite, case: Case, repeat: int) -> Reply:
    sampling = suite.sampling_of(case)
    seeded = sampling.model_copy(update={"seed": sampling.seed + repeat})
    target, asked = request_of(case)
    return await client.put(target, asked, seeded)


async def _judged(case: Case, reply: Reply, advisers: Advisers) -> Attempt:
    error = reply.error
    checks: tuple[CheckVerdict, ...] = ()
    if error is None:
        answer = Answer(
            text=reply.text, finish_reason=reply.finish_reason, tool_calls=reply.tool_calls
        )
        checks = judge_all(case.checks, answer)
        if all(verdict.passed for verdict in checks):
            # Nobody is asked about an answer that failed already.
            checks += await advisers.verdicts(case, answer)
        outcome = _outcome(checks)
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
        tool_calls=_kept(reply.tool_calls),
    )


def _outcome(checks: Sequence[CheckVerdict]) -> Outcome:
    if any(not verdict.passed and not verdict.errored for verdict in checks):
        return Outcome.FAILED
    return Outcome.ERRORED if any(verdict.errored for verdict in checks) else Outcome.PASSED


def _kept(calls: Sequence[ToolCall]) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(name=call.name[:200], arguments=call.arguments[:TEXT_LIMIT_CHARS])
        for call in calls
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


def _result(case: Case, attempts: list[Attempt], today: date | None) -> CaseResult:
    outcomes = {attempt.outcome for attempt in attempts}
    if Outcome.FAILED in outcomes:
        outcome = Outcome.FAILED
    elif Outcome.ERRORED in outcomes:
        outcome = Outcome.ERRORED
    else:
        outcome = Outcome.PASSED
    answers = Counter(attempt.said for attempt in attempts if attempt.error is None)
    quarantine = case.quarantine
    most = answers.most_common(1)
    return CaseResult(
        id=case.id,
        tags=case.tags,
        must=case.must,
        outcome=outcome,
        score=sum(attempt.outcome is Outcome.PASSED for attempt in attempts) / len(attempts),
        agreement=most[0][1] / answers.total() if most else None,
        attempts=tuple(attempts),
        asked=case.asked[:ASKED_LIMIT_CHARS],
        quarantine=quarantine,
        counts=quarantine is None or (today is not None and today > quarantine.until),
    )
