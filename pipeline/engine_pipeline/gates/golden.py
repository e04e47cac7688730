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
    from collections.abc import Callable, Mapping, Sequence
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
    attempts: dict[tuple[str, int], Attempt] = {}
    wanted = asked_of(suite)
    work = iter(wanted)
    progress.update(0, len(wanted), "cases")

    async def ask_on() -> None:
        for case, repeat in work:
            if (why := gone()) is not None:
                attempts[case.id, repeat] = not_asked(why)
                continue
            reply = await ask_case(client, suite, case, repeat)
            attempts[case.id, repeat] = await attempt_of(case, reply, advisers, gone)
            progress.update(len(attempts), len(wanted), "cases")

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(ask_on())
    return results_of(suite, attempts, today)


def asked_of(suite: Suite) -> list[tuple[Case, int]]:
    """Everything that is asked: each case, with the number of the repeat."""
    return [(case, repeat) for case in suite.cases for repeat in range(case.repeats)]


def results_of(
    suite: Suite, attempts: Mapping[tuple[str, int], Attempt], today: date | None
) -> tuple[CaseResult, ...]:
    """The result of each case, from what came of everything that `asked_of` lists."""
    return tuple(
        _result(case, [attempts[case.id, repeat] for repeat in range(case.repeats)], today)
        for case in suite.cases
    )


async def attempt_of(
    case: Case, reply: Reply, advisers: Advisers, gone: Callable[[], str | None]
) -> Attempt:
    """What came of asking a case once.

    Args:
        case: the one that was asked.
        reply: what came back.
        advisers: who decides what the answer alone does not.
        gone: says why there is no server any more; waited for a little if the connection was lost.
    """
    attempt = await _judged(case, reply, advisers)
    if reply.error is not None and reply.error.lost_connection:
        await settle(gone)
        if (why := gone()) is not None:
            # What a dead server owes is told once, by its end, and not by each answer.
            attempt = _cut_off(attempt, why)
    return attempt


async def ask_case(client: ChatClient, suite: Suite, case: Case, repeat: int) -> Reply:
    """The reply to a case, asked with the seed of this repeat."""
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


def not_asked(why: str) -> Attempt:
    """Of a case that nobody could be asked."""
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
        quarantine=case.quarantine,
        counts=case.counts_on(today),
    )
