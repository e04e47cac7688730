"""The parity part of a gate: whose child the engine is, and whether it still answers like it.

    1 parents    each one's answers: kept ones, or its server is started and asked
    2 candidate  its server is started once and asked the same
    3 compare    pure

Two servers are never up at once. A crash leaves at most a parent's answers, which hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine_pipeline.gates.ending import CouldNotServe, DidNotLoad
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.parity import compare, tag_drops
from engine_pipeline.gates.parity_judge import judge_parity, sum_up
from engine_pipeline.gates.parity_parent import NoParent, asked, record, recorded
from engine_pipeline.gates.parity_result import ParityFinding, ParityResult
from engine_pipeline.gates.parity_run import AskingEnded, ask_all, chosen_cases, pair_up
from engine_pipeline.gates.report import Finding

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import date
    from pathlib import Path

    from engine_pipeline.gates.parity import Pair
    from engine_pipeline.gates.parity_answer import ParentAnswers
    from engine_pipeline.gates.parity_bars import ParityBars
    from engine_pipeline.gates.parity_parent import ParentEngine
    from engine_pipeline.gates.parity_result import Divergence, ParityMeasures
    from engine_pipeline.gates.parity_run import Asked
    from engine_pipeline.gates.policy import GatePolicy
    from engine_pipeline.gates.report import Device
    from engine_pipeline.gates.starter import Starter
    from engine_pipeline.gates.suite import Suite
    from engine_pipeline.progress import Progress
    from engine_registry.digest import Digest
    from engine_registry.registry import Registry

_REASON_CHARS = 2000
_SHOWN_DIVERGENCES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A parent with its answers."""

    engine: ParentEngine
    answers: ParentAnswers
    attached: Digest
    reused: bool


def compare_with_parents(
    *,
    registry: Registry,
    candidate: Starter,
    parents: Sequence[ParentEngine | NoParent],
    policy: GatePolicy,
    suite: Suite,
    device: Device,
    today: date,
    loads: bool,
    progress: Progress,
    directory: Path,
) -> tuple[ParityResult, ...]:
    """A comparison for each parent, in their order; none if the policy asks for none.

    Args:
        registry: where the parents' bytes and answers are.
        candidate: how the judged engine is started.
        parents: whom to compare it with.
        policy: the gate's.
        suite: its cases are asked.
        device: what all run on.
        today: of which quarantines are over.
        loads: whether the candidate was loaded before; one that was not is not started again.
        progress: told of each phase.
        directory: a private one, for the parents' files.

    Raises:
        NotFound, IntegrityError: a parent, or its answers, are not whole in the registry.
    """
    bars = policy.parity
    if bars is None:
        return ()
    if not loads:
        why = "not compared: the engine is not loaded"
        return tuple(_without(one, Outcome.SKIPPED, why) for one in parents)
    cases = chosen_cases(suite, bars.prompts)
    known: list[_Known | ParityResult] = []
    for parent in parents:
        if isinstance(parent, NoParent):
            known.append(_without(parent, parent.outcome, parent.why))
            continue
        found = recorded(registry, parent.engine, asked(parent, suite, cases, device))
        reused = found is not None
        if found is None:
            try:
                found = record(
                    registry,
                    parent,
                    suite,
                    cases,
                    device=device,
                    policy=policy,
                    progress=progress,
                    directory=directory,
                )
            except AskingEnded as error:
                known.append(_without(parent, error.outcome, error.reason))
                continue
        known.append(_Known(engine=parent, answers=found[0], attached=found[1], reused=reused))
    return _with_candidate(candidate, known, policy, bars, suite, today, progress)


def _with_candidate(
    candidate: Starter,
    known: Sequence[_Known | ParityResult],
    policy: GatePolicy,
    bars: ParityBars,
    suite: Suite,
    today: date,
    progress: Progress,
) -> tuple[ParityResult, ...]:
    if not any(isinstance(one, _Known) for one in known):
        return tuple(one for one in known if isinstance(one, ParityResult))
    cases = chosen_cases(suite, bars.prompts)
    timeout_s = policy.timeout_s
    results = []
    progress.phase("parity", f"candidate, {len(cases)} prompts")
    try:
        with candidate.serve() as server:
            mine = ask_all(server, suite, cases, timeout_s=timeout_s, progress=progress)
            for one in known:
                if isinstance(one, ParityResult):
                    results.append(one)
                    continue
                theirs = {answer.case: answer for answer in one.answers.answers}
                pairs, missing = pair_up(
                    server,
                    theirs,
                    mine.answers,
                    cases,
                    bars,
                    timeout_s=timeout_s,
                    progress=progress,
                )
                results.append(_result(one, pairs, missing, mine, bars, suite, today))
    except AskingEnded as error:
        return _cut_short(known, error.outcome, error.reason)
    except DidNotLoad as error:
        return _cut_short(known, Outcome.FAILED, error.message)
    except CouldNotServe as error:
        return _cut_short(known, Outcome.ERRORED, error.message)
    return tuple(results)


def _cut_short(
    known: Sequence[_Known | ParityResult], outcome: Outcome, why: str
) -> tuple[ParityResult, ...]:
    return tuple(
        one
        if isinstance(one, ParityResult)
        else _without(one.engine, outcome, f"the candidate: {why}")
        for one in known
    )


def _result(
    one: _Known,
    pairs: Sequence[Pair],
    missing: tuple[str, ...],
    mine: Asked,
    bars: ParityBars,
    suite: Suite,
    today: date,
) -> ParityResult:
    theirs = {answer.case: answer.passed for answer in one.answers.answers}
    lacking = {case: why for case, why in mine.unanswered.items() if case in theirs}
    findings: list[ParityFinding] = []
    if lacking:
        reason = f"{len(lacking)} prompts that the parent answers are not answered: " + "; ".join(
            f"{case}: {why}" for case, why in lacking.items()
        )
        findings.append(
            ParityFinding(measure="answers", outcome=Outcome.FAILED, reason=reason[:_REASON_CHARS])
        )
    measures: ParityMeasures | None = None
    divergences: tuple[Divergence, ...] = ()
    # Cases in quarantine count nowhere; their answers are compared token by token all the same.
    counted = {case.id for case in suite.cases if case.counts_on(today)}
    tags = tag_drops(
        {case: passed for case, passed in theirs.items() if case in counted},
        {pair.candidate.case: pair.candidate.passed for pair in pairs},
        {case.id: case.tags for case in suite.cases},
    )
    if pairs:
        measures, divergences = compare(pairs, bars.near_tie_logprob, missing)
        findings += judge_parity(measures, tags, bars)
    outcome, reason = sum_up(findings)
    return ParityResult(
        parent=one.engine.parent,
        outcome=outcome,
        reason=(reason or "nothing to compare")[:_REASON_CHARS],
        answers=one.attached,
        reused=one.reused,
        measures=measures,
        findings=tuple(findings),
        tags=tags,
        divergences=divergences[:_SHOWN_DIVERGENCES],
        unanswered=lacking,
    )


def _without(one: ParentEngine | NoParent, outcome: Outcome, why: str) -> ParityResult:
    return ParityResult(parent=one.parent, outcome=outcome, reason=why[:_REASON_CHARS])


def parity_findings(results: Sequence[ParityResult]) -> tuple[Finding, ...]:
    """The comparisons among the findings of a gate."""
    return tuple(
        Finding(
            name=f"parity with {one.parent.named}"[:200], outcome=one.outcome, reason=one.reason
        )
        for one in results
    )
