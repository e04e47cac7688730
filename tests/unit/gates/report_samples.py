"""Reports for the tests of their faces: ordinary ones, and one whose model is hostile."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

from engine_pipeline.gates.check import CheckVerdict
from engine_pipeline.gates.differences import Live
from engine_pipeline.gates.lane_result import LaneResult, LaneSample, LaneStep
from engine_pipeline.gates.outcome import Outcome, combine
from engine_pipeline.gates.paired import compare, rule
from engine_pipeline.gates.paired_bars import PairedBars
from engine_pipeline.gates.paired_result import (
    Baseline,
    PairedResult,
    PairedRound,
    PairedRun,
    Side,
)
from engine_pipeline.gates.parity_result import (
    Divergence,
    DivergenceKind,
    Parent,
    ParityFinding,
    ParityMeasures,
    ParityResult,
    TagDrop,
)
from engine_pipeline.gates.policy import GatePolicy
from engine_pipeline.gates.reply import DEFINITIONS
from engine_pipeline.gates.report import (
    Attempt,
    CaseResult,
    Device,
    Finding,
    LoadResult,
    Measured,
    PerformanceResult,
    Report,
    Sample,
)
from engine_pipeline.gates.stats import percentile_estimate
from engine_pipeline.workload.model import Workload
from engine_registry.digest import Digest

POLICY = GatePolicy.model_validate(
    {
        "suite": "demo",
        "quality": {"min_score": 0.9, "min_tag_score": {"facts": 0.5}},
        "performance": {
            "requests": 60,
            "concurrency": 2,
            "output_tokens": 16,
            "max_ttft_p95_ms": 500,
            "max_tpot_p95_ms": 90,
        },
    }
)
# Everything that a page, an XML file, a log and a summary must not obey.
HOSTILE = (
    "</pre><script>window.dirty = 'script'</script>"
    "<img src=http://evil.test/x.png onerror=\"window.dirty = 'image'\">"
    "<style>@import url(http://evil.test/a.css);</style><iframe src=http://evil.test></iframe>"
    "<meta http-equiv=refresh content='0;url=http://evil.test'>"
    "\x00\x1b[31m\x07\u202egnp.exe\u202c\u2066\u200b\ufeff]]> &amp; <!-- ${bars} $cases"
    "\n::error::owned\n##[add-mask]x\n::stop-commands::y\n\r\u2028\u0085"
)
LONG_WORD = "w" * 20_000
HUGE = "All work and no play makes a dull model. " * 5_000  # 205 kB


def attempt(
    text: str, outcome: Outcome = Outcome.PASSED, reason: str = "as wanted", **changes: Any
) -> Attempt:
    errored = outcome is Outcome.ERRORED
    verdict = CheckVerdict(kind="contains", passed=outcome is Outcome.PASSED, reason=reason)
    values = {
        "outcome": outcome,
        "text": text,
        "text_chars": len(text),
        "finish_reason": "stop",
        "completion_tokens": 5,
        "e2e_ms": 250.0,
        "checks": () if errored else (verdict,),
        "error": reason if errored else None,
    }
    return Attempt(**{**values, **changes})


def case(name: str, *attempts: Attempt, must: bool = False, asked: str = "Why?") -> CaseResult:
    outcomes = [item.outcome for item in attempts]
    return CaseResult(
        id=name,
        tags=("facts",),
        must=must,
        outcome=combine(outcomes),
        score=outcomes.count(Outcome.PASSED) / len(outcomes),
        agreement=None,
        attempts=attempts,
        asked=asked,
    )


def speed(ttft_ms: float, *, failed: int = 0) -> PerformanceResult:
    """60 requests around `ttft_ms`, the first `failed` of them lost."""
    times = [ttft_ms + n for n in range(60)]
    samples = tuple(
        Sample(
            ttft_ms=None if n < failed else time,
            tpot_ms=None if n < failed else time / 10,
            e2e_ms=time * 3,
            prompt_tokens=40,
            completion_tokens=16,
            cached_tokens=0,
            error="timeout" if n < failed else None,
        )
        for n, time in enumerate(times)
    )
    kept = times[failed:] + [float("inf")] * failed
    tpot = [time / 10 for time in kept]
    return PerformanceResult(
        requests=60,
        concurrency=2,
        warmup_requests=2,
        output_tokens=16,
        ignores_eos=True,
        failed={"timeout": failed} if failed else {},
        unreached=0,
        metrics={
            "ttft_p50_ms": Measured.of(percentile_estimate(kept, 0.5), "ms"),
            "ttft_p95_ms": Measured.of(percentile_estimate(kept, 0.95), "ms"),
            "tpot_p95_ms": Measured.of(percentile_estimate(tpot, 0.95), "ms"),
        },
        prompt_tokens_mean=40.0,
        cached_share=0.0,
        tokens_per_event=1.0,
        window_s=10.0,
        samples=samples,
    )


def lane(
    ttft_ms: float = 100.0, *, failed: int = 0, steps: tuple[int | None, ...] = (None,)
) -> LaneResult:
    """60 requests a step around `ttft_ms`, the first `failed` of them lost; more in flight, slower.

    TPOT is a tenth of TTFT, the whole answer three times as long.
    """
    workload = Workload.model_validate(
        {
            "name": "chat",
            "arrival": {"kind": "poisson", "rate_per_s": 4}
            if steps == (None,)
            else {"kind": "concurrency", "steps": steps},
            "prompt_tokens": {"kind": "fixed", "tokens": 40},
            "output_tokens": {"kind": "fixed", "tokens": 16},
            "requests": 60,
        }
    )
    return LaneResult(
        name="interactive",
        workload=workload,
        digest=workload.digest,
        ignores_eos=True,
        lengths_known=True,
        steps=tuple(_lane_step(ttft_ms * (step or 1), failed, step) for step in steps),
    )


def _lane_step(ttft_ms: float, failed: int, in_flight: int | None) -> LaneStep:
    times = [ttft_ms + n for n in range(60)]
    kept = times[failed:] + [math.inf] * failed
    return LaneStep(
        in_flight=in_flight,
        requests=60,
        most_in_flight=in_flight or 3,
        failed={"timeout": failed} if failed else {},
        unreached=0,
        metrics={
            "ttft_p50_ms": Measured.of(percentile_estimate(kept, 0.5), "ms"),
            "ttft_p95_ms": Measured.of(percentile_estimate(kept, 0.95), "ms"),
            "itl_p50_ms": Measured.of(percentile_estimate([9.0] * 900, 0.5, 60), "ms"),
            "itl_p99_ms": Measured.of(percentile_estimate([19.0] * 900, 0.99, 60), "ms"),
        },
        late_share=None if in_flight else 0.0,
        lag_p99_ms=None if in_flight else 0.4,
        offered_per_s=None if in_flight else 4.0,
        window_s=15.0,
        prompt_tokens_mean=40.0,
        output_tokens_mean=16.0,
        cached_share=0.0,
        samples=tuple(
            LaneSample(
                at_s=n / 4,
                lag_ms=0.0,
                ttft_ms=None if n < failed else time,
                tpot_ms=None if n < failed else time / 10,
                e2e_ms=time * 3,
                prompt_asked=40,
                output_asked=16,
                prompt_tokens=40,
                completion_tokens=16,
                cached_tokens=0,
                error="timeout" if n < failed else None,
            )
            for n, time in enumerate(times)
        ),
    )


def in_turn(
    outcome: Outcome = Outcome.FAILED, *, slower: float = 1.2, rounds: int = 8, lost: int = 0
) -> PairedResult:
    """A candidate that takes `slower` times as long as live, round after round; one was dropped.

    Args:
        outcome: what came of it.
        slower: the ratio, which differs a little from round to round.
        rounds: that count.
        lost: requests of the candidate that failed in each round.
    """
    bars = PairedBars(against="prod")
    made = [
        _round(number, slower * (1 + (number % 3 - 1) / 50), lost)
        for number in range(1, rounds + 1)
    ]
    dropped = _round(rounds + 1, 9.0, 0).model_copy(update={"dropped": "others were loud"})
    return PairedResult(
        baseline=Baseline(named="m/t/prod", engine=Digest.of(b"live"), release="m/t:3"),
        outcome=outcome,
        reason="ttft_p50_ms: 1.2 times live's",
        rule=rule(bars),
        rounds=(*made, dropped),
        comparisons=compare(made, bars),
        throughput_ratio=0.9,
    )


def _round(number: int, slower: float, lost: int) -> PairedRound:
    base = [100.0 + 2 * n for n in range(20)]
    runs = [
        PairedRun(
            side=side,
            load_s=1,
            foreign_cpu=0,
            failed={"timeout": lost} if lost and side is Side.CANDIDATE else {},
            ttft_ms=tuple(time * times for time in base),
            tpot_ms=tuple(time * times / 10 for time in base),
        )
        for side, times in ((Side.CANDIDATE, slower), (Side.LIVE, 1.0))
    ]
    return PairedRound(number=number, runs=(runs[0], runs[1]))


def finding(name: str, outcome: Outcome, reason: str) -> Finding:
    return Finding(name=name, outcome=outcome, reason=reason)


def parity(text: str) -> ParityResult:
    """A comparison that failed, with `text` wherever a model's words are kept."""
    return ParityResult(
        parent=Parent(named="m/t-fp16", engine=Digest.of(b"parent"), precision="fp16"),
        outcome=Outcome.FAILED,
        reason="real divergences: 1 of 3 prompts, want at most 10 %",
        measures=ParityMeasures(
            unit="tokens",
            prompts=3,
            identical=2,
            near_ties=0,
            real=1,
            unknown=0,
            prefix_agreement=0.8,
        ),
        findings=(
            ParityFinding(measure="prefix agreement", outcome=Outcome.FAILED, reason="0.8"),
            ParityFinding(measure="KL", outcome=Outcome.SKIPPED, reason="no log probabilities"),
        ),
        tags=(
            TagDrop(
                tag=None, cases=3, parent_passed=3, candidate_passed=2, lost=1, gained=0, p=0.5
            ),
        ),
        divergences=(
            Divergence(
                case="capital",
                kind=DivergenceKind.REAL,
                at=2,
                of=4,
                parent_token=text[:40],
                candidate_token=None,
                margin=3.2,
                shared=text,
                parent_text=text,
                candidate_text="",
            ),
        ),
    )


def report(*findings: Finding, engine: bytes = b"candidate", **changes: Any) -> Report:
    found = findings or (finding("score", Outcome.PASSED, "1.000, want at least 0.900"),)
    values: dict[str, Any] = {
        "engine": Digest.of(engine),
        "gate": "smoke",
        "suite_name": "demo",
        "suite": Digest.of(b"suite"),
        "policy": POLICY,
        "policy_digest": POLICY.digest,
        "device": Device(
            sku="h100-sxm-80gb",
            host_class="one H100, 26 cores",
            cpu_model="Xeon 8480",
            cores=26,
            runtime={"driver": "570.86.10", "tensorrt-llm": "1.2.1"},
        ),
        "started_at": datetime(2026, 3, 1, 12, 0, tzinfo=UTC),
        "finished_at": datetime(2026, 3, 1, 12, 1, 5, tzinfo=UTC),
        "outcome": combine(item.outcome for item in found),
        "load": LoadResult(outcome=Outcome.PASSED, reason="ready in 0.8 s", load_s=0.8),
        "findings": found,
        "definitions": DEFINITIONS,
        "client": {"aiohttp": "3.14.5"},
    }
    return Report(**{**values, **changes})


PASSED_CASES = (
    case("capital", attempt("It is Paris."), must=True),
    case("sum", attempt("The sum is 4.")),
    case("poem", attempt("Roses are red, violets are blue.")),
)
LIVE = report(engine=b"live", cases=PASSED_CASES, performance=speed(100.0))
BESIDE = Live(named="m/t/prod, release 3", attached=Digest.of(b"report"), report=LIVE)
MIXED = report(
    finding("load", Outcome.PASSED, "ready in 0.8 s, up to the end"),
    finding("score", Outcome.FAILED, "0.500, want at least 0.900 (1 of 3 cases passed)"),
    finding("score of facts", Outcome.PASSED, "0.500, want at least 0.500"),
    finding("must-pass cases", Outcome.FAILED, "capital of 1 failed, want all passed"),
    finding("ttft_p95_ms", Outcome.INCONCLUSIVE, "95 % bounds lie on both sides of the bar"),
    finding("tpot_p95_ms", Outcome.ERRORED, "not measured: the server sends no usage"),
    finding("performance", Outcome.SKIPPED, "the policy asks for no more"),
    cases=(
        case("poem", attempt("Roses are red, violets are pink.")),
        case("lost", attempt("", Outcome.ERRORED, "http-503: HTTP 503: loading")),
        case("sum", attempt("The sum is 5.", Outcome.FAILED, "want '4' in it, got '5'")),
        case("capital", attempt("It is Rome.", Outcome.FAILED, "want 'Paris' in it"), must=True),
    ),
    performance=speed(150.0, failed=6),
    parity=(parity("It is Paris."),),
)
NASTY = report(
    finding("score", Outcome.FAILED, f"got {HOSTILE}"[:2000]),
    cases=(
        case("hostile", attempt(HOSTILE, Outcome.FAILED, f"got {HOSTILE}"), asked=HOSTILE),
        case("wide", attempt(LONG_WORD, Outcome.FAILED, f"got {LONG_WORD}")),
        case("huge", attempt(HUGE, Outcome.FAILED, "too long", finish_reason=HOSTILE)),
        case("empty", attempt("", Outcome.FAILED, "want 'yes' in it, got ''")),
        case("arabic", attempt("باريس عاصمة فرنسا", Outcome.FAILED, "want 'Paris' in it")),
    ),
    load=LoadResult(
        outcome=Outcome.PASSED, reason="ready", log=(HOSTILE, LONG_WORD), warnings=(HOSTILE,)
    ),
    parity=(parity(HOSTILE), parity(LONG_WORD)),
    client={"x": LONG_WORD, "y": HOSTILE},
    definitions={"ttft_ms": HOSTILE},
)
