"""What a bake-off's document says of each contestant and of each flip, and how it is made. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Self

from pydantic import AwareDatetime

from engine_pipeline.bakeoff.facts import Facts, wilson
from engine_pipeline.bakeoff.file import Price
from engine_pipeline.bakeoff.goals import Goal
from engine_pipeline.bakeoff.lane_rows import LaneRow, lane_rows
from engine_pipeline.bakeoff.measured import Identity, Measured
from engine_pipeline.bakeoff.number import Number, finite
from engine_pipeline.bakeoff.words import flip_words
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired_result import ClientOverhead
from engine_pipeline.gates.report import Count, Device
from engine_pipeline.gates.words import advisers
from engine_registry.digest import Digest
from engine_registry.documents import Value
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine_pipeline.bakeoff.decide import Decision
    from engine_pipeline.bakeoff.file import BakeoffFile
    from engine_pipeline.bakeoff.flips import Flip
    from engine_pipeline.gates.report import PerformanceResult


class StepRow(Value):
    """One load.

    Attributes:
        failed: requests by what went wrong.
        ignores_eos: every answer had the full length; otherwise lengths differ.
        cost: per million output tokens; None without a price or a throughput.
    """

    concurrency: Count
    requests: Count
    failed: dict[str, int]
    ignores_eos: bool
    cached_share: float | None
    ttft_p95_ms: Number
    tpot_p95_ms: Number | None
    tokens_per_s: Number | None
    cost: Number | None


class StructuredRow(Value):
    """Answers under a schema: how many fit, and the load that they were."""

    valid: Count
    share: Number
    defects: dict[str, int]
    step: StepRow


class SuiteRow(Value):
    """One suite's score, cases in quarantine left out; `failed` names who did not pass."""

    name: Slug
    digest: Digest
    cases: Count
    score: Number
    failed: tuple[str, ...]


class ContestantRow(Value):
    """One contestant.

    Attributes:
        place: 1 for the one to take; None if a limit is missed or it could not be judged.
        outcome: whether every limit is met; errored if it could not be judged.
        reasons: why not.
        step: index in `steps` of the load that speed and cost are taken at.
        lanes: each step of each lane.
        overhead: what the measuring client itself adds at most to the times.
        advisers: who else judged the answers, in words: name and value.
    """

    name: Slug
    place: int | None
    outcome: Outcome
    reasons: tuple[str, ...]
    identity: Identity | None = None
    device: Device | None = None
    measured_at: AwareDatetime | None = None
    load_s: float | None = None
    price: Price | None = None
    score: Number | None = None
    suites: tuple[SuiteRow, ...] = ()
    steps: tuple[StepRow, ...] = ()
    step: int | None = None
    lanes: tuple[LaneRow, ...] = ()
    structured: StructuredRow | None = None
    overhead: ClientOverhead | None = None
    advisers: tuple[tuple[str, str], ...] = ()

    @property
    def at(self) -> StepRow | None:
        """The load that speed and cost are taken at."""
        return None if self.step is None else self.steps[self.step]


class FlipRow(Value):
    """One change after which another one is taken; `at` is the turning point, None for an order."""

    lever: str
    whose: str
    metric: str = ""
    now: float | None
    at: float | None
    up: bool
    first: Goal | None
    winner: str | None
    tied: tuple[str, ...]
    words: str

    @classmethod
    def of(cls, flip: Flip, file: BakeoffFile) -> Self:
        """To be stored."""
        return cls(
            lever=str(flip.lever),
            whose=flip.whose,
            metric=flip.metric,
            now=flip.now,
            at=finite(flip.at),
            up=flip.up,
            first=flip.first,
            winner=flip.winner,
            tied=flip.tied,
            words=flip_words(flip, file),
        )


def contestant_row(
    name: str, measured: Measured, price: Price | None, decision: Decision, file: BakeoffFile
) -> ContestantRow:
    """The row of somebody who was measured."""
    ruling = decision.ruling(name)
    structured = measured.structured
    place = decision.ranking.index(name) + 1 if name in decision.ranking else None
    return ContestantRow(
        overhead=measured.overhead,
        advisers=advisers(measured),
        lanes=lane_rows(tuple(ruling.facts.lanes.values()), file.lanes or {}, file.optimise),
        name=name,
        place=place,
        outcome=ruling.outcome,
        reasons=ruling.reasons,
        identity=measured.identity,
        device=measured.device,
        measured_at=measured.finished_at,
        load_s=measured.load_s,
        price=price,
        score=Number.of(ruling.facts.score),
        suites=tuple(
            SuiteRow(
                name=suite.name,
                digest=suite.digest,
                cases=len(suite.cases),
                score=_score([case.score for case in suite.cases if case.counts]),
                failed=tuple(case.id for case in suite.cases if case.outcome is not Outcome.PASSED),
            )
            for suite in measured.suites
        ),
        steps=tuple(
            _step(speed, ruling.facts, index) for index, speed in enumerate(measured.steps)
        ),
        step=ruling.facts.steps.index(ruling.step),
        structured=None
        if structured is None
        else StructuredRow(
            valid=structured.valid,
            share=Number.of(wilson(structured.valid / structured.requests, structured.requests)),
            defects=structured.defects,
            step=_step(structured.speed, None, 0),
        ),
    )


def _score(scores: Sequence[float]) -> Number:
    if not scores:
        return Number(low=None, value=None, high=None)
    return Number.of(wilson(math.fsum(scores) / len(scores), len(scores)))


def _step(speed: PerformanceResult, facts: Facts | None, index: int) -> StepRow:
    metrics = speed.metrics
    cost = None if facts is None else facts.cost(facts.steps[index])
    tpot, flow = metrics.get("tpot_p95_ms"), metrics.get("output_tokens_per_s")
    return StepRow(
        concurrency=speed.concurrency,
        requests=speed.requests,
        failed=speed.failed,
        ignores_eos=speed.ignores_eos,
        cached_share=speed.cached_share,
        ttft_p95_ms=Number.of(metrics["ttft_p95_ms"].estimate),
        tpot_p95_ms=None if tpot is None else Number.of(tpot.estimate),
        tokens_per_s=None if flow is None else Number.of(flow.estimate),
        cost=None if cost is None or math.isinf(cost.value) else Number.of(cost),
    )
