"""The bars of one gate: which suite, what score, what speed. Written in `channels.yaml`. Pure.

The policy's digest is part of each report, so a report made under softer bars is no evidence under
harder ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from engine_pipeline.gates.check_kinds import Judged
from engine_pipeline.gates.grown import Grown
from engine_pipeline.gates.judge_model import JudgeModel
from engine_pipeline.gates.lane_bars import Lanes
from engine_pipeline.gates.load import Concurrency, Load
from engine_pipeline.gates.paired_bars import PairedBars
from engine_pipeline.gates.parity_bars import ParityBars
from engine_registry.digest import Digest
from engine_registry.documents import Value, canonical_json
from engine_registry.errors import InvalidInput
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from engine_pipeline.gates.suite import Suite

# A bar of 0 is one that cannot be missed.
Score = Annotated[float, Field(gt=0.0, le=1.0)]
Weight = Annotated[float, Field(ge=0.01, le=100.0)]
Bar = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class QualityBars(Grown):
    """How good the answers must be.

    Attributes:
        min_score: least mean over all cases, each counted once; a case scores the share of its
            repeats in which every check passed.
        min_tag_score: the same over the cases of one tag.
        must_cases: every case marked `must` has to pass in all its repeats.
        tag_weights: how much a case with this tag counts in the score over all cases; one with
            several such tags counts as its heaviest, one with none counts 1.
    """

    LATER = frozenset({"tag_weights"})

    min_score: Score
    min_tag_score: dict[Slug, Score] = {}
    must_cases: Literal["all"] = "all"
    tag_weights: dict[Slug, Weight] = {}


class PerformanceBars(Load):
    """How the load is made and how fast the engine must be; at least one bar."""

    max_ttft_p95_ms: Bar | None = None
    max_tpot_p95_ms: Bar | None = None
    min_output_tokens_per_s: Bar | None = None

    @property
    def bars_time(self) -> bool:
        """Whether some bar is on a time."""
        return self.max_ttft_p95_ms is not None or self.max_tpot_p95_ms is not None

    @model_validator(mode="after")
    def _bars_something(self) -> Self:
        bars = (self.max_ttft_p95_ms, self.max_tpot_p95_ms, self.min_output_tokens_per_s)
        if all(bar is None for bar in bars):
            msg = (
                "measures without a bar: give max_ttft_p95_ms, max_tpot_p95_ms or "
                "min_output_tokens_per_s, or leave performance out"
            )
            raise ValueError(msg)
        if self.requests < self.concurrency:
            msg = f"requests {self.requests} cannot keep {self.concurrency} in flight"
            raise ValueError(msg)
        return self


class GatePolicy(Value):
    """One gate.

    Attributes:
        suite: name of the golden-prompt suite.
        concurrency: how many golden prompts are asked at once; 1 is the reproducible choice.
        timeout_s: longest wait for one answer.
        load_timeout_s: longest wait for the engine to load.
        performance: None measures no speed, and the report says so.
        lanes: further loads, each with bars of its own; None makes none.
        paired: how the engine is compared with what is live; None compares with nothing.
        parity: whose answers it must still give; None compares with nobody's.
        judge: who decides the checks of kind `judge`; a suite with such checks needs one.
    """

    suite: Slug
    concurrency: Concurrency = 1
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    load_timeout_s: Annotated[float, Field(gt=0, le=7200)] = 120.0
    quality: QualityBars
    performance: PerformanceBars | None = None
    lanes: Lanes | None = None
    paired: PairedBars | None = None
    parity: ParityBars | None = None
    judge: JudgeModel | None = None

    @property
    def digest(self) -> Digest:
        """The digest that a report carries as the policy it was judged under.

        A policy without the parts that came later has the digest it had before there was such a
        thing, so reports made then are still evidence.
        """
        return Digest.of(canonical_json(self.model_dump(mode="json", exclude=self._absent)))

    @property
    def _absent(self) -> set[str]:
        later = ("lanes", "paired", "parity", "judge")
        return {name for name in later if getattr(self, name) is None}


def check_fits(policy: GatePolicy, suite: Suite) -> None:
    """Refuse bars that this suite cannot be held to.

    Raises:
        InvalidInput: it is another suite, a bar is for a tag that no case has, nobody judges, or
            no bar is on a time though speed is measured.
    """
    if suite.name != policy.suite:
        raise InvalidInput(
            f"gate wants suite {policy.suite}, was given {suite.name}",
            hint=f"load golden_prompts/{policy.suite}",
            reference="gate-suite-mismatch",
        )
    tagged = {*policy.quality.min_tag_score, *policy.quality.tag_weights}
    unknown = sorted(tagged - set(suite.tags))
    if unknown:
        raise InvalidInput(
            f"suite {suite.name} has no case with tag {', '.join(unknown)} "
            f"(its tags: {', '.join(suite.tags)})",
            hint="correct min_tag_score or tag_weights in channels.yaml: what is said of no case "
            "can never matter",
            reference="gate-tag-unknown",
        )
    speed = policy.performance
    if speed is not None and not (policy.lanes or policy.paired or speed.bars_time):
        raise InvalidInput(
            f"the gate on suite {suite.name} asks for throughput alone, which can be had by "
            "making people wait",
            hint="add max_ttft_p95_ms or max_tpot_p95_ms to its performance in channels.yaml",
            reference="gate-throughput-alone",
        )
    judged = [c.id for c in suite.cases if any(isinstance(check, Judged) for check in c.checks)]
    if judged and policy.judge is None:
        raise InvalidInput(
            f"suite {suite.name} leaves {', '.join(judged[:5])} to a judge, the gate names none",
            hint="add `judge: {endpoint: URL, model: NAME}` to the gate in channels.yaml",
            reference="gate-without-judge",
        )
