"""What a lane's load showed, as a report stores it. Pure values."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from engine_pipeline.gates.measured import Measured
from engine_pipeline.gates.paired_result import ClientOverhead
from engine_pipeline.nvml.use import BoardUse
from engine_pipeline.workload.model import Workload
from engine_registry.digest import Digest
from engine_registry.documents import Value
from engine_registry.record import Text

Count = Annotated[int, Field(ge=0)]


class LaneSample(Value):
    """One measured request; times count from when it was due, where it had a time.

    Attributes:
        at_s: when it was due, or sent, in seconds from the start of its step.
        lag_ms: how much later than that the client began with it; 0 where it had no time.
        prompt_asked, output_asked: how many tokens were meant.
        error: names what made it count as failed.
    """

    at_s: float
    lag_ms: float
    ttft_ms: float | None
    tpot_ms: float | None
    e2e_ms: float
    prompt_asked: Count
    output_asked: Count
    prompt_tokens: int | None
    completion_tokens: int | None
    cached_tokens: int | None
    error: str | None = None


class ServerSaid(Value):
    """What the server's own metrics say of the time of one step; None where they say nothing.

    Attributes:
        queue_mean_ms: how long requests waited before they were worked on.
        queue_p95_at_most_ms: upper edge of the bin of the server's histogram that holds the p95.
        cache_hit_share: prompt tokens that were found in the prefix cache.
    """

    queue_mean_ms: float | None = None
    queue_p95_at_most_ms: float | None = None
    cache_hit_share: float | None = None


class LaneStep(Value):
    """One step of a lane: so many in flight, or requests as they came.

    Attributes:
        in_flight: how many were kept in flight; None where requests came at their times.
        most_in_flight: how many there were at once.
        failed: failed requests by kind.
        unreached: how many of them say nothing about the engine.
        metrics: by name; percentiles count failures as beyond measure.
        late_share: share of requests that the client began with late; None in a closed loop.
        lag_p99_ms: how late, at the p99.
        offered_per_s: requests that came per second.
        window_s: length of the time that throughput is taken over.
        cached_share: of the prompt tokens, by the answers' usage.
        disturbed: how many more requests there were, which do not count (`nvml.use.RULE`); where
            no other is left, those are the ones that are told of.
        gpus: how the boards did meanwhile; none without boards.
    """

    in_flight: int | None
    requests: Count
    most_in_flight: Count
    failed: dict[str, int]
    unreached: Count
    metrics: dict[str, Measured]
    late_share: float | None
    lag_p99_ms: float | None
    offered_per_s: float | None
    window_s: float
    prompt_tokens_mean: float | None
    output_tokens_mean: float | None
    cached_share: float | None
    server: ServerSaid | None = None
    disturbed: Count = 0
    gpus: tuple[BoardUse, ...] = ()
    samples: tuple[LaneSample, ...]


class LaneResult(Value):
    """One lane.

    Attributes:
        workload: whole; `digest` is its.
        ignores_eos: every answer ran to the length that was asked for.
        lengths_known: the server counted tokens of a first few prompts, so that the others could
            be made as long as the workload says; else a word was taken for a token.
        client: what the client itself adds at as many in flight; None: not measured.
        trouble: what ended it before its time.
    """

    name: Text
    workload: Workload
    digest: Digest
    ignores_eos: bool
    lengths_known: bool
    steps: tuple[LaneStep, ...]
    client: ClientOverhead | None = None
    trouble: Text | None = None
