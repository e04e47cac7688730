"""Asks either side of a comparison with a parent: one server, one prompt after another.

One stream, no prompt cache, temperature 0: what is most reproducible on every server.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING

from engine_pipeline.gates.json_post import NotAnswered
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.parity import Pair, to_force
from engine_pipeline.gates.token_client import NO_IDS, TokenClient

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from engine_pipeline.gates.parity_answer import ParityAnswer, Step
    from engine_pipeline.gates.parity_bars import ParityBars
    from engine_pipeline.gates.server import Server
    from engine_pipeline.gates.suite import Case, Suite
    from engine_pipeline.progress import Progress


class AskingEnded(Exception):
    """Asking came to an end before its time; `outcome` is what that means for who was asked."""

    def __init__(self, reason: str, outcome: Outcome) -> None:
        super().__init__(reason)
        self.reason = reason
        self.outcome = outcome


@dataclass(slots=True, kw_only=True)
class Asked:
    """What a server answered.

    Attributes:
        unanswered: cases that it was asked and answered badly, with why.
    """

    answers: dict[str, ParityAnswer] = field(default_factory=dict)
    unanswered: dict[str, str] = field(default_factory=dict)


def chosen_cases(suite: Suite, prompts: int | None) -> tuple[Case, ...]:
    """The cases that are asked: one of each first tag after another, in the suite's order."""
    by_tag: dict[str, list[Case]] = {}
    for case in suite.cases:
        by_tag.setdefault(case.tags[0], []).append(case)
    turns = [case for turn in zip_longest(*by_tag.values()) for case in turn if case is not None]
    return tuple(turns[:prompts])


def ask_all(
    server: Server,
    suite: Suite,
    cases: Sequence[Case],
    *,
    timeout_s: float,
    progress: Progress,
) -> Asked:
    """Every case's answer.

    Raises:
        AskingEnded: the server ended or could not be reached.
    """

    async def ask() -> Asked:
        found = Asked()
        async with TokenClient(endpoint=server.endpoint, timeout_s=timeout_s) as client:
            for done, case in enumerate(cases, 1):
                try:
                    found.answers[case.id] = await client.answer(case, suite.sampling_of(case))
                except NotAnswered as error:
                    _unless_over(server, error)
                    found.unanswered[case.id] = error.detail
                progress.update(done, len(cases), "prompts")
        return found

    return asyncio.run(ask())


def pair_up(
    server: Server,
    parent: Mapping[str, ParityAnswer],
    mine: Mapping[str, ParityAnswer],
    cases: Sequence[Case],
    bars: ParityBars,
    *,
    timeout_s: float,
    progress: Progress,
) -> tuple[list[Pair], tuple[str, ...]]:
    """Both answers to each case, the candidate given the parent's words where they part.

    Args:
        server: the candidate's.
        parent: the parent's answers by case.
        mine: the candidate's.
        cases: those that are compared; only what both answered is.
        bars: how much is forced.
        timeout_s: longest wait for one answer.
        progress: told of each prompt.

    Returns:
        The pairs, and what could not be measured, each with its reason.

    Raises:
        AskingEnded: the server ended or could not be reached.
    """
    shared = [case for case in cases if case.id in parent and case.id in mine]

    async def force() -> tuple[list[Pair], tuple[str, ...]]:
        pairs = []
        async with TokenClient(endpoint=server.endpoint, timeout_s=timeout_s) as client:
            for done, case in enumerate(shared, 1):
                theirs, own = parent[case.id], mine[case.id]
                try:
                    forced = await _forced(client, case, theirs, own, bars.forced_tokens)
                except NotAnswered as error:
                    _unless_over(server, error)
                    forced = {}
                pairs.append(Pair(parent=theirs, candidate=own, forced=forced))
                progress.update(done, len(shared), "prompts forced")
            missing = tuple(client.not_measured)
        return pairs, missing

    return asyncio.run(force())


async def _forced(
    client: TokenClient, case: Case, parent: ParityAnswer, mine: ParityAnswer, limit: int
) -> dict[int, Step]:
    wanted = to_force(parent, mine, limit) if mine.steps else range(0)
    if not wanted or client.not_measured:
        return {}
    ids = [step.id for step in parent.steps]
    given = [one for one in ids if one is not None]
    if len(given) < len(ids):
        client.not_measured.append(NO_IDS)
        return {}
    prompt = await client.prompt_ids(case, mine.prompt_tokens)
    steps: dict[int, Step] = {}
    if prompt is None:
        return steps
    for at in wanted:
        step = await client.next_step([*prompt, *given[:at]])
        if step is None:
            break
        steps[at] = step
    return steps


def _unless_over(server: Server, error: NotAnswered) -> None:
    """Go on after an answer that the engine owes; raise for anything else."""
    ended = server.ended()
    if ended is not None:
        outcome = Outcome.FAILED if ended.by_itself else Outcome.ERRORED
        raise AskingEnded(f"the server {ended.words} ({error.detail})", outcome) from error
    if not error.engine_fault:
        raise AskingEnded(error.detail, Outcome.ERRORED) from error
