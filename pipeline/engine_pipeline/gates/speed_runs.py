"""The runs of a workload as they are stored: what was run, what counts, what came of it. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from engine_pipeline.gates.device_state import DeviceUse
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired import Comparison
from engine_pipeline.gates.speed_report import ClientError, PerformanceResult, Sample
from engine_pipeline.gates.workload import Lane
from engine_registry.digest import Digest
from engine_registry.documents import Value
from engine_registry.record import Text
from engine_registry.refs import Slug

Count = Annotated[int, Field(ge=0)]
Reason = Annotated[str, Field(min_length=1, max_length=2000)]


class Side(StrEnum):
    """Whose run it was."""

    CANDIDATE = "candidate"
    LIVE = "live"


class BaselineState(StrEnum):
    """What there was to compare with."""

    COMPARED = "compared"
    NONE = "none"  # nothing is live
    SAME = "same"  # the candidate is what is live
    UNUSABLE = "unusable"  # something is live, and cannot be run here
    NOT_WANTED = "not wanted"  # the policy compares with nothing


class Baseline(Value):
    """What the candidate was compared with, or why with nothing; `engine` is what is live."""

    state: BaselineState
    reason: Reason
    engine: Digest | None = None


class Trouble(Value):
    """A server that did not load, or ended under load, and what that says of its engine."""

    side: Side
    outcome: Outcome
    reason: Reason


class StepSamples(Value):
    """Every request of one step of one run."""

    level: Text
    ignores_eos: bool
    samples: tuple[Sample, ...]


class RunResult(Value):
    """One run of the workload on one fresh server.

    Attributes:
        number: in the order in which they were made, from 1.
        round: of which pair it is, from 1.
        load_s: how long the server took to be ready.
        spoilt: why the run does not count; None: it does.
        client: how far off the client was just before.
    """

    number: Count
    round: Count
    side: Side
    load_s: float
    spoilt: Reason | None
    client: ClientError
    device: DeviceUse
    steps: tuple[StepSamples, ...]


class StepResult(Value):
    """One step of the workload over all runs that count; None where there are none."""

    level: Text
    candidate: PerformanceResult | None
    live: PerformanceResult | None = None
    comparisons: tuple[Comparison, ...] = ()


class WorkloadResult(Value):
    """A workload and how the engine bore it.

    Attributes:
        workload: digest of what was sent.
        rounds_made: pairs of runs, or single runs where nothing is compared.
        rounds_counted: those in which no run was spoilt.
        rule: which runs do not count, in words.
        trouble: what ended the runs before their time.
    """

    name: Slug
    lane: Lane
    workload: Digest
    baseline: Baseline
    rounds_made: Count
    rounds_counted: Count
    rule: Reason
    runs: tuple[RunResult, ...]
    steps: tuple[StepResult, ...]
    trouble: Trouble | None = None

    @property
    def client(self) -> ClientError | None:
        """The worst self-test of the runs that count; None if none does."""
        tests = [run.client for run in self.runs if run.spoilt is None]
        return max(tests, key=lambda test: test.ttft_p95_ms, default=None)
