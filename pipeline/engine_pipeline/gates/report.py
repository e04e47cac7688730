"""A gate's report as a value: every verdict with its reason, every number with its meaning. Pure.

Stored as canonical JSON beside its Markdown form (`markdown`) and attached to the engine; the
annotations of the attachment let a listing show it, and promotion use it, without opening it.
"""

from __future__ import annotations

import math
from datetime import UTC
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, Field

from engine_pipeline.gates.check import CheckVerdict
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired_result import PairedResult
from engine_pipeline.gates.parity_result import ParityResult
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.stats import Estimate
from engine_pipeline.gates.template import TemplateResult
from engine_registry.digest import Digest
from engine_registry.documents import Document, Value, canonical_json
from engine_registry.record import Text
from engine_registry.refs import Slug

# Keys of the annotations of an attached report.
GATE = "org.engine-ci.gate"
OUTCOME = "org.engine-ci.gate.outcome"
POLICY = "org.engine-ci.gate.policy"
SUITE = "org.engine-ci.gate.suite"
SUITE_NAME = "org.engine-ci.gate.suite.name"
DEVICE = "org.engine-ci.gate.device"
RUNTIME = "org.engine-ci.gate.runtime-config"
CREATED = "org.opencontainers.image.created"

TEXT_LIMIT_CHARS = 2000
ASKED_LIMIT_CHARS = 500
Count = Annotated[int, Field(ge=0)]


class Device(Value):
    """What the engine was judged on.

    Attributes:
        sku: as in specs, e.g. `cpu-x86-64-v3`.
        host_class: what makes two hosts comparable in speed, e.g. `amd-epyc-7763-2-cores`.
        runtime: versions of what loaded the engine.
    """

    sku: Slug
    host_class: Text
    cpu_model: Text
    cores: Annotated[int, Field(ge=1)]
    runtime: dict[str, str] = {}


class Finding(Value):
    """One thing that was examined; `reason` names what was found and the bar."""

    name: Text
    outcome: Outcome
    reason: Annotated[str, Field(min_length=1, max_length=2000)]


class LoadResult(Value):
    """Gate zero: did a server load the engine?

    Attributes:
        load_s: from the start of the process until it was ready.
        log: the last lines of the server's log, if it did not get ready or did not stay up.
        warnings: what the server said against the engine although it loaded it.
    """

    outcome: Outcome
    reason: Annotated[str, Field(min_length=1, max_length=2000)]
    load_s: float | None = None
    log: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


class Attempt(Value):
    """One answer to one case.

    Attributes:
        text: at most TEXT_LIMIT_CHARS of it; the checks saw all `text_chars`.
        error: why there is no whole answer.
    """

    outcome: Outcome
    text: str
    text_chars: Count
    finish_reason: str | None
    completion_tokens: int | None
    e2e_ms: float
    checks: tuple[CheckVerdict, ...] = ()
    error: str | None = None


class CaseResult(Value):
    """One case.

    Attributes:
        asked: the last message that was sent, at most ASKED_LIMIT_CHARS of it.
        outcome: failed if any attempt failed, else errored if any could not be judged.
        score: share of the attempts that passed.
        agreement: share of the answers that are the most frequent one, as far as they are kept;
            None without an answer.
    """

    id: Slug
    tags: tuple[Slug, ...]
    must: bool
    outcome: Outcome
    score: float
    agreement: float | None
    attempts: Annotated[tuple[Attempt, ...], Field(min_length=1)]
    asked: str = ""

    @property
    def errored(self) -> int:
        """Attempts that could not be judged."""
        return sum(attempt.outcome is Outcome.ERRORED for attempt in self.attempts)


class TagScore(Value):
    """The score over the cases of one tag; `bar` None: reported only."""

    tag: Slug
    cases: Count
    passed: Count
    score: float
    bar: float | None = None


class Measured(Value):
    """A `stats.Estimate` of something that is never negative, as it is stored.

    None stands for +inf, "beyond measure": too many requests failed, or, for `high`, there are too
    few samples for an upper bound. Where there is no lower bound, `low` is 0.
    """

    unit: str
    n: Count
    needed: Count
    value: float | None
    low: float | None
    high: float | None
    largest: float | None

    @classmethod
    def of(cls, estimate: Estimate, unit: str) -> Self:
        """To be stored, rounded to three decimals: microseconds, for times in milliseconds."""
        return cls(
            unit=unit,
            n=estimate.n,
            needed=estimate.needed,
            value=_finite(estimate.value),
            low=_finite(max(estimate.low, 0.0)),
            high=_finite(estimate.high),
            largest=_finite(estimate.largest),
        )

    @property
    def estimate(self) -> Estimate:
        """To be judged."""
        return Estimate(
            n=self.n,
            needed=self.needed,
            value=_number(self.value),
            low=_number(self.low),
            high=_number(self.high),
            largest=_number(self.largest),
        )


def _finite(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None


def _number(value: float | None) -> float:
    return math.inf if value is None else value


class Sample(Value):
    """One measured request; `error` names what made it count as failed."""

    ttft_ms: float | None
    tpot_ms: float | None
    e2e_ms: float
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    error: str | None = None


class PerformanceResult(Value):
    """The load that was made and how the engine bore it.

    Attributes:
        ignores_eos: every answer ran to its full length because the server was told to ignore the
            end of sequence; otherwise lengths differ and throughput is not comparable.
        failed: failed requests by kind.
        unreached: how many of them say nothing about the engine.
        metrics: by name, e.g. `ttft_p95_ms`; percentiles count failures as beyond measure.
        tokens_per_event: above 1, gaps between events are not gaps between tokens.
        window_s: length of the steady part, all requests in flight, that throughput is taken over.
    """

    requests: Count
    concurrency: Count
    warmup_requests: Count
    output_tokens: Count
    ignores_eos: bool
    failed: dict[str, int]
    unreached: Count
    metrics: dict[str, Measured]
    prompt_tokens_mean: float | None
    cached_share: float | None
    tokens_per_event: float | None
    window_s: float
    samples: tuple[Sample, ...]


class Report(Document):
    """Everything that one run of one gate found.

    Attributes:
        policy: the bars, whole; `policy_digest` is theirs.
        outcome: `outcome.combine` of the findings'.
        cases: empty if the engine did not load.
        performance: None if it was not measured; a finding says why.
        paired: None if the policy does not ask for it; without a baseline it says so itself.
        template: None if the suite says nothing of chat template and tokenizer.
        parity: one for each parent that the policy names.
        definitions: what the metrics mean.
        client: versions of what asked and judged.
        runtime_config: digest of what the server was started with (`runtime_digest`); a release
            with another one is not judged by this report. None in reports that do not say.
    """

    engine: Digest
    gate: Slug
    suite_name: Slug
    suite: Digest
    policy: GatePolicy
    policy_digest: Digest
    device: Device
    started_at: AwareDatetime
    finished_at: AwareDatetime
    outcome: Outcome
    load: LoadResult
    findings: Annotated[tuple[Finding, ...], Field(min_length=1)]
    cases: tuple[CaseResult, ...] = ()
    tags: tuple[TagScore, ...] = ()
    performance: PerformanceResult | None = None
    paired: PairedResult | None = None
    template: TemplateResult | None = None
    parity: tuple[ParityResult, ...] = ()
    definitions: dict[str, str] = {}
    client: dict[str, str] = {}
    runtime_config: Digest | None = None

    @property
    def reasons(self) -> tuple[str, ...]:
        """What decided the outcome, in words."""
        return tuple(f"{f.name}: {f.reason}" for f in self.findings if f.outcome is self.outcome)


def runtime_digest(runtime_config: dict[str, Any]) -> Digest:
    """The digest by which reports and releases name a runtime configuration."""
    return Digest.of(canonical_json(runtime_config))


def listing(report: Report) -> dict[str, str]:
    """What a listing shows of the report, and what promotion decides on."""
    runtime = {} if report.runtime_config is None else {RUNTIME: str(report.runtime_config)}
    return runtime | {
        GATE: report.gate,
        OUTCOME: str(report.outcome),
        POLICY: str(report.policy_digest),
        SUITE: str(report.suite),
        SUITE_NAME: report.suite_name,
        DEVICE: report.device.host_class,
        CREATED: report.finished_at.astimezone(UTC).isoformat(timespec="microseconds"),
    }
