"""The bars of one gate: which suite, what score, what speed. Written in `channels.yaml`. Pure.

The policy's digest is part of each report, so a report made under softer bars is no evidence under
harder ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from engine_pipeline.gates.check_kinds import Judged, Similar
from engine_pipeline.gates.embedding_model import EmbeddingModel
from engine_pipeline.gates.grown import Grown
from engine_pipeline.gates.judge_model import JudgeModel
from engine_pipeline.gates.judged_on import JudgedOn
from engine_pipeline.gates.lane_bars import Lanes
from engine_pipeline.gates.load import Concurrency, Load
from engine_pipeline.gates.paired_bars import PairedBars
from engine_pipeline.gates.parity_bars import ParityBars
from engine_pipeline.gates.under_load_bars import UnderLoadBars
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
        under_load: asks the suite once more while others are in flight; None does not.
        performance: None measures no speed, and the report says so.
        lanes: further loads, each with bars of its own; None makes none.
        paired: how the engine is compared with what is live; None compares with nothing.
        parity: whose answers it must still give; None compares with nobody's.
        judge: who decides the checks of kind `judge`; a suite with such checks needs one.
        embeddings: what tells how near texts are, for checks of kind `similar`; the same.
        judged_on: the machines whose verdicts count; None takes any of the engine's SKU.
    """

    suite: Slug
    concurrency: Concurrency = 1
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    load_timeout_s: Annotated[float, Field(gt=0, le=7200)] = 120.0
    quality: QualityBars
    under_load: UnderLoadBars | None = None
    performance: PerformanceBars | None = None
    lanes: Lanes | None = None
    paired: PairedBars | None = None
    parity: ParityBars | None = None
    judge: JudgeModel | None = None
    embeddings: EmbeddingModel | None = None
    judged_on: JudgedOn | None = None

    @model_validator(mode="after")
    def _is_more_load_than_before(self) -> Self:
        if self.under_load is not None and self.under_load.concurrency <= self.concurrency:
            msg = (
                f"under_load has {self.under_load.concurrency} in flight, the first pass has "
                f"{self.concurrency}: give it more, or the gate a lower concurrency"
            )
            raise ValueError(msg)
        return self

    @property
    def digest(self) -> Digest:
        """The digest that a report carries as the policy it was judged under.

        A policy without the parts that came later has the digest it had before there was such a
        thing, so reports made then are still evidence.
        """
        return Digest.of(canonical_json(self.model_dump(mode="json", exclude=self._absent)))

    @property
    def _absent(self) -> set[str]:
        later = ("under_load", "lanes", "paired", "parity", "judge", "embeddings", "judged_on")
        return {name for name in later if getattr(self, name) is None}


def check_fits(policy: GatePolicy, suite: Suite) -> None:
    """Refuse bars that this suite cannot be held to.

    Raises:
        InvalidInput: it is another suite, a bar is for a tag that no case has, nobody judges or
            tells how near texts are, or no bar is on a time though speed is measured.
    """
    if suite.name != policy.suite:
        raise InvalidInput(
            f"gate wants suite {policy.suite}, was given {suite.name}",
            hint=f"load golden_prompts/{policy.suite}",
            reference="gate-suite-mismatch",
        )
    tagged = {*policy.quality.min_tag_score, *policy.quality.tag_weights}
    tagged |= set(() if policy.under_load is None else policy.under_load.tags)
    unknown = sorted(tagged - set(suite.tags))
    if unknown:
        raise InvalidInput(
            f"suite {suite.name} has no case with tag {', '.join(unknown)} "
            f"(its tags: {', '.join(suite.tags)})",
            hint="correct min_tag_score, tag_weights or under_load.tags in channels.yaml: what is "
            "said of no case can never matter",
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
    judged = judged_cases(suite)
    if judged and policy.judge is None:
        raise InvalidInput(
            f"suite {suite.name} leaves {', '.join(judged[:5])} to a judge, the gate names none",
            hint="add `judge: {endpoint: URL, model: NAME}` to the gate in channels.yaml",
            reference="gate-without-judge",
        )
    compared = compared_cases(suite)
    if compared and policy.embeddings is None:
        raise InvalidInput(
            f"suite {suite.name} compares {', '.join(compared[:5])} by embeddings, the gate names "
            "no model for them",
            hint="add `embeddings: {endpoint: URL, model: NAME}`, or `{file: PATH, digest: …}` of "
            "a GGUF file, to the gate in channels.yaml",
            reference="gate-without-embeddings",
        )


def judged_cases(suite: Suite) -> list[str]:
    """The cases that are left to a judge."""
    return [c.id for c in suite.cases if any(isinstance(check, Judged) for check in c.checks)]


def compared_cases(suite: Suite) -> list[str]:
    """The cases that are left to an embedding model."""
    return [c.id for c in suite.cases if any(isinstance(check, Similar) for check in c.checks)]
