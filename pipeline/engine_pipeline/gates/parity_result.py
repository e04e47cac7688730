"""What a comparison with a parent found, as a report stores it. Pure values."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from engine_pipeline.gates.outcome import Outcome
from engine_registry.digest import Digest
from engine_registry.documents import Value
from engine_registry.record import Text
from engine_registry.refs import Slug

Reason = Annotated[str, Field(min_length=1, max_length=2000)]
Count = Annotated[int, Field(ge=0)]


class Parent(Value):
    """Who the candidate is compared with.

    Attributes:
        named: as the policy or the command line says it.
        engine: None: there is no such parent, and the comparison's reason says why.
        precision: of its weights.
    """

    named: Text
    engine: Digest | None = None
    precision: Text | None = None


class DivergenceKind(StrEnum):
    """What it means that two answers part."""

    NEAR_TIE = "near-tie"  # the parent held both tokens nearly equally likely
    REAL = "real"  # the parent clearly preferred its own
    UNKNOWN = "unknown"  # no log probabilities, so it cannot be told


class Divergence(Value):
    """Where the two answers to one case part.

    Attributes:
        at: tokens that agree before it; words if the endpoint lists no tokens.
        of: length of the parent's answer in the same unit.
        parent_token, candidate_token: what each says there; None: its answer is over.
        margin: how much the parent prefers its own token, in nats.
        shared: the end of what both say before it.
        parent_text, candidate_text: what each says from there.
    """

    case: Slug
    kind: DivergenceKind
    at: Count
    of: Count
    parent_token: str | None
    candidate_token: str | None
    margin: float | None = None
    shared: str
    parent_text: str
    candidate_text: str


class TagDrop(Value):
    """How many cases pass on either side; `tag` None: over all cases.

    Attributes:
        lost: passed by the parent and not by the candidate; `gained` the other way round.
        p: the chance of so many losses if losses and gains were equally likely.
    """

    tag: Slug | None
    cases: Count
    parent_passed: Count
    candidate_passed: Count
    lost: Count
    gained: Count
    p: float

    @property
    def drop(self) -> float:
        """By how much the share of passed cases fell."""
        return (self.parent_passed - self.candidate_passed) / self.cases


class ParityFinding(Value):
    """One measure against its bar; skipped where the policy has no bar or nothing is measured."""

    measure: Text
    outcome: Outcome
    reason: Reason


class ParityMeasures(Value):
    """The measures over all cases that both sides answered.

    Attributes:
        unit: of the agreement: `tokens`, or `words` if the endpoint lists no tokens.
        identical: answers that are the same to the end.
        prefix_agreement: mean share of the parent's answer that the candidate's repeats.
        positions: where both distributions are known, after the same words.
        forced: how many of them were reached by giving the candidate the parent's words.
        top1_agreement: share of positions where both hold the same token most likely.
        real_disagreements: positions where they do not and the parent's margin is no near-tie.
        kl: mean over positions, in nats; `kl_p95` its 95th percentile.
        not_measured: what could not be measured, and why.
    """

    unit: Text
    prompts: Count
    identical: Count
    near_ties: Count
    real: Count
    unknown: Count
    prefix_agreement: float
    positions: Count = 0
    forced: Count = 0
    top1_agreement: float | None = None
    real_disagreements: Count = 0
    kl: float | None = None
    kl_p95: float | None = None
    not_measured: tuple[Reason, ...] = ()


class ParityResult(Value):
    """A candidate's answers against one parent's.

    Attributes:
        measures: None if there was nothing to compare.
        answers: the attachment of the parent that holds its answers.
        reused: whether these were recorded by an earlier run.
        unanswered: cases without an answer of the candidate, with the reason.
    """

    parent: Parent
    outcome: Outcome
    reason: Reason
    answers: Digest | None = None
    reused: bool = False
    measures: ParityMeasures | None = None
    findings: tuple[ParityFinding, ...] = ()
    tags: tuple[TagDrop, ...] = ()
    divergences: tuple[Divergence, ...] = ()
    unanswered: dict[Slug, Reason] = {}

    @property
    def lacks_baseline(self) -> bool:
        """Whether the parent is a channel on which nothing was live."""
        return self.parent.engine is None and self.outcome is Outcome.SKIPPED
