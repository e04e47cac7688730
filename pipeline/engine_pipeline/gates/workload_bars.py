"""The bars of one workload: limits, and how much worse than what is live it may be. Pure.

A bar of throughput never stands alone: an engine that makes everybody wait can have plenty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from engine_pipeline.gates.workload import Workload
from engine_registry.documents import Value
from engine_registry.refs import Slug

if TYPE_CHECKING:
    from engine_pipeline.gates.reply import Reply

Limit = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
Share = Annotated[float, Field(gt=0.0, lt=1.0)]
LATENCIES = tuple(
    f"{series}_p{quantile}_ms"
    for series in ("ttft", "ttft_open", "tpot", "itl", "stall", "e2e")
    for quantile in (50, 90, 95, 99)
)
CEILINGS = (*LATENCIES, "error_share")
FLOORS = ("output_tokens_per_s", "output_tokens_per_s_per_gpu", "goodput_share")
# How much longer the same request takes, request by request; and percentiles of what is stored of
# each request.
REQUEST_BY_REQUEST = ("ttft", "ttft_open", "tpot", "e2e")
RELATIVE = (*REQUEST_BY_REQUEST, *(name for name in LATENCIES if not name.startswith("itl")))
# Fewer leave too little after trimming to bound anything.
LEAST_ROUNDS = 6


class Slo(Value):
    """What a good request is; goodput is the share of requests that are."""

    ttft_ms: Limit
    tpot_ms: Limit

    def met_by(self, reply: Reply) -> bool:
        """Whether an answer that did not fail was quick enough; one token has no TPOT to miss."""
        ttft, tpot = reply.ttft_ms, reply.tpot_ms
        return ttft is not None and ttft <= self.ttft_ms and (tpot or 0.0) <= self.tpot_ms


class AgainstLive(Value):
    """How the engine is compared with the one that is live, in the same run on the same device.

    Attributes:
        channel: of the same product; its live engine is the one to beat.
        smallest_change: by metric, the smallest change for the worse that is worth catching, as a
            share: 0.1 is ten per cent slower. `ttft` and `tpot` compare request by request and need
            the fewest rounds; `ttft_p95_ms` sees a tail that they do not.
        rounds: how many pairs of runs are made before a verdict; as many again while it is open.
        max_rounds: how many are made at most, dropped ones included.
        false_alarm: how often the same engine may fail against itself.
        miss: how often an engine that is slower by the smallest change may pass.
        no_baseline: what it means that nothing is live; `skip` lets the first engine in on its
            other bars.
    """

    channel: Slug = "prod"
    smallest_change: Annotated[dict[str, Share], Field(min_length=1)]
    rounds: Annotated[int, Field(ge=LEAST_ROUNDS, le=100)] = 12
    max_rounds: Annotated[int, Field(ge=LEAST_ROUNDS, le=400)] = 36
    false_alarm: Annotated[float, Field(gt=0.0, le=0.2)] = 0.005
    miss: Annotated[float, Field(gt=0.0, le=0.2)] = 0.02
    no_baseline: Literal["inconclusive", "skip"] = "inconclusive"

    @model_validator(mode="after")
    def _can_be_measured(self) -> Self:
        _check_names(self.smallest_change, RELATIVE, "smallest_change")
        if self.max_rounds < self.rounds:
            msg = f"max_rounds {self.max_rounds} is less than rounds {self.rounds}"
            raise ValueError(msg)
        return self

    @property
    def looks(self) -> int:
        """How often a verdict is tried: after every `rounds` rounds."""
        return max(self.max_rounds // self.rounds, 1)


class Disturbed(Value):
    """When a run does not count, whatever came out of it; each a share.

    Attributes:
        foreign_cpu: of the machine's processor time, used by others than the gate and its server
            or taken by the hypervisor.
        throttled: of the readings of any GPU, with clocks held down for heat or power.
    """

    foreign_cpu: Share = 0.1
    throttled: Share = 0.05


class WorkloadBars(Value):
    """One workload and what is asked of an engine under it.

    Attributes:
        name: as findings and reports call it.
        slo: what goodput counts.
        ceilings: by metric, what must not be exceeded.
        floors: by metric, what must be reached.
        against_live: None compares with nothing.
        disturbed: which runs do not count.
        client_error: how far off the client itself may be at its p95, as a share of a ceiling, or
            of the time measured; more, and nothing is decided on that time.
    """

    name: Slug
    workload: Workload
    slo: Slo | None = None
    ceilings: dict[str, Limit] = {}
    floors: dict[str, Limit] = {}
    against_live: AgainstLive | None = None
    disturbed: Disturbed = Disturbed()
    client_error: Share = 0.05

    @model_validator(mode="after")
    def _bars_latency(self) -> Self:
        _check_names(self.ceilings, CEILINGS, "ceilings")
        _check_names(self.floors, FLOORS, "floors")
        if self.slo is None and "goodput_share" in self.floors:
            msg = "floors: goodput_share without an slo: say what a good request is"
            raise ValueError(msg)
        if (share := self.floors.get("goodput_share", 0.0)) > 1.0:
            msg = f"floors: goodput_share {share:g} is more than all requests"
            raise ValueError(msg)
        against = self.against_live
        if not self.bounds_latency and against is not None and against.no_baseline == "skip":
            msg = (
                f"workload {self.name}: no_baseline: skip would leave no bar on latency: "
                "give a ceiling such as ttft_p95_ms too"
            )
            raise ValueError(msg)
        if not self.bounds_latency and against is None:
            msg = (
                f"workload {self.name} has no bar on latency, and throughput alone passes nothing: "
                "give a ceiling such as ttft_p95_ms, a goodput_share, or against_live"
            )
            raise ValueError(msg)
        return self

    @property
    def bounds_latency(self) -> bool:
        """Whether latency has a limit of its own, whatever is live."""
        return bool(set(self.ceilings) & set(LATENCIES)) or "goodput_share" in self.floors


def _check_names(given: dict[str, float], known: tuple[str, ...], where: str) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        msg = f"{where}: no metric {', '.join(unknown)}; there are {', '.join(known)}"
        raise ValueError(msg)
