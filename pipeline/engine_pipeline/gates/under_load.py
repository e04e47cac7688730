"""Asks a suite once more while so many requests are in flight, and compares with the first pass."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import cycle
from typing import TYPE_CHECKING

from engine_pipeline.gates.consult import NOBODY
from engine_pipeline.gates.golden import ask_case, asked_of, attempt_of, not_asked, results_of
from engine_pipeline.gates.under_load_result import UnderLoadResult, different_answers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import date

    from engine_pipeline.gates.client import ChatClient
    from engine_pipeline.gates.consult import Advisers
    from engine_pipeline.gates.reply import Reply
    from engine_pipeline.gates.report import CaseResult
    from engine_pipeline.gates.suite import Case, Suite
    from engine_pipeline.gates.under_load_bars import UnderLoadBars
    from engine_pipeline.progress import Progress


@dataclass(slots=True)
class _Pass:
    """Replies as they come; while one is awaited, further requests keep the number up."""

    client: ChatClient
    suite: Suite
    asked: Suite
    progress: Progress
    gone: Callable[[], str | None]
    replies: dict[tuple[str, int], Reply | str] = field(default_factory=dict)
    fillers: int = 0
    in_flight: int = 0
    most_in_flight: int = 0

    async def make(self, concurrency: int) -> None:
        wanted = asked_of(self.asked)
        work, others = iter(wanted), cycle(asked_of(self.suite))
        self.progress.update(0, len(wanted), "cases")

        async def keep_asking() -> None:
            for case, repeat in work:
                if (why := self.gone()) is not None:
                    self.replies[case.id, repeat] = why
                    continue
                self.replies[case.id, repeat] = await self._ask(case, repeat)
                self.progress.update(len(self.replies), len(wanted), "cases")
            while len(self.replies) < len(wanted) and self.gone() is None:
                self.fillers += 1
                if (await self._ask(*next(others))).error is not None:
                    return  # a server that refuses is not asked in a circle

        async with asyncio.TaskGroup() as group:
            for _ in range(concurrency):
                group.create_task(keep_asking())

    async def _ask(self, case: Case, repeat: int) -> Reply:
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            return await ask_case(self.client, self.suite, case, repeat)
        finally:
            self.in_flight -= 1


async def ask_under_load(
    client: ChatClient,
    suite: Suite,
    bars: UnderLoadBars,
    before: Sequence[CaseResult],
    *,
    concurrency_before: int,
    progress: Progress,
    gone: Callable[[], str | None],
    advisers: Advisers = NOBODY,
    today: date | None = None,
) -> UnderLoadResult:
    """The second pass; answers are judged when all of them are there, so judging slows no asking.

    Args:
        client: an open client, the one of the first pass.
        suite: the cases; those that `bars` does not judge only make load.
        bars: how many are in flight, and which cases are judged; at least one is.
        before: results of the first pass, of every case.
        concurrency_before: how many were in flight then.
        progress: told after each answer.
        gone: says why there is no server any more; nothing further is asked then.
        advisers: who decides what the answer alone does not.
        today: of which quarantines are over; None: all of them hold.
    """
    cases = tuple(case for case in suite.cases if bars.judges(case.tags))
    asked = suite.model_copy(update={"cases": cases})
    made = _Pass(client, suite, asked, progress, gone)
    await made.make(bars.concurrency)
    attempts = {}
    for case, repeat in asked_of(asked):
        reply = made.replies[case.id, repeat]
        attempts[case.id, repeat] = (
            not_asked(reply)
            if isinstance(reply, str)
            else await attempt_of(case, reply, advisers, gone)
        )
    results = results_of(asked, attempts, today)
    compared, different = different_answers(before, results)
    return UnderLoadResult(
        concurrency=bars.concurrency,
        before=concurrency_before,
        most_in_flight=made.most_in_flight,
        fillers=made.fillers,
        cases=results,
        compared=compared,
        different=different,
    )
