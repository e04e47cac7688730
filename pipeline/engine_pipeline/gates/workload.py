"""A workload as data: how long prompts and answers are, what they share, how they arrive. Pure.

Written under `workloads:` of `channels.yaml`, given by hand or captured from a log
(`workload_capture`). Two runs of one workload send the same requests: everything that is drawn is
drawn from its seed. Interactive and batch traffic are two workloads, each with bars of its own.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from engine_registry.digest import Digest
from engine_registry.documents import Value, canonical_json

PromptTokens = Annotated[int, Field(ge=1, le=131_072)]
# Time per further token takes two tokens.
OutputTokens = Annotated[int, Field(ge=2, le=32_768)]
InFlight = Annotated[int, Field(ge=1, le=256)]
MAX_PAIRS = 256
MAX_REQUESTS = 100_000


class Lane(StrEnum):
    """What the traffic is there for: somebody waits for the first word, or for the last answer."""

    INTERACTIVE = "interactive"
    BATCH = "batch"


class Spread(Value):
    """A log-normal distribution of whole numbers, cut at `max`; what lengths of chats look like."""

    median: PromptTokens
    p95: PromptTokens
    max: PromptTokens

    @model_validator(mode="after")
    def _is_ordered(self) -> Self:
        if not self.median <= self.p95 <= self.max:
            msg = f"want median <= p95 <= max, found {self.median}, {self.p95}, {self.max}"
            raise ValueError(msg)
        return self


class FixedLengths(Value):
    """Every prompt and every answer is as long as every other."""

    kind: Literal["fixed"]
    prompt_tokens: PromptTokens
    output_tokens: OutputTokens


class SpreadLengths(Value):
    """Prompt and answer are drawn apart."""

    kind: Literal["spread"]
    prompt_tokens: Spread
    output_tokens: Spread


class SampledLengths(Value):
    """Lengths as a log has them.

    Attributes:
        pairs: prompt tokens and output tokens of one request each.
    """

    kind: Literal["sampled"]
    pairs: Annotated[
        tuple[tuple[PromptTokens, OutputTokens], ...], Field(min_length=1, max_length=MAX_PAIRS)
    ]


class SharedPrefix(Value):
    """A beginning that some prompts have in common, as system prompts and tool schemas are.

    Attributes:
        tokens: its length; comes on top of the prompt's own.
        share: share of the requests that begin with one.
        count: how many different ones there are.
    """

    tokens: PromptTokens
    share: Annotated[float, Field(gt=0.0, le=1.0)]
    count: Annotated[int, Field(ge=1, le=1000)] = 1


class FixedConcurrency(Value):
    """So many requests in flight all along; each step is measured and judged by itself."""

    kind: Literal["concurrency"]
    steps: Annotated[tuple[InFlight, ...], Field(min_length=1, max_length=8)]

    @model_validator(mode="after")
    def _names_each_step_once(self) -> Self:
        if len(set(self.steps)) != len(self.steps):
            msg = f"a step is given twice: {', '.join(map(str, self.steps))}"
            raise ValueError(msg)
        return self


class Poisson(Value):
    """Requests come one by one, independent of each other, whether the engine keeps up or not."""

    kind: Literal["poisson"]
    rate_per_s: Annotated[float, Field(gt=0.0, le=1000.0)]


class Bursts(Value):
    """So many requests at once, again and again."""

    kind: Literal["bursts"]
    size: InFlight
    every_s: Annotated[float, Field(gt=0.0, le=3600.0)]


class Workload(Value):
    """One kind of traffic.

    Attributes:
        requests: how many are measured, of each step; a p95 bar takes 59, a p99 bar 299.
        duration_s: nothing is sent after that time, of each step, even if requests are left.
        warmup_requests: sent first, with prompts of their own, and not measured.
    """

    lane: Lane
    lengths: Annotated[FixedLengths | SpreadLengths | SampledLengths, Field(discriminator="kind")]
    shared_prefix: SharedPrefix | None = None
    arrival: Annotated[FixedConcurrency | Poisson | Bursts, Field(discriminator="kind")]
    requests: Annotated[int, Field(ge=1, le=MAX_REQUESTS)]
    duration_s: Annotated[float, Field(gt=0.0, le=86_400.0)] | None = None
    warmup_requests: Annotated[int, Field(ge=1, le=1000)] = 2
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0

    @model_validator(mode="after")
    def _fills_its_load(self) -> Self:
        most = self.most_in_flight
        if most is not None and self.requests < most:
            msg = f"requests {self.requests} cannot keep {most} in flight"
            raise ValueError(msg)
        return self

    @property
    def most_in_flight(self) -> int | None:
        """The most requests that are in flight by design; None where only the rate is given."""
        match self.arrival:
            case FixedConcurrency(steps=steps):
                return max(steps)
            case Bursts(size=size):
                return size
            case Poisson():
                return None

    @property
    def digest(self) -> Digest:
        """The digest of all that decides what is sent and when."""
        return Digest.of(canonical_json(self))
