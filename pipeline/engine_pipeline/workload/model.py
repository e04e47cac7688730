"""A workload: everything that makes a load, so that it can be made again. Pure."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from engine_pipeline.workload import arrival, lengths
from engine_pipeline.workload.arrival import Arrival, Concurrency
from engine_pipeline.workload.lengths import Length
from engine_registry.documents import Document, Value
from engine_registry.record import Text
from engine_registry.refs import Slug

MAX_REQUESTS = 100_000


class SharedPrefix(Value):
    """What prompts have in common, as system prompts and tool schemas are.

    Attributes:
        share: of each prompt's tokens, from the first one on.
        prefixes: how many different ones there are; each prompt begins with one of them.
    """

    share: Annotated[float, Field(gt=0.0, le=0.99)]
    prefixes: Annotated[int, Field(ge=1, le=1000)] = 1


class Captured(Value):
    """Where a workload comes from; it decides nothing.

    Attributes:
        lines: how many of the log were used.
        skipped: how many were not, by reason.
        span_s: from the first request used to the last.
        dispersion: variance over mean of the requests counted in windows of time: 1 is Poisson.
        window_s: length of those windows.
        notes: what could not be told from the log.
    """

    lines: Annotated[int, Field(ge=1)]
    skipped: dict[str, int] = {}
    span_s: float | None = None
    dispersion: float | None = None
    window_s: float | None = None
    notes: tuple[Text, ...] = ()


class Workload(Document):
    """A load on one endpoint; `digest` covers every field.

    Attributes:
        name: for reports.
        description: what it stands for.
        prompt_tokens: length of prompts, chat template included.
        output_tokens: length of answers; the server is asked to ignore the end of sequence.
        shared_prefix: None: no two prompts have anything in common.
        arrival: when requests come.
        requests: how many are measured, in each step.
        duration_s: instead of `requests`: for how long requests are sent, in each step.
        warmup_requests: sent first, a few at a time, and not measured.
        seed: the same one gives the same requests at the same times.
        captured: None if people wrote it.
    """

    name: Slug
    description: Annotated[str, Field(max_length=1000)] = ""
    prompt_tokens: Length
    output_tokens: Length
    shared_prefix: SharedPrefix | None = None
    arrival: Arrival
    requests: Annotated[int, Field(ge=1, le=MAX_REQUESTS)] | None = None
    duration_s: Annotated[float, Field(ge=1.0, le=86_400.0)] | None = None
    warmup_requests: Annotated[int, Field(ge=2, le=1000)] = 4
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 1
    captured: Captured | None = None

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if (self.requests is None) == (self.duration_s is None):
            msg = "give either requests or duration_s, so that it ends"
            raise ValueError(msg)
        if isinstance(self.arrival, Concurrency):
            most = self.arrival.steps[-1]
            if self.requests is not None and self.requests < most:
                msg = f"requests {self.requests} cannot keep {most} in flight"
                raise ValueError(msg)
        elif self.duration_s is not None and self.arrival.rate_per_s * self.duration_s < 1:
            msg = f"{self.duration_s:g} s at {self.arrival.rate_per_s:g} requests/s hold none"
            raise ValueError(msg)
        return self

    @property
    def is_open(self) -> bool:
        """Whether requests come at times that no answer delays."""
        return not isinstance(self.arrival, Concurrency)


def describe(workload: Workload) -> list[tuple[str, str]]:
    """What it is, a line for each part."""
    prefix = workload.shared_prefix
    shared = "nothing" if prefix is None else f"the first {prefix.share:.0%} of each prompt"
    if prefix is not None and prefix.prefixes > 1:
        shared += f", {prefix.prefixes} different ones"
    ends = f"{workload.requests} requests" if workload.requests else f"{workload.duration_s:g} s"
    return [
        ("prompts", lengths.describe(workload.prompt_tokens)),
        ("answers", lengths.describe(workload.output_tokens)),
        ("shared", shared),
        ("arrival", arrival.describe(workload.arrival)),
        ("measured", ends + (" in each step" if not workload.is_open else "")),
        ("warm-up", f"{workload.warmup_requests} requests, not measured"),
        ("seed", str(workload.seed)),
    ]
