"""What was measured of one contestant: stored whole, judged as often as prices change. Pure.

Who could not be measured is a value as well, since it is not the end of a bake-off.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import AwareDatetime, Field

from engine_pipeline.gates.check_code import CheckCode
from engine_pipeline.gates.embedding_model import EmbeddingsUsed
from engine_pipeline.gates.judge_model import JudgeUsed
from engine_pipeline.gates.lane_result import LaneResult, LaneStep
from engine_pipeline.gates.paired_result import ClientOverhead
from engine_pipeline.gates.report import CaseResult, Count, Device, PerformanceResult
from engine_pipeline.gates.served_by import ServedBy
from engine_registry.digest import Digest
from engine_registry.documents import Document, Value
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from engine_pipeline.gates.outcome import Outcome


class SuiteScore(Value):
    """A suite's cases and how they went.

    Attributes:
        drawn_by_default: sampling that it asks for and the endpoint refuses, e.g. `temperature 0`.
    """

    name: Slug
    digest: Digest
    cases: Annotated[tuple[CaseResult, ...], Field(min_length=1)]
    drawn_by_default: tuple[str, ...] = ()


class StructuredResult(Value):
    """How the structured requests went.

    Attributes:
        valid: answers that were whole and fit the schema.
        defects: what was wrong with the others, counted.
        speed: of all requests, valid or not.
    """

    requests: Count
    valid: Count
    defects: dict[str, int]
    speed: PerformanceResult


class Identity(Value):
    """Who was measured, and how far that is known.

    Attributes:
        what: engine digest, or address and model name of an endpoint.
        engine: of the registry; None for an endpoint.
        model_revision: which weights.
        chat_template: digest, or words.
        verified: revision and template are those that the engine was built from; otherwise they
            are what the file says.
    """

    what: str
    engine: Digest | None = None
    model_revision: str
    chat_template: str
    verified: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Unmeasured:
    """A contestant that there are no numbers of, and why.

    Attributes:
        outcome: failed if that is its own fault, as of an engine that does not load; else errored.
    """

    outcome: Outcome
    why: str


class Measured(Document):
    """One contestant under one set of suites and loads.

    Attributes:
        key: digest of who was measured, where and under what.
        device: this machine for an engine; None for an endpoint, whose machine is not known.
        steps: one for each concurrency, in the file's order.
        lanes: one for each lane, in the file's order.
        structured: None if the file asks for none.
        foreign_cpu: share of this machine's processor time that others used while speed was
            measured; None if it is not known, as of an endpoint.
        overhead: what the measuring client adds at most, at the highest concurrency.
        judge: who decided the checks of kind `judge`; None if nobody was asked.
        embeddings: what told how near texts are; None if nothing was asked.
        check_code: the code behind the checks of kind `python`.
        client: versions of what asked.
        served_by: how an endpoint took requests; None for an engine.
    """

    key: Digest
    identity: Identity
    device: Device | None
    started_at: AwareDatetime
    finished_at: AwareDatetime
    load_s: float | None
    suites: Annotated[tuple[SuiteScore, ...], Field(min_length=1)]
    steps: Annotated[tuple[PerformanceResult, ...], Field(min_length=1)]
    lanes: tuple[LaneResult, ...] = ()
    structured: StructuredResult | None = None
    foreign_cpu: float | None
    overhead: ClientOverhead
    client: dict[str, str] = {}
    judge: JudgeUsed | None = None
    embeddings: EmbeddingsUsed | None = None
    check_code: tuple[CheckCode, ...] = ()
    served_by: ServedBy | None = None

    @property
    def unreached(self) -> int:
        """Requests that never reached the contestant, or were turned away before it was asked."""
        speeds: list[PerformanceResult | LaneStep] = [
            *self.steps,
            *([self.structured.speed] if self.structured else []),
            *(step for lane in self.lanes for step in lane.steps),
        ]
        return sum(speed.unreached for speed in speeds) + sum(
            case.errored for suite in self.suites for case in suite.cases
        )
