"""A gate's report as a value: every verdict with its reason, every number with its meaning. Pure.

Stored as canonical JSON beside its Markdown form (`markdown`) and attached to the engine; the
annotations of the attachment let a listing show it, and promotion use it, without opening it.
"""

from __future__ import annotations

from datetime import UTC, date
from typing import Annotated, Any, Self

from pydantic import AwareDatetime, Field, model_validator

from engine_pipeline.gates.case_result import (
    ASKED_LIMIT_CHARS,
    TEXT_LIMIT_CHARS,
    Attempt,
    CaseResult,
    TagScore,
)
from engine_pipeline.gates.check_code import CheckCode
from engine_pipeline.gates.embedding_model import EmbeddingsUsed
from engine_pipeline.gates.judge_model import JudgeUsed
from engine_pipeline.gates.lane_result import LaneResult
from engine_pipeline.gates.measured import Measured
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired_result import ClientOverhead, PairedResult
from engine_pipeline.gates.parity_result import ParityResult
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.prefix import PrefixResult
from engine_pipeline.gates.served_by import ServedBy
from engine_pipeline.gates.template import TemplateResult
from engine_pipeline.gates.under_load_result import UnderLoadResult
from engine_pipeline.nvml.use import BoardUse
from engine_registry.digest import Digest
from engine_registry.documents import Document, Value, canonical_json
from engine_registry.record import Text
from engine_registry.refs import Slug

__all__ = ["ASKED_LIMIT_CHARS", "TEXT_LIMIT_CHARS", "Attempt", "CaseResult", "TagScore"]

# Keys of the annotations of an attached report.
GATE = "org.engine-ci.gate"
OUTCOME = "org.engine-ci.gate.outcome"
POLICY = "org.engine-ci.gate.policy"
SUITE = "org.engine-ci.gate.suite"
SUITE_NAME = "org.engine-ci.gate.suite.name"
DEVICE = "org.engine-ci.gate.device"
DRIVER = "org.engine-ci.gate.driver"
RUNTIME = "org.engine-ci.gate.runtime-config"
CREATED = "org.opencontainers.image.created"

Count = Annotated[int, Field(ge=0)]


class Device(Value):
    """What the engine was judged on.

    Attributes:
        sku: which the machine was seen to be, as in specs, e.g. `cpu-x86-64-v3`.
        host_class: what makes two hosts comparable in speed, e.g. `amd-epyc-7763-2-cores`.
        runtime: versions of what loaded the engine.
        driver: of the GPUs; None for a CPU target, and in reports that do not say.
    """

    sku: Slug
    host_class: Text
    cpu_model: Text
    cores: Annotated[int, Field(ge=1)]
    runtime: dict[str, str] = {}
    driver: Text | None = None


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
        client: what the client itself adds under this load; None in reports that do not say.
        disturbed: how many more requests there were, which do not count (`nvml.use.RULE`); where
            no other is left, those are the ones that are told of.
        gpus: how the boards did meanwhile; none without boards.
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
    client: ClientOverhead | None = None
    disturbed: Count = 0
    gpus: tuple[BoardUse, ...] = ()


class Report(Document):
    """Everything that one run of one gate found.

    Attributes:
        engine: None: an endpoint was judged, and nothing proves which engine it serves.
        endpoint: who that was.
        device: None: it is not known what the endpoint runs on.
        policy: the bars, whole; `policy_digest` is theirs.
        outcome: `outcome.combine` of the findings'.
        cases: empty if the engine did not load.
        under_load: the second pass over the suite; None if the policy asks for none.
        performance: None if it was not measured; a finding says why.
        lanes: one for each lane of the policy that was measured.
        paired: None if the policy does not ask for it; without a baseline it says so itself.
        template: None if the suite says nothing of chat template and tokenizer.
        parity: one for each parent that the policy names.
        prefixes: None if the suite names no blocks that its prompts begin with.
        judge: who decided what was left to a judge; None: nothing was.
        embeddings: what told how near texts are; None: nothing asked for it.
        check_code: what ran for checks of kind `python`.
        definitions: what the metrics mean.
        client: versions of what asked and judged.
        runtime_config: digest of what the server was started with (`runtime_digest`); a release
            with another one is not judged by this report. None in reports that do not say.
    """

    engine: Digest | None
    endpoint: ServedBy | None = None
    gate: Slug
    suite_name: Slug
    suite: Digest
    policy: GatePolicy
    policy_digest: Digest
    device: Device | None
    started_at: AwareDatetime
    finished_at: AwareDatetime
    outcome: Outcome
    load: LoadResult
    findings: Annotated[tuple[Finding, ...], Field(min_length=1)]
    cases: tuple[CaseResult, ...] = ()
    tags: tuple[TagScore, ...] = ()
    under_load: UnderLoadResult | None = None
    performance: PerformanceResult | None = None
    lanes: tuple[LaneResult, ...] = ()
    paired: PairedResult | None = None
    template: TemplateResult | None = None
    parity: tuple[ParityResult, ...] = ()
    prefixes: PrefixResult | None = None
    judge: JudgeUsed | None = None
    embeddings: EmbeddingsUsed | None = None
    check_code: tuple[CheckCode, ...] = ()
    definitions: dict[str, str] = {}
    client: dict[str, str] = {}
    runtime_config: Digest | None = None

    @model_validator(mode="after")
    def _is_about_somebody(self) -> Self:
        if (self.engine is None) != (self.endpoint is not None):
            msg = "a report is about an engine or about an endpoint, one of the two"
            raise ValueError(msg)
        if self.engine is not None and self.device is None:
            msg = "a report about an engine says what it was judged on"
            raise ValueError(msg)
        return self

    @property
    def subject(self) -> str:
        """What was judged, in few words."""
        return f"endpoint {self.endpoint}" if self.engine is None else f"engine {self.engine.short}"

    @property
    def judged_engine(self) -> Digest:
        """The engine of a report that is about one.

        Raises:
            RuntimeError: it is about an endpoint.
        """
        if self.engine is None:
            msg = f"the report on {self.subject} names no engine"
            raise RuntimeError(msg)
        return self.engine

    @property
    def no_baseline(self) -> tuple[str, ...]:
        """Channels on which nothing was live that the policy wanted it compared with."""
        compared = [self.paired.baseline] if self.paired else []
        named = [one.named for one in compared if one.engine is None]
        named += [one.parent.named for one in self.parity if one.lacks_baseline]
        return tuple(dict.fromkeys(named))

    @property
    def quarantine_ends(self) -> date | None:
        """The last day on which every case that was left out may be; None: none was."""
        held = [case.quarantine.until for case in self.cases if case.quarantine and not case.counts]
        return min(held, default=None)

    @property
    def host(self) -> str:
        """What makes two hosts comparable in speed; `not known` for an endpoint."""
        return "not known" if self.device is None else self.device.host_class

    @property
    def reasons(self) -> tuple[str, ...]:
        """What decided the outcome, in words."""
        return tuple(f"{f.name}: {f.reason}" for f in self.findings if f.outcome is self.outcome)


def runtime_digest(runtime_config: dict[str, Any]) -> Digest:
    """The digest by which reports and releases name a runtime configuration."""
    return Digest.of(canonical_json(runtime_config))


def listing(report: Report) -> dict[str, str]:
    """What a listing shows of the report, and what promotion decides on."""
    told = {} if report.runtime_config is None else {RUNTIME: str(report.runtime_config)}
    if report.device is not None and report.device.driver is not None:
        told[DRIVER] = report.device.driver
    return told | {
        GATE: report.gate,
        OUTCOME: str(report.outcome),
        POLICY: str(report.policy_digest),
        SUITE: str(report.suite),
        SUITE_NAME: report.suite_name,
        DEVICE: report.host,
        CREATED: report.finished_at.astimezone(UTC).isoformat(timespec="microseconds"),
    }
