"""The rules of a gate: what is failed, what could not be judged, and what each finding says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_pipeline.gates.judge import judge_performance, judge_quality, tag_scores
from engine_pipeline.gates.outcome import Outcome, combine
from engine_pipeline.gates.policy import PerformanceBars, QualityBars
from engine_pipeline.gates.report import Attempt, CaseResult, Measured, PerformanceResult

P, F, E = Outcome.PASSED, Outcome.FAILED, Outcome.ERRORED


def case(*attempts: Outcome, name: str = "a", **changes: Any) -> CaseResult:
    worst = F if F in attempts else E if E in attempts else P
    return CaseResult(
        **{
            "id": name,
            "tags": ("facts",),
            "must": False,
            "outcome": worst,
            "score": attempts.count(P) / len(attempts),
            "agreement": None,
            "attempts": tuple(
                Attempt(
                    outcome=outcome,
                    text="x",
                    text_chars=1,
                    finish_reason="stop",
                    completion_tokens=1,
                    e2e_ms=1.0,
                )
                for outcome in attempts
            ),
            **changes,
        }
    )


def score(cases: list[CaseResult], bar: float) -> Outcome:
    return judge_quality(cases, QualityBars(min_score=bar))[0].outcome


@pytest.mark.parametrize(
    ("cases", "bar", "outcome"),
    [
        ([case(P), case(P)], 1.0, P),
        ([case(P), case(F)], 0.5, P),
        ([case(P), case(F)], 0.51, F),
        ([case(P), case(E)], 0.5, P),  # met, whatever the other one would have been
        ([case(P), case(E)], 0.9, E),  # met or missed, who knows
        ([case(F), case(E)], 0.9, F),  # missed, whatever the other one would have been
        ([case(E), case(E)], 0.1, E),
        ([case(P, F), case(P)], 0.75, P),
        ([case(P, F), case(P)], 0.76, F),
        ([case(P, E), case(P)], 0.9, E),
        ([case(P, P, F)] * 3, 2 / 3, P),
        ([], 0.1, E),
    ],
)
def test_a_score_is_judged_by_what_it_could_be_at_least_and_at_most(cases, bar, outcome):
    assert score(cases, bar) is outcome


def test_the_finding_names_score_bar_and_cases():
    finding = judge_quality([case(P), case(F), case(E)], QualityBars(min_score=0.9))[0]
    assert finding.reason == (
        "0.333, want at least 0.900 (1 of 3 cases passed, 1 could not be judged)"
    )


def test_a_tag_with_a_bar_is_judged_by_its_own_cases():
    cases = [case(F, tags=("json",)), *[case(P)] * 9]
    findings = judge_quality(cases, QualityBars(min_score=0.9, min_tag_score={"json": 0.5}))
    assert [(f.name, f.outcome) for f in findings] == [("score", P), ("score of json", F)]


def test_tag_scores_are_reported_with_and_without_a_bar():
    cases = [case(P, tags=("a", "b")), case(F, tags=("b",))]
    found = tag_scores(cases, QualityBars(min_score=0.1, min_tag_score={"b": 0.4}))
    assert [(s.tag, s.passed, s.cases, s.score, s.bar) for s in found] == [
        ("a", 1, 1, 1.0, None),
        ("b", 1, 2, 0.5, 0.4),
    ]


@pytest.mark.parametrize(
    ("outcomes", "outcome", "reason"),
    [
        ((P, P), P, "all 2 passed"),
        ((P,), P, "the only one passed"),
        ((P, F), F, "m1 of 2 failed"),
        ((E, F), F, "m1 of 2 failed"),
        ((P, E), E, "m1 of 2 could not be judged"),
    ],
)
def test_one_must_case_that_fails_is_enough_whatever_the_score(outcomes, outcome, reason):
    must = [case(o, name=f"m{n}", must=True) for n, o in enumerate(outcomes)]
    findings = judge_quality(must + [case(P)] * 100, QualityBars(min_score=0.5))
    assert findings[0].outcome is P
    assert findings[1].outcome is outcome
    assert reason in findings[1].reason


def test_a_must_case_that_passes_only_sometimes_fails():
    findings = judge_quality([case(P, P, F, must=True)], QualityBars(min_score=0.5))
    assert combine(f.outcome for f in findings) is F


@given(
    st.lists(st.lists(st.sampled_from([P, F, E]), min_size=1, max_size=4), min_size=1, max_size=12),
    st.floats(0.01, 1.0),
)
def test_whatever_the_errored_attempts_had_been_a_decided_score_stays_decided(shapes, bar):
    def with_errors_as(outcome: Outcome) -> Outcome:
        cases = [case(*[outcome if o is E else o for o in shape]) for shape in shapes]
        return score(cases, bar)

    verdict = score([case(*shape) for shape in shapes], bar)
    best, worst = with_errors_as(P), with_errors_as(F)
    assert verdict is (best if best is worst else E)


def measured(value: float | None, **changes: Any) -> Measured:
    return Measured(
        **{
            "unit": "ms",
            "n": 60,
            "needed": 59,
            "value": value,
            "low": value,
            "high": value,
            "largest": value,
            **changes,
        }
    )


def result(**changes: Any) -> PerformanceResult:
    return PerformanceResult(
        **{
            "requests": 60,
            "concurrency": 2,
            "warmup_requests": 2,
            "output_tokens": 16,
            "ignores_eos": True,
            "failed": {},
            "unreached": 0,
            "metrics": {
                "ttft_p95_ms": measured(300),
                "tpot_p95_ms": measured(20),
                "output_tokens_per_s": measured(80, unit="tokens/s", n=10, needed=10),
            },
            "prompt_tokens_mean": 40.0,
            "cached_share": 0.1,
            "tokens_per_event": 1.0,
            "window_s": 12.0,
            "samples": (),
            **changes,
        }
    )


def speed(found: PerformanceResult, **bars: float) -> dict[str, tuple[Outcome, str]]:
    policy = PerformanceBars(requests=60, concurrency=2, output_tokens=16, **bars)
    return {f.name: (f.outcome, f.reason) for f in judge_performance(found, policy)}


def test_each_bar_gives_a_finding_with_both_sides():
    found = speed(result(), max_ttft_p95_ms=250, max_tpot_p95_ms=20, min_output_tokens_per_s=100)
    assert found["ttft_p95_ms"][0] is F
    assert found["ttft_p95_ms"][1].startswith("300 ms, want at most 250 ms: lower 95 % bound")
    assert found["tpot_p95_ms"][0] is P
    assert found["output_tokens_per_s"][0] is F
    assert "80 tokens/s, want at least 100 tokens/s" in found["output_tokens_per_s"][1]


def test_an_open_bar_says_how_many_more_requests_would_settle_it():
    metrics = {
        "ttft_p95_ms": measured(300, low=250, high=340),
        "output_tokens_per_s": measured(80, low=60, high=100, unit="tokens/s", n=10, needed=10),
    }
    found = speed(result(metrics=metrics), max_ttft_p95_ms=320, min_output_tokens_per_s=70)
    assert found["ttft_p95_ms"] == (
        Outcome.INCONCLUSIVE,
        "300 ms, want at most 320 ms: 95 % bounds 250 ms to 340 ms lie on both sides of the bar; "
        "about 180 more requests would settle it, if they are like these",
    )
    # A rate has ten slots, however many requests it is taken over.
    assert found["output_tokens_per_s"][0] is Outcome.INCONCLUSIVE
    assert "; about 180 more requests would settle it" in found["output_tokens_per_s"][1]


def test_without_a_bar_there_is_no_finding():
    assert set(speed(result(), max_tpot_p95_ms=20)) == {"tpot_p95_ms"}


def test_requests_that_never_reached_the_engine_make_it_errored():
    found = speed(result(unreached=3, failed={"connect": 3}), max_ttft_p95_ms=1000)
    assert found["ttft_p95_ms"][0] is E
    assert "3 of 60 requests never reached the engine: 3 connect" in found["ttft_p95_ms"][1]


def test_failures_of_the_engine_are_named_beside_the_verdict():
    beyond = measured(None)
    found = speed(
        result(metrics={"ttft_p95_ms": beyond}, failed={"http-500": 9}), max_ttft_p95_ms=1000
    )
    assert found["ttft_p95_ms"] == (
        F,
        "beyond measure, want at most 1000 ms: lower 95 % bound beyond measure is above the bar; "
        "failed requests: 9 http-500",
    )


def test_a_metric_that_could_not_be_taken_is_errored_not_passed():
    found = speed(result(metrics={}), max_tpot_p95_ms=20)
    assert found["tpot_p95_ms"][0] is E
    assert "sends no usage" in found["tpot_p95_ms"][1]
