"""The bars of one gate: which suite, what score, what speed. Written in `channels.yaml`. Pure.

The policy's digest is part of each report, so a report made under softer bars is no evidence under
harder ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

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
Bar = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


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


class PerformanceBars(Load):
    """How the load is made and how fast the engine must be; at least one bar."""

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
        paired: how the engine is compared with what is live; None compares with nothing.
        parity: whose answers it must still give; None compares with nobody's.
    """

    suite: Slug
    concurrency: Concurrency = 1
    timeout_s: Annotated[float, Field(gt=0, le=3600)] = 120.0
    load_timeout_s: Annotated[float, Field(gt=0, le=7200)] = 120.0
    quality: QualityBars
    performance: PerformanceBars | None = None
    paired: PairedBars | None = None
    parity: ParityBars | None = None

    @property
    def digest(self) -> Digest:
        """The digest that a report carries as the policy it was judged under.

        A policy without `paired` or `parity` has the digest it had before there was such a thing,
        so reports made then are still evidence.
        """
        return Digest.of(canonical_json(self.model_dump(mode="json", exclude=self._absent)))

    @property
    def _absent(self) -> set[str]:
        return {name for name in ("paired", "parity") if getattr(self, name) is None}


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
