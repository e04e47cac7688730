"""The bars of one gate: which suite, what score, what speed. Written in `channels.yaml`. Pure.

The policy's digest is part of each report, so a report made under softer bars is no evidence under
harder ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from engine_registry.digest import Digest
from engine_registry.documents import Value, canonical_json
from engine_registry.errors import InvalidInput
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from engine_pipeline.gates.suite import Suite

# A bar of 0 is one that cannot be missed.
Score = Annotated[float, Field(gt=0.0, le=1.0)]
Bar = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Concurrency = Annotated[int, Field(ge=1, le=256)]


class QualityBars(Value):
    """How good the answers must be.

    Attributes:
        min_score: least mean over all cases, each counted once; a case scores the share of its
            repeats in which every check passed.
        min_tag_score: the same over the cases of one tag.
        must_cases: every case marked `must` has to pass in all its repeats.
    """

    min_score: Score
    min_tag_score: dict[Slug, Score] = {}
    must_cases: Literal["all"] = "all"


class PerformanceBars(Value):
    """How the load is made and how fast the engine must be; at least one bar.

    Attributes:
        requests: how many are measured; a p95 bar needs 59 to be proven at 95 % confidence.
        concurrency: how many are in flight, all the time.
        output_tokens: how many tokens each request asks for, end-of-sequence ignored.
        prompt_words: length of each prompt; no two prompts are equal.
        warmup_requests: sent first and not measured.
    """

    requests: Annotated[int, Field(ge=1, le=100_000)]
    concurrency: Concurrency
    output_tokens: Annotated[int, Field(ge=2, le=8192)]
    prompt_words: Annotated[int, Field(ge=8, le=8192)] = 48
    warmup_requests: Annotated[int, Field(ge=1, le=1000)] = 2
    max_ttft_p95_ms: Bar | None = None
    max_tpot_p95_ms: Bar | None = None
    min_output_tokens_per_s: Bar | None = None

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
    """

    suite: Slug
    concurrency: Concurrency = 1
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    load_timeout_s: Annotated[float, Field(gt=0, le=7200)] = 120.0
    quality: QualityBars
    performance: PerformanceBars | None = None

    @property
    def digest(self) -> Digest:
        """The digest that a report carries as the policy it was judged under."""
        return Digest.of(canonical_json(self))


def check_fits(policy: GatePolicy, suite: Suite) -> None:
    """Refuse bars that this suite cannot be held to.

    Raises:
        InvalidInput: it is another suite, or a bar is for a tag that no case has.
    """
    if suite.name != policy.suite:
        raise InvalidInput(
            f"gate wants suite {policy.suite}, was given {suite.name}",
            hint=f"load golden_prompts/{policy.suite}",
            reference="gate-suite-mismatch",
        )
    unknown = sorted(set(policy.quality.min_tag_score) - set(suite.tags))
    if unknown:
        raise InvalidInput(
            f"suite {suite.name} has no case with tag {', '.join(unknown)} "
            f"(its tags: {', '.join(suite.tags)})",
            hint="correct min_tag_score in channels.yaml: a bar on no case can never be missed",
            reference="gate-tag-unknown",
        )
