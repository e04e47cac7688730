"""Contestants in numbers, for tests of how bake-offs are judged."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from engine_pipeline.bakeoff.facts import Facts, Interval, Step, wilson
from engine_pipeline.bakeoff.file import BakeoffFile
from engine_pipeline.bakeoff.measured import Identity, Measured, StructuredResult, SuiteScore
from engine_pipeline.gates.lane_bars import LaneBars
from engine_pipeline.gates.lane_metrics import judged_by
from engine_pipeline.gates.lane_result import LaneResult, LaneSample, LaneStep
from engine_pipeline.gates.measured import Measured as Metric
from engine_pipeline.gates.outcome import Outcome
from engine_pipeline.gates.paired_result import ClientOverhead
from engine_pipeline.gates.report import Attempt, CaseResult, Device, PerformanceResult, Sample
from engine_pipeline.gates.stats import Estimate, percentile_estimate, rate
from engine_registry.digest import Digest

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


OVERHEAD = ClientOverhead(
    in_flight=1, requests=20, ttft_p50_ms=0.5, ttft_p95_ms=1.0, tpot_p50_ms=0.1
)


def estimate(value: float, *, n: int = 60) -> Estimate:
    """A p95 of `n` samples: with 59 and more its upper bound is a tenth above it."""
    return Estimate(
        n=n,
        needed=59,
        value=value,
        low=value * 0.9,
        high=value * 1.1 if n >= 59 else math.inf,
        largest=value * 1.2,
    )


def step(
    *,
    concurrency: int = 1,
    ttft: float = 100.0,
    tpot: float | None = 10.0,
    rate_: float | None = 100.0,
    noise: float = 0.05,
    n: int = 60,
) -> Step:
    flow = (
        None
        if rate_ is None
        else Interval(low=rate_ * (1 - noise), value=rate_, high=rate_ * (1 + noise))
    )
    # One unit of money an hour over the millions of tokens that an hour gives.
    unit = (
        None
        if flow is None
        else Interval(
            low=1e6 / 3600 / flow.high, value=1e6 / 3600 / flow.value, high=1e6 / 3600 / flow.low
        )
    )
    return Step(
        concurrency=concurrency,
        ttft_p95_ms=estimate(ttft, n=n),
        tpot_p95_ms=None if tpot is None else estimate(tpot, n=n),
        tokens_per_s=flow,
        unit_cost=unit,
    )


def facts(
    name: str,
    *,
    score: float = 0.9,
    cases: int = 100,
    price: float | None = 1.0,
    steps: tuple[Step, ...] | None = None,
    **changes: Any,
) -> Facts:
    """A contestant of whom the first cases pass, so whoever scores less loses cases to it."""
    passed = round(score * cases)
    values: dict[str, Any] = {
        "most_score": passed / cases,
        "failed_must": (),
        "open_must": (),
        "structured_share": None,
        "by_the_hour": True,
    }
    return Facts(
        name=name,
        scores=(1.0,) * passed + (0.0,) * (cases - passed),
        score=wilson(passed / cases, cases),
        price=price,
        steps=steps or (step(),),
        **(values | changes),
    )


PLAIN: dict[str, Any] = {
    "schema_version": 1,
    "name": "demo",
    "contestants": [
        {
            "name": name,
            "endpoint": {"url": "http://127.0.0.1:9", "model": "engine"},
            "model_revision": "r1",
            "chat_template": "t1",
            "price": {"per_hour": 1.0},
        }
        for name in ("one", "two")
    ],
    "suites": ["core"],
    "load": {"requests": 60, "concurrency": [1], "output_tokens": 8},
    "optimise": ["cost"],
}


def file(**changes: Any) -> BakeoffFile:
    return BakeoffFile.model_validate(PLAIN | changes)


def performance(
    *, ttft: float = 100.0, tpot: float = 10.0, tokens: int = 8, n: int = 60, concurrency: int = 1
) -> PerformanceResult:
    sample = Sample(
        ttft_ms=ttft,
        tpot_ms=tpot,
        e2e_ms=ttft + tpot * (tokens - 1),
        prompt_tokens=24,
        completion_tokens=tokens,
        cached_tokens=0,
    )
    flow = [tokens * concurrency * 1000 / sample.e2e_ms] * 10
    return PerformanceResult(
        requests=n,
        concurrency=concurrency,
        warmup_requests=1,
        output_tokens=tokens,
        ignores_eos=True,
        failed={},
        unreached=0,
        metrics={
            "ttft_p95_ms": Metric.of(percentile_estimate([ttft] * n, 0.95), "ms"),
            "tpot_p95_ms": Metric.of(percentile_estimate([tpot] * n, 0.95), "ms"),
            "output_tokens_per_s": Metric.of(rate(flow, 1.0), "tokens/s"),
        },
        prompt_tokens_mean=24.0,
        cached_share=0.0,
        tokens_per_event=1.0,
        window_s=1.0,
        samples=(sample,) * n,
    )


def case(number: int, *, passed: bool = True, must: bool = False) -> CaseResult:
    outcome = Outcome.PASSED if passed else Outcome.FAILED
    attempt = Attempt(
        outcome=outcome,
        text="x",
        text_chars=1,
        finish_reason="stop",
        completion_tokens=1,
        e2e_ms=1.0,
    )
    return CaseResult(
        id=f"case-{number}",
        tags=("t",),
        must=must,
        outcome=outcome,
        score=float(passed),
        agreement=1.0,
        attempts=(attempt,),
    )


def measured(
    *,
    passed: int = 9,
    cases: int = 10,
    steps: tuple[PerformanceResult, ...] | None = None,
    identity: dict[str, Any] | None = None,
    **changes: Any,
) -> Measured:
    who = {"what": "x", "model_revision": "r1", "chat_template": "t1", "verified": False}
    values: dict[str, Any] = {
        "key": Digest.of(b"key"),
        "identity": Identity.model_validate(who | (identity or {})),
        "device": None,
        "started_at": AT,
        "finished_at": AT,
        "load_s": None,
        "suites": (
            SuiteScore(
                name="core",
                digest=Digest.of(b"suite"),
                cases=tuple(case(number, passed=number < passed) for number in range(cases)),
            ),
        ),
        "steps": steps or (performance(),),
        "foreign_cpu": None,
        "overhead": OVERHEAD,
    }
    return Measured.model_validate(values | changes)


HERE = Device(sku="cpu-x86-64-v3", host_class="test", cpu_model="test", cores=2)


def bars(**changes: Any) -> LaneBars:
    """A lane of 60 requests, held to a p95 that it meets."""
    workload = {
        "name": "chat",
        "prompt_tokens": {"kind": "fixed", "tokens": 20},
        "output_tokens": {"kind": "fixed", "tokens": 8},
        "arrival": {"kind": "poisson", "rate_per_s": 10},
        "requests": 60,
    }
    return LaneBars.model_validate(
        {"workload": workload, "ceilings": {"ttft_p95_ms": 1000}} | changes
    )


def lane(
    *,
    name: str = "chat",
    ttft: float = 100.0,
    slow: int = 0,
    n: int = 60,
    lag_ms: float = 0.0,
    wanted: LaneBars | None = None,
) -> LaneResult:
    """A lane whose requests come every 100 ms; the first `slow` of them take ten times as long."""
    wanted = wanted or bars()
    workload = wanted.workload
    assert workload is not None
    samples = tuple(
        LaneSample(
            at_s=number / 10,
            lag_ms=lag_ms,
            ttft_ms=ttft * (10 if number < slow else 1),
            tpot_ms=10.0,
            e2e_ms=ttft + 70,
            prompt_asked=20,
            output_asked=8,
            prompt_tokens=20,
            completion_tokens=8,
            cached_tokens=0,
        )
        for number in range(n)
    )
    times = [sample.ttft_ms or 0.0 for sample in samples]
    made = LaneStep(
        in_flight=None,
        requests=n,
        most_in_flight=2,
        failed={},
        unreached=0,
        metrics={
            "ttft_p95_ms": Metric.of(percentile_estimate(times, 0.95), "ms"),
            "tpot_p95_ms": Metric.of(percentile_estimate([10.0] * n, 0.95), "ms"),
        },
        late_share=0.0,
        lag_p99_ms=lag_ms,
        offered_per_s=10.0,
        window_s=(n - 1) / 10,
        prompt_tokens_mean=20.0,
        output_tokens_mean=8.0,
        cached_share=0.0,
        samples=samples,
    )
    return LaneResult(
        name=name,
        workload=workload,
        digest=workload.digest,
        ignores_eos=True,
        lengths_known=True,
        steps=(judged_by(made, wanted),),
        client=OVERHEAD,
    )


def structured(valid: int = 19, requests: int = 20) -> StructuredResult:
    return StructuredResult(
        requests=requests,
        valid=valid,
        defects={} if valid == requests else {"want JSON": requests - valid},
        speed=performance(n=requests),
    )
